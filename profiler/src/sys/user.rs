//! Changes the user of a child process before its exec, and the user that file permissions of a thread are checked for.

use std::io;

/// The first descriptor after the standard streams.
const FIRST_OTHER_DESCRIPTOR: libc::c_uint = 3;

/// The user and the groups of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The supplementary groups.
    pub(crate) groups: Vec<u32>,
}

impl Credentials {
    /// Changes the user of this process for good: no id, group or capability of the former user remains. Runs in a child
    /// between fork and exec, whose only thread it changes.
    pub(crate) fn assume(&self) -> io::Result<()> {
        // SAFETY: setgroups reads as many ids as the length says.
        check(unsafe { libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()) })?;
        // SAFETY: setresgid has no pointers.
        check(unsafe { libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid) })?;
        // SAFETY: setresuid has no pointers.
        check(unsafe { libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid) })?;
        // A process with other securebits keeps capabilities when its user changes (capabilities(7)).
        if self.uid == 0 { Ok(()) } else { drop_capabilities() }
    }
}

/// Clears the effective, permitted and inheritable sets, and with them the ambient set.
fn drop_capabilities() -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` (`include/uapi/linux/capability.h`).
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let sets = [0_u32; 6];
    // SAFETY: the header has a version and a pid, and this version has two times three sets of 32 bits.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) })
}

/// Makes the exec close all descriptors but the standard streams. Runs in a child between fork and exec. `limit` is the
/// limit on open files, for kernels without `CLOSE_RANGE_CLOEXEC` (before Linux 5.11).
pub(crate) fn close_descriptors_on_exec(limit: u32) -> io::Result<()> {
    // SAFETY: close_range has no pointers.
    let closed = check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_OTHER_DESCRIPTOR,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    });
    match closed.map_err(|error| error.raw_os_error()) {
        Err(Some(libc::ENOSYS | libc::EINVAL)) => {
            for descriptor in FIRST_OTHER_DESCRIPTOR..limit {
                // SAFETY: this command has no pointers. A descriptor that is not open is not an error.
                unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            Ok(())
        }
        Err(error) => Err(error.map_or_else(io::Error::last_os_error, io::Error::from_raw_os_error)),
        Ok(()) => Ok(()),
    }
}

/// Sets the user that file permissions of the calling thread are checked for (setfsuid(2)). Returns whether it is that user
/// now: a user namespace may not have it.
#[cfg(feature = "sandbox")]
pub(crate) fn set_file_user(uid: u32) -> bool {
    // SAFETY: setfsuid has no pointers.
    let set = |uid: u32| unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    set(uid);
    // The call returns the user before it, and an invalid one changes nothing.
    set(u32::MAX) == libc::c_long::from(uid)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
