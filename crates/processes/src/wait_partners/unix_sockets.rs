//! Finds the socket at the other end of a connection between UNIX sockets, by a request to the kernel (sock_diag(7)).
//!
//! `/proc/PID/net/unix` lacks the other end. The kernel reports the sockets of the network namespace of the profiler alone: a socket of
//! another one has no other end here.

use std::io;

use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SOCK_DIAG, recv, send,
        socket_with,
    },
};

use super::PartnerRole;

/// The type of a request about sockets, and of the response (include/uapi/linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// The flag of a request (include/uapi/linux/netlink.h).
const NLM_F_REQUEST: u16 = 1;

/// The sizes of `struct nlmsghdr`, `struct unix_diag_req`, `struct unix_diag_msg` and `struct nlattr`, bytes.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 24;
const MESSAGE_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;

/// The attributes of a socket that are requested: its name and the inode of its peer (include/uapi/linux/unix_diag.h).
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;

/// The largest response, bytes: a name has 108.
const MAX_RESPONSE_BYTES: usize = 1024;

/// A UNIX socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnixSocket {
    /// Whether it has an address: of a listener, and of the connections that are accepted from it.
    has_name: bool,
    /// The inode of the socket at the other end.
    peer: Option<u32>,
}

/// What the socket at the other end of that with an inode is, and its inode. A connection that is not accepted yet has none. In a pair
/// of sockets, neither end is a service.
pub(super) fn other_end(inode: u64) -> Option<(PartnerRole, u64)> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(SOCK_DIAG),
    )
    .ok()?;
    let own = read(&kernel, u32::try_from(inode).ok()?).ok()??;
    let peer_inode = own.peer?;
    let peer = read(&kernel, peer_inode).ok()??;
    let role = match (own.has_name, peer.has_name) {
        (false, true) => PartnerRole::Service,
        (true, false) => PartnerRole::Client,
        _ => return None,
    };
    Some((role, peer_inode.into()))
}

/// Asks the kernel about the socket with an inode; `None` if its network namespace has none.
fn read(kernel: &OwnedFd, inode: u32) -> io::Result<Option<UnixSocket>> {
    send(kernel, &request(inode), SendFlags::empty())?;
    let mut response = [0; MAX_RESPONSE_BYTES];
    // The kernel has answered before the call to send(2) returns.
    let (bytes, _) = recv(kernel, &mut response[..], RecvFlags::empty())?;
    Ok(parse_response(&response[..bytes], inode))
}

/// A `struct nlmsghdr` and a `struct unix_diag_req`.
fn request(inode: u32) -> [u8; HEADER_BYTES + REQUEST_BYTES] {
    const ANY_STATE: u32 = u32::MAX;
    const NO_COOKIE: u32 = u32::MAX;
    let mut request = [0; HEADER_BYTES + REQUEST_BYTES];
    let length = (HEADER_BYTES + REQUEST_BYTES) as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[HEADER_BYTES] = AddressFamily::UNIX.as_raw() as u8;
    let fields = [ANY_STATE, inode, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER, NO_COOKIE, NO_COOKIE];
    for (field, bytes) in fields.into_iter().zip(request[HEADER_BYTES + 4..].chunks_exact_mut(4)) {
        bytes.copy_from_slice(&field.to_ne_bytes());
    }
    request
}

/// Parses a `struct nlmsghdr`, a `struct unix_diag_msg` and its attributes; `None` for an error and for another socket.
fn parse_response(response: &[u8], inode: u32) -> Option<UnixSocket> {
    let length = usize::try_from(number(response, 0)?).ok()?;
    let response = response.get(..length)?;
    let of_inode = number(response, HEADER_BYTES + 4)?;
    if short(response, 4)? != SOCK_DIAG_BY_FAMILY || of_inode != inode {
        return None;
    }
    let mut attributes = response.get(HEADER_BYTES + MESSAGE_BYTES..)?;
    let mut socket = UnixSocket::default();
    while let (Some(length), Some(kind)) = (short(attributes, 0), short(attributes, 2)) {
        let length = usize::from(length);
        match (kind, length.checked_sub(ATTRIBUTE_BYTES)?) {
            (UNIX_DIAG_NAME, 1..) => socket.has_name = true,
            (UNIX_DIAG_PEER, _) => {
                socket.peer = number(attributes, ATTRIBUTE_BYTES).filter(|inode| *inode != 0);
            }
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(ATTRIBUTE_BYTES)..).unwrap_or_default();
    }
    Some(socket)
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..)?.first_chunk().copied()?))
}

fn short(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..)?.first_chunk().copied()?))
}

/// Parses bytes as a response of the kernel.
#[cfg(fuzzing)]
pub(super) fn parse_any(response: &[u8]) {
    let inode = number(response, HEADER_BYTES + 4).unwrap_or_default();
    let _ = parse_response(response, inode);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response about the socket 7 with these attributes.
    fn response(attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + MESSAGE_BYTES + attributes.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend([1, 1, 1, 0, 7, 0, 0, 0]);
        bytes.resize(HEADER_BYTES + MESSAGE_BYTES, 0);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn a_response_has_the_peer_and_says_whether_the_socket_has_a_name() {
        let peer = [8, 0, 2, 0, 9, 0, 0, 0];
        let name = [7, 0, 0, 0, b'/', b'a', b'b', 0];
        let socket = |has_name, peer| Some(UnixSocket { has_name, peer });
        let parsed = |attributes: &[u8]| parse_response(&response(attributes), 7);
        assert_eq!(parsed(&peer), socket(false, Some(9)));
        assert_eq!(parsed(&[name, peer].concat()), socket(true, Some(9)));
        assert_eq!(parsed(&[]), socket(false, None));
        assert_eq!(
            parsed(&[8, 0, 2, 0, 0, 0, 0, 0]),
            socket(false, None),
            "a connection that is not accepted"
        );
    }

    #[test]
    fn malformed_responses_and_those_about_other_sockets_have_no_socket() {
        assert_eq!(parse_response(&response(&[]), 8), None);
        assert_eq!(parse_response(&response(&[2, 0, 2, 0]), 7), None, "an attribute shorter than its header");
        let whole = response(&[8, 0, 2, 0, 9, 0, 0, 0]);
        for end in 0..whole.len() {
            assert_eq!(parse_response(&whole[..end], 7), None, "{end}");
        }
        let mut error = whole;
        error[4] = 2;
        assert_eq!(parse_response(&error, 7), None);
    }
}
