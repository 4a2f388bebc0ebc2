//! The wait status of a process from its pidfd.
#![expect(unsafe_code, reason = "a request of ioctl that no library wraps")]

use std::os::fd::BorrowedFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The first version of `struct pidfd_info` (`include/uapi/linux/pidfd.h`), 64 bytes.
#[repr(C)]
struct PidfdInfo {
    /// Bits of what is asked for, and of what the kernel has written.
    mask: u64,
    cgroup: u64,
    /// Ids of the process, its parent, and its users and groups.
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`: the exit code.
const EXIT: u64 = 1 << 3;

/// `PIDFD_GET_INFO`.
const GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

/// The wait status of a process for which its parent has waited (wait(2)); `None` before, and on kernels before 6.15.
pub(crate) fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo { mask: EXIT, cgroup: 0, ids: [0; 11], exit_code: 0 };
    // SAFETY: the request is that of the type.
    let request = unsafe { Updater::<GET_INFO, PidfdInfo>::new(&mut info) };
    // SAFETY: the kernel writes as many bytes as the request says, which is the size of the type.
    unsafe { ioctl(pidfd, request) }.ok()?;
    (info.mask & EXIT != 0).then_some(info.exit_code)
}
