//! Gives this process a mount namespace of its own.

use std::io;

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

/// Mounts the proc file system of this process's PID namespace on `/proc`, in a mount namespace of its own
/// (mount_namespaces(7)): other processes see what they saw. For a process with one thread; threads that it starts later are in
/// the new namespace.
///
/// # Errors
/// `CAP_SYS_ADMIN` is missing.
pub(crate) fn mount_own_proc() -> io::Result<()> {
    // SAFETY: the table of file descriptors stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Later mounts of the machine arrive here, and none from here there.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    Ok(())
}
