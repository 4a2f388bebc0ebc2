//! Finds what a thread waits for beyond its process: the process at the other end of a TCP connection, or the device of a file.
//!
//! The system call of a thread (`/proc/PID/task/TID/syscall`) has the descriptor for which it waits, the descriptor the inode of its
//! socket, and `/proc/PID/net/tcp` the addresses of all sockets of the network namespace (proc_pid_net(5)). The socket with the same
//! addresses in reverse is the other end. Its process has a descriptor of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_blocking::Object;

use crate::{ProcFs, procfs::Entries};

/// The threads that are examined at most.
const MAX_THREADS: usize = 64;

/// The time after which nothing more is examined. On a busy machine, most of it is that of other programs.
const MAX_TIME: Duration = Duration::from_millis(300);

/// The text that is read of a system call, of other small files, and of a table of sockets, bytes.
const MAX_SHORT_BYTES: u64 = 4096;
const MAX_MOUNTS_BYTES: u64 = 256 << 10;
const MAX_SOCKETS_BYTES: u64 = 2 << 20;

/// The processes and the descriptors of each that are searched for the other ends.
const MAX_PROCESSES: usize = 4096;
const MAX_DESCRIPTORS: usize = 4096;

/// System calls whose first argument is the descriptor for which they wait: read, write, pread64, pwrite64, readv, writev, connect,
/// sendto, recvfrom, sendmsg, recvmsg, fsync, fdatasync, preadv, pwritev (arch/x86/entry/syscalls/syscall_64.tbl).
const CALLS_WITH_DESCRIPTOR: [u64; 15] = [0, 1, 17, 18, 19, 20, 42, 44, 45, 46, 47, 74, 75, 295, 296];

/// The system calls poll and ppoll, whose arguments are `struct pollfd`s and their number.
const CALLS_WITH_POLL: [u64; 2] = [7, 271];

/// The state of a socket that listens (include/net/tcp_states.h).
const LISTENS: u8 = 10;

/// The inode of a connection that no process has accepted yet.
const NOT_ACCEPTED: u64 = 0;

/// What a thread waits for beyond its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPartner {
    /// The id of the thread.
    pub tid: u32,
    /// What the other side is to the thread.
    pub role: PartnerRole,
    /// The name of the process, the address of a socket of another machine or network namespace, or the device with its mount.
    pub name: String,
    /// The id of the process; `None` for an address and for a device.
    pub pid: Option<u32>,
}

/// What the other side of a wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartnerRole {
    /// A service to which the process of the thread has connected.
    Service,
    /// A client, whose connection the process of the thread has accepted.
    Client,
    /// The device of a file.
    Device,
}

impl ProcFs {
    /// What threads, each a process and a thread id, wait for beyond their process now: of the first 64, and in 300 ms at most. Threads
    /// for which it is not known are left out.
    ///
    /// # Errors
    /// Those of reading `/proc`; [`io::ErrorKind::Unsupported`] while a capture is recorded or replayed.
    pub fn wait_partners(&self, threads: &[(u32, u32)]) -> io::Result<Vec<WaitPartner>> {
        if self.has_capture() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let Some((first, _)) = threads.first() else { return Ok(Vec::new()) };
        let entries = self.entries().clone();
        let threads: Vec<_> = threads.iter().copied().take(MAX_THREADS).collect();
        // The kernel waits for locks of the processes.
        profiler_blocking::run(Object::process(*first), move || {
            let search = Search { entries: &entries, deadline: Instant::now() + MAX_TIME };
            Ok(search.partners(&threads))
        })
    }
}

struct Search<'a> {
    entries: &'a Entries,
    deadline: Instant,
}

/// The other end of a connection.
struct Connection {
    tid: u32,
    role: PartnerRole,
    address: SocketAddr,
    /// The inode of its socket, if it is in the same network namespace.
    inode: Option<u64>,
}

impl Search<'_> {
    fn partners(&self, threads: &[(u32, u32)]) -> Vec<WaitPartner> {
        let mut tables = HashMap::<PathBuf, Rc<[TcpSocket]>>::new();
        let (mut found, mut connections) = (Vec::new(), Vec::new());
        for (pid, tid) in threads {
            if self.is_late() {
                break;
            }
            let Some(descriptor) = self.awaited_descriptor(*pid, *tid) else { continue };
            let Ok(link) = self.entries.link(&PathBuf::from(format!("{pid}/fd/{descriptor}"))) else {
                continue;
            };
            let link = link.to_string_lossy();
            if let Some(inode) = socket_inode(&link) {
                let sockets = self.sockets(*pid, &mut tables);
                connections.extend(other_end(&sockets, inode).map(|end| Connection { tid: *tid, ..end }));
            } else if link.starts_with('/') {
                found.extend(self.device(*pid, *tid, descriptor));
            }
        }
        let own = threads.first().map_or(0, |(pid, _)| *pid);
        let owners = self.owners(own, connections.iter().filter_map(|end| end.inode).collect());
        found.extend(connections.into_iter().map(|end| {
            let owner = end.inode.and_then(|inode| owners.get(&inode));
            let (name, pid) = match owner {
                Some((pid, comm)) => (comm.clone(), Some(*pid)),
                None => (end.address.to_string(), None),
            };
            WaitPartner { tid: end.tid, role: end.role, name, pid }
        }));
        found
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn text(&self, path: &str, limit_bytes: u64) -> io::Result<String> {
        let bytes = self.entries.read(&PathBuf::from(path), limit_bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The descriptor for which a thread waits in a system call.
    fn awaited_descriptor(&self, pid: u32, tid: u32) -> Option<u32> {
        let call = self.text(&format!("{pid}/task/{tid}/syscall"), MAX_SHORT_BYTES).ok()?;
        match parse_call(&call)? {
            Awaited::Descriptor(descriptor) => Some(descriptor),
            Awaited::Polled(address) => {
                let polled = self.entries.read_memory(pid, address, size_of::<u32>()).ok()?;
                // A negative one is ignored by the kernel.
                let descriptor = i32::from_ne_bytes(polled.try_into().ok()?);
                u32::try_from(descriptor).ok()
            }
        }
    }

    /// The TCP sockets of the network namespace of a process.
    fn sockets(&self, pid: u32, tables: &mut HashMap<PathBuf, Rc<[TcpSocket]>>) -> Rc<[TcpSocket]> {
        let read =
            |name: &str| self.text(&format!("{pid}/net/{name}"), MAX_SOCKETS_BYTES).unwrap_or_default();
        let read_all = || {
            let texts = ["tcp", "tcp6"].map(read);
            texts.iter().flat_map(|text| text.lines().filter_map(parse_socket)).collect()
        };
        match self.entries.link(&PathBuf::from(format!("{pid}/ns/net"))) {
            Ok(namespace) => Rc::clone(tables.entry(namespace).or_insert_with(read_all)),
            Err(_) => read_all(),
        }
    }

    /// The processes that have sockets with these inodes, by inode: id and name. Services that work together are often started together:
    /// processes whose ids are near that of `own` are examined first.
    fn owners(&self, own: u32, mut inodes: BTreeSet<u64>) -> BTreeMap<u64, (u32, String)> {
        let mut owners = BTreeMap::new();
        let pids = self.entries.numbers_in(&PathBuf::from("."));
        let mut pids: Vec<_> = pids.into_iter().flatten().take(MAX_PROCESSES).collect();
        pids.sort_by_key(|pid| pid.abs_diff(own));
        for pid in pids {
            if inodes.is_empty() || self.is_late() {
                break;
            }
            let folder = PathBuf::from(format!("{pid}/fd"));
            let descriptors = self.entries.numbers_in(&folder).into_iter().flatten().take(MAX_DESCRIPTORS);
            let links = descriptors
                .filter_map(|descriptor| self.entries.link(&folder.join(descriptor.to_string())).ok());
            let owned: Vec<_> = links.filter_map(|link| socket_inode(&link.to_string_lossy())).collect();
            for inode in owned {
                if inodes.remove(&inode) {
                    let comm = self.text(&format!("{pid}/comm"), MAX_SHORT_BYTES).unwrap_or_default();
                    owners.insert(inode, (pid, comm.trim_end_matches('\n').to_owned()));
                }
            }
        }
        owners
    }

    /// The device of the file of a descriptor.
    fn device(&self, pid: u32, tid: u32, descriptor: u32) -> Option<WaitPartner> {
        let information = self.text(&format!("{pid}/fdinfo/{descriptor}"), MAX_SHORT_BYTES).ok()?;
        let mount = information.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let mounts = self.text(&format!("{pid}/mountinfo"), MAX_MOUNTS_BYTES).ok()?;
        let name = device_of_mount(&mounts, mount)?;
        Some(WaitPartner { tid, role: PartnerRole::Device, name, pid: None })
    }
}

/// What a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Descriptor(u32),
    /// The descriptor at this address.
    Polled(RuntimeAddress),
}

/// Parses a `syscall`; `None` for a thread that runs, and for a call that waits for no descriptor, or for several.
fn parse_call(text: &str) -> Option<Awaited> {
    let mut fields = text.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (first, second) = (argument()?, argument()?);
    if CALLS_WITH_DESCRIPTOR.contains(&number) {
        return u32::try_from(first & u64::from(u32::MAX)).ok().map(Awaited::Descriptor);
    }
    (CALLS_WITH_POLL.contains(&number) && second == 1).then_some(Awaited::Polled(RuntimeAddress(first)))
}

/// The inode in the link of a descriptor: `socket:[4711]`.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TcpSocket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
}

/// Parses a line of `net/tcp` or `net/tcp6`: number, local and remote address, state, six other fields, inode.
fn parse_socket(line: &str) -> Option<TcpSocket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (parse_address(fields.next()?)?, parse_address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(5)?.parse().ok()?;
    Some(TcpSocket { local, remote, state, inode })
}

/// Parses an address: words of 32 bits in the order of the machine, and a port, all hexadecimal. An IPv4 address in an IPv6 one is an
/// IPv4 address.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |digits: &str| u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(address)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(address.get(8 * index..8 * index + 8)?)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// The other end of the connection of a socket. A process that listens on the local port has accepted it.
fn other_end(sockets: &[TcpSocket], inode: u64) -> Option<Connection> {
    let own = sockets.iter().find(|socket| socket.inode == inode && socket.state != LISTENS)?;
    let listener = |address: &SocketAddr| {
        sockets.iter().find(|socket| socket.state == LISTENS && listens_at(socket, address))
    };
    let role = if listener(&own.local).is_some() { PartnerRole::Client } else { PartnerRole::Service };
    let is_other_end = |socket: &&TcpSocket| socket.local == own.remote && socket.remote == own.local;
    let other = sockets.iter().find(is_other_end).map(|socket| socket.inode);
    let accepted = other.filter(|inode| *inode != NOT_ACCEPTED);
    let other = accepted.or_else(|| Some(listener(&own.remote).filter(|_| other.is_some())?.inode));
    Some(Connection { tid: 0, role, address: own.remote, inode: other })
}

fn listens_at(socket: &TcpSocket, address: &SocketAddr) -> bool {
    let is_any = socket.local.ip().is_unspecified() || socket.local.ip() == address.ip();
    is_any && socket.local.port() == address.port()
}

/// The device of a mount with this id: `/dev/vda1`. The file systems of the kernel itself have none.
fn device_of_mount(mounts: &str, id: &str) -> Option<String> {
    let mount = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let (_, of_file_system) = mount.split_once(" - ")?;
    let source = of_file_system.split(' ').nth(1)?;
    source.starts_with('/').then(|| source.to_owned())
}

/// Parses a text as a system call, a table of sockets and a table of mounts.
#[cfg(fuzzing)]
pub fn parse_any(text: &str) {
    let sockets: Vec<_> = text.lines().filter_map(parse_socket).take(64).collect();
    let ends = sockets.iter().filter_map(|socket| other_end(&sockets, socket.inode)).count();
    assert!(ends <= sockets.len());
    let _ = (parse_call(text), device_of_mount(text, "1"));
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
        sync::mpsc,
    };

    use super::*;

    /// Lines of `net/tcp` and `net/tcp6` on a little-endian machine: a listener, both ends of a connection to it, one to another
    /// machine, one that is not accepted.
    const SOCKETS: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:1538 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1
   2: 0100007F:C000 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1
   3: 0200000A:C001 0300000A:0050 01 00000000:00000000 00:00000000 00000000     0        0 103 1 0 20 4 30 10 -1
   4: 0100007F:1538 0100007F:C002 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   0: 0000000000000000FFFF00000100007F:C002 0000000000000000FFFF00000100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0 20 4 30 10 -1
";

    #[test]
    fn the_other_end_has_the_same_addresses_in_reverse() {
        let sockets: Vec<_> = SOCKETS.lines().filter_map(parse_socket).collect();
        assert_eq!(sockets.len(), 6);
        let end = |inode| {
            let end = other_end(&sockets, inode)?;
            Some((end.role, end.address.to_string(), end.inode))
        };
        let server = "127.0.0.1:5432".to_owned();
        assert_eq!(end(102), Some((PartnerRole::Service, server.clone(), Some(101))));
        assert_eq!(end(101), Some((PartnerRole::Client, "127.0.0.1:49152".to_owned(), Some(102))));
        assert_eq!(end(103), Some((PartnerRole::Service, "10.0.0.3:80".to_owned(), None)));
        assert_eq!(end(104), Some((PartnerRole::Service, server, Some(100))), "the listener");
        assert_eq!((end(100), end(7)), (None, None));
    }

    #[test]
    fn malformed_lines_have_no_socket() {
        for line in [
            "",
            "0:",
            "0: 0100007F 0100007F:1 01",
            "0: 0100007F:1 xx:1 01 a b c d e f 7",
            "0: 01:1 02:2 01 a b c d e 7",
        ] {
            assert_eq!(parse_socket(line), None, "{line}");
        }
    }

    #[test]
    fn a_system_call_waits_for_one_descriptor() {
        let call = |text| parse_call(text);
        assert_eq!(call("45 0x7 0x7f00 0x1 0x0 0x0 0x0 0x1 0x1\n"), Some(Awaited::Descriptor(7)));
        assert_eq!(call("0 0xffffffff00000005 0x7f 0x1 0x0 0x0 0x0 0x1 0x1\n"), Some(Awaited::Descriptor(5)));
        let polled = Some(Awaited::Polled(RuntimeAddress(0x7f00)));
        assert_eq!(call("7 0x7f00 0x1 0x3e8 0x0 0x0 0x0 0x1 0x1\n"), polled);
        for other in
            ["7 0x7f00 0x2 0x3e8\n", "202 0x10 0x80 0x2\n", "running\n", "-1 0x7ffe 0x7f84\n", "45 0x7", ""]
        {
            assert_eq!(call(other), None, "{other}");
        }
    }

    #[test]
    fn a_mount_has_a_device_unless_its_file_system_is_that_of_the_kernel() {
        let mounts = "25 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n26 25 0:5 / /dev rw - devtmpfs udev rw\n";
        assert_eq!(device_of_mount(mounts, "25").as_deref(), Some("/dev/vda1"));
        assert_eq!((device_of_mount(mounts, "26"), device_of_mount(mounts, "2")), (None, None));
    }

    #[test]
    fn a_thread_that_reads_a_connection_waits_for_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let (tids, received) = mpsc::channel();
        let other = tids.clone();
        let read = |stream: &mut TcpStream, tids: &mpsc::Sender<u32>| {
            tids.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            stream.read(&mut [0])
        };
        let own = std::process::id();
        let proc = ProcFs::live();
        let await_partner = |tid: u32| {
            let began = Instant::now();
            loop {
                let partners = proc.wait_partners(&[(own, tid)]).unwrap_or_default();
                if let [partner] = &partners[..]
                    && partner.pid.is_some()
                {
                    return partner.clone();
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{partners:?}");
            }
        };
        std::thread::scope(|scope| {
            let ends = [client.try_clone().unwrap(), accepted.try_clone().unwrap()];
            let reader = scope.spawn(move || read(&mut client, &tids));
            let partner = await_partner(received.recv().unwrap());
            assert_eq!((partner.role, partner.pid), (PartnerRole::Service, Some(own)));
            let server = scope.spawn(move || read(&mut accepted, &other));
            let partner = await_partner(received.recv().unwrap());
            assert_eq!((partner.role, partner.pid), (PartnerRole::Client, Some(own)));
            ends.iter().for_each(|end| end.shutdown(std::net::Shutdown::Both).unwrap());
            assert_eq!((reader.join().unwrap().unwrap(), server.join().unwrap().unwrap()), (0, 0));
        });
    }
}
