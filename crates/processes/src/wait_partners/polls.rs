//! Finds out whether a thread in poll(2) or select(2) waits for new connections: whether one of its descriptors is a socket that listens.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
};

use profiler_addresses::RuntimeAddress;
use profiler_blocking::Object;

use super::{LISTENS, MAX_SHORT_BYTES, MAX_SOCKETS_BYTES, parse_socket, socket_inode};
use crate::{Pid, ProcFs, Process, procfs::Entries};

/// The descriptors of a call that are examined. Loops over more use epoll(7).
const MAX_DESCRIPTORS: u64 = 64;

/// The sockets that are remembered.
const MAX_SOCKETS: usize = 4096;

/// The size of a `struct pollfd`, bytes, whose first field is a descriptor of 32 bits.
const POLLFD_BYTES: usize = 8;

/// The state of a UNIX socket that is connected in `/proc/PID/net/unix` (include/uapi/linux/net.h).
const SS_CONNECTED: u32 = 3;

/// The flag of a UNIX socket that listens in `/proc/PID/net/unix` (include/uapi/linux/net.h).
const SO_ACCEPTCON: u32 = 1 << 16;

/// Whether sockets listen, by their inodes. A socket that listens does so until it is closed.
#[derive(Clone, Debug, Default)]
pub struct KnownListeners(HashMap<u64, bool>);

/// The descriptors for which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    /// `struct pollfd`s of poll and ppoll.
    List { address: u64, count: u64 },
    /// The bits of a set of select and pselect6, with the number of descriptors.
    Set { address: u64, count: u64 },
}

impl ProcFs {
    /// Whether the main thread of a process, which is in poll(2) or select(2), waits for new connections; `None` if it is in another
    /// call, or runs.
    ///
    /// # Errors
    /// Those of reading; [`io::ErrorKind::NotFound`] when another process has the PID by now; [`io::ErrorKind::Unsupported`] while a
    /// capture is recorded or replayed.
    pub fn awaits_connections(
        &self,
        process: &Process,
        known: &mut KnownListeners,
    ) -> io::Result<Option<bool>> {
        if self.has_capture() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (entries, pid) = (self.entries().clone(), process.pid);
        // The kernel waits for a lock of the process (exec_update_lock).
        let inodes = profiler_blocking::run(Object::process(pid.0), move || polled_sockets(&entries, pid))?;
        let Some(inodes) = inodes else { return Ok(None) };
        if known.0.len() > MAX_SOCKETS {
            known.0.clear();
        }
        if inodes.iter().any(|inode| !known.0.contains_key(inode)) {
            let entries = self.entries().clone();
            let listening =
                profiler_blocking::run(Object::process(pid.0), move || Ok(listeners(&entries, pid)))?;
            known.0.extend(inodes.iter().map(|inode| (*inode, listening.contains(inode))));
        }
        self.check_is_running(process)?;
        Ok(Some(inodes.iter().any(|inode| known.0.get(inode) == Some(&true))))
    }
}

/// The inodes of the sockets for which the main thread of a process waits in poll(2) or select(2); `None` if it is in another call.
fn polled_sockets(entries: &Entries, pid: Pid) -> io::Result<Option<Vec<u64>>> {
    let call = entries.read(&PathBuf::from(format!("{pid}/task/{pid}/syscall")), MAX_SHORT_BYTES)?;
    let Some(polled) = parse_poll(&String::from_utf8_lossy(&call)) else { return Ok(None) };
    let link = |descriptor| entries.link(&PathBuf::from(format!("{pid}/fd/{descriptor}"))).ok();
    let descriptors = descriptors(entries, pid, polled)?;
    // One can be closed by now.
    let links = descriptors.into_iter().filter_map(link);
    Ok(Some(links.filter_map(|link| socket_inode(&link.to_string_lossy())).collect()))
}

fn descriptors(entries: &Entries, pid: Pid, polled: Polled) -> io::Result<Vec<u32>> {
    let read = |address, bytes| entries.read_memory(pid, RuntimeAddress(address), bytes);
    match polled {
        Polled::List { count: 0, .. } | Polled::Set { count: 0, .. } | Polled::Set { address: 0, .. } => {
            Ok(Vec::new())
        }
        Polled::List { address, count } => {
            let list = read(address, count.min(MAX_DESCRIPTORS) as usize * POLLFD_BYTES)?;
            Ok(descriptors_of_list(&list))
        }
        Polled::Set { address, count } => {
            let count = count.min(MAX_DESCRIPTORS);
            let set = read(address, size_of::<u64>())?;
            Ok(descriptors_of_set(&set, count as u32))
        }
    }
}

/// A negative descriptor is ignored by the kernel.
fn descriptors_of_list(list: &[u8]) -> Vec<u32> {
    let (entries, _) = list.as_chunks::<POLLFD_BYTES>();
    let descriptor =
        |[a, b, c, d, ..]: &[u8; POLLFD_BYTES]| u32::try_from(i32::from_ne_bytes([*a, *b, *c, *d])).ok();
    entries.iter().filter_map(descriptor).collect()
}

fn descriptors_of_set(set: &[u8], count: u32) -> Vec<u32> {
    let Some(bits) = set.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)) else { return Vec::new() };
    (0..count.min(u64::BITS)).filter(|descriptor| bits >> descriptor & 1 > 0).collect()
}

/// Parses a `syscall` (proc_pid_syscall(5)); `None` for a thread that runs or is in another call than poll (7), ppoll (271), select
/// (23) and pselect6 (270).
fn parse_poll(text: &str) -> Option<Polled> {
    let mut fields = text.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (first, second) = (argument()?, argument()?);
    match number {
        7 | 271 => Some(Polled::List { address: first, count: second }),
        23 | 270 => Some(Polled::Set { address: second, count: first }),
        _ => None,
    }
}

/// The inodes of the sockets that listen in the network namespace of a process.
fn listeners(entries: &Entries, pid: Pid) -> Vec<u64> {
    // A kernel can lack IPv6.
    let read = |name: &str| {
        entries.read(&PathBuf::from(format!("{pid}/net/{name}")), MAX_SOCKETS_BYTES).unwrap_or_default()
    };
    let of_internet = ["tcp", "tcp6"].map(read);
    let internet = of_internet.iter().flat_map(|text| internet_listeners(&String::from_utf8_lossy(text)));
    let of_unix = read("unix");
    internet.chain(unix_listeners(&String::from_utf8_lossy(&of_unix))).collect()
}

fn internet_listeners(text: &str) -> Vec<u64> {
    let sockets = text.lines().filter_map(parse_socket);
    sockets.filter(|socket| socket.state == LISTENS).map(|socket| socket.inode).collect()
}

pub(super) fn unix_listeners(text: &str) -> Vec<u64> {
    let listeners = text.lines().filter_map(UnixLine::parse).filter(|socket| socket.listens);
    listeners.map(|socket| socket.inode).collect()
}

/// The inodes of the connections that were accepted: they have the path of a socket that listens.
pub(super) fn unix_accepted(text: &str) -> Vec<u64> {
    let sockets = || text.lines().filter_map(UnixLine::parse);
    let paths: HashSet<_> =
        sockets().filter(|socket| socket.listens).filter_map(|socket| socket.path).collect();
    let accepted = sockets().filter(|socket| socket.is_connected);
    accepted
        .filter(|socket| socket.path.is_some_and(|path| paths.contains(path)))
        .map(|socket| socket.inode)
        .collect()
}

/// A line of `net/unix`: number, references, protocol, flags, type, state, inode, path.
struct UnixLine<'a> {
    listens: bool,
    is_connected: bool,
    inode: u64,
    path: Option<&'a str>,
}

impl<'a> UnixLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
        let state = u32::from_str_radix(fields.nth(1)?, 16).ok()?;
        let inode = fields.next()?.parse().ok()?;
        let (listens, is_connected) = (flags & SO_ACCEPTCON != 0, state == SS_CONNECTED);
        Some(Self { listens, is_connected, inode, path: fields.next() })
    }
}

/// Parses a text as a system call and as tables of sockets, and its bytes as descriptors.
#[cfg(fuzzing)]
pub(super) fn parse_any(text: &str) {
    let _ = (parse_poll(text), internet_listeners(text), unix_listeners(text), unix_accepted(text));
    let (list, set) = (descriptors_of_list(text.as_bytes()), descriptors_of_set(text.as_bytes(), 64));
    assert!(list.len() <= text.len() && set.len() <= 64);
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        os::unix::net::UnixListener,
        process::{Child, Command, Stdio},
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{ProcessFilter, ProcessTable};

    #[test]
    fn a_call_has_its_descriptors() {
        assert_eq!(parse_poll("7 0x7f00 0x2 0x3e8 0x0\n"), Some(Polled::List { address: 0x7f00, count: 2 }));
        assert_eq!(parse_poll("271 0x7f00 0x1 0x0\n"), Some(Polled::List { address: 0x7f00, count: 1 }));
        assert_eq!(parse_poll("23 0x5 0x7f00 0x0\n"), Some(Polled::Set { address: 0x7f00, count: 5 }));
        assert_eq!(parse_poll("270 0x5 0x7f00 0x0\n"), Some(Polled::Set { address: 0x7f00, count: 5 }));
        for other in ["running\n", "", "7", "7 0x7f00", "232 0x7f00 0x2 0x3e8\n", "-1 0x7ffe 0x7f84\n"] {
            assert_eq!(parse_poll(other), None, "{other}");
        }
    }

    #[test]
    fn lists_and_sets_have_descriptors() {
        let list = [3_u32, 1, u32::MAX, 1, 70_000, 4].map(u32::to_ne_bytes).concat();
        assert_eq!(descriptors_of_list(&list), [3, 70_000]);
        assert_eq!(descriptors_of_list(&list[..11]), [3], "half of an entry");
        let set = 0b1010_1000_u64.to_ne_bytes();
        assert_eq!(descriptors_of_set(&set, 6), [3, 5]);
        assert_eq!(descriptors_of_set(&set[..7], 6), [0; 0]);
    }

    #[test]
    fn a_unix_socket_that_listens_has_a_flag_and_one_that_is_accepted_its_path() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01  4711 /run/a\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03  4712 /run/a\n\
                    0000000000000000: 00000003 00000000 00010000 0001\n";
        assert_eq!((unix_listeners(text), unix_accepted(text)), (vec![4711], vec![4712]));
        let of_client = "0000000000000000: 00000003 00000000 00000000 0001 03  4713\n";
        let of_other = "0000000000000000: 00000003 00000000 00000000 0001 03  4714 /run/b\n";
        assert_eq!(unix_accepted(&format!("{text}\n{of_client}{of_other}")), [4712]);
    }

    /// A program that waits in select(2) until its standard input is ready.
    const SELECTS: &str = "my $set = \"\\x01\"; select($set, undef, undef, undef)";

    /// A process whose standard input is a socket or a pipe, and that waits for it.
    struct Waiting(Child);

    impl Waiting {
        fn start(input: Stdio) -> Self {
            Self(Command::new("perl").args(["-e", SELECTS]).stdin(input).spawn().unwrap())
        }

        /// Whether it waits for new connections, once it waits.
        fn awaits_connections(&self) -> bool {
            let proc = Arc::new(ProcFs::live());
            let mut table = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
            let key = table.prefetch(Pid(self.0.id()));
            let (mut known, began) = (KnownListeners::default(), Instant::now());
            loop {
                let process = table.get(key).unwrap();
                if let Some(awaits) = proc.awaits_connections(process, &mut known).unwrap() {
                    return awaits;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "it does not wait");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_thread_that_selects_a_socket_that_listens_waits_for_connections() {
        let folder = tempfile::tempdir().unwrap();
        let of_internet = TcpListener::bind("127.0.0.1:0").unwrap();
        let of_unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let inputs = [std::os::fd::OwnedFd::from(of_internet), std::os::fd::OwnedFd::from(of_unix)];
        for input in inputs {
            assert!(Waiting::start(input.into()).awaits_connections());
        }
        assert!(!Waiting::start(Stdio::piped()).awaits_connections());
    }
}
