//! Options of Unix sockets: the credentials of the peer (`SO_PEERCRED`, unix(7)), and file descriptors from it.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use profiler_processes::Pid;

/// Credentials of the peer process at the time of its `connect` or `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Process id in the caller's PID namespace; 0 when the process is not visible there.
    pub pid: Pid,
    /// User id.
    pub uid: u32,
}

/// The credentials of the peer of a connected socket.
pub(crate) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    let value = (&raw mut peer).cast();
    // SAFETY: the pointers are valid for writes of a `ucred` and of its size, and any bytes are a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut size)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: Pid(u32::try_from(peer.pid).unwrap_or(0)), uid: peer.uid })
}

/// Refuses file descriptors from the peer. They would be closed unread, and closing one can take as long as its owner
/// wants. Kernels before 6.16 do not know the option.
pub(crate) fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<()> {
    /// `SO_PASSRIGHTS` (`include/uapi/asm-generic/socket.h`).
    const PASS_RIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    let value = (&raw const off).cast();
    let size = size_of_val(&off) as libc::socklen_t;
    // SAFETY: the pointer is valid for reads of the size given.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, PASS_RIGHTS, value, size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd, unix::net::UnixStream};

    use super::*;

    #[test]
    fn descriptors_are_refused_where_the_kernel_can() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (one, other) = UnixStream::pair().unwrap();
        let is_known = refuse_descriptors(one.as_fd()).is_ok();
        let mut space = [std::mem::MaybeUninit::uninit(); 64];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let sent = [other.as_fd()];
        assert!(message.push(SendAncillaryMessage::ScmRights(&sent)));
        let bytes = [io::IoSlice::new(b"x")];
        let result = sendmsg(&other, &bytes, &mut message, SendFlags::empty());
        assert_eq!(result.is_err(), is_known, "{result:?}");
    }

    #[test]
    fn both_ends_of_a_socket_pair_have_the_credentials_of_this_process() {
        let (one, other) = UnixStream::pair().unwrap();
        let this = Peer { pid: Pid::own(), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(peer_credentials(one.as_fd()).unwrap(), this);
        assert_eq!(peer_credentials(other.as_fd()).unwrap(), this);
        assert!(peer_credentials(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
