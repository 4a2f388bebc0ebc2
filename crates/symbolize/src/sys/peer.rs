//! Who is at the other end of a Unix socket (`SO_PEERCRED`, unix(7)).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// A process, as the kernel remembers it from when the socket was connected or listened at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// In the caller's pid namespace; 0 when it is not visible there.
    pub pid: u32,
    pub uid: u32,
}

/// The peer of a connected socket.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    let value = (&raw mut peer).cast();
    // SAFETY: the pointers lead to a structure that any bytes make a valid one, and to its size.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut size)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: u32::try_from(peer.pid).unwrap_or(0), uid: peer.uid })
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd, unix::net::UnixStream};

    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, other) = UnixStream::pair().unwrap();
        let this = Peer { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(peer_of(one.as_fd()).unwrap(), this);
        assert_eq!(peer_of(other.as_fd()).unwrap(), this);
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
