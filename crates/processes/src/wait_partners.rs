//! Finds what a thread waits for beyond its process: the process at the other end of a connection or a pipe, a child process, or the
//! device of a file.
//!
//! The system call of a thread (`/proc/PID/task/TID/syscall`) has the descriptor for which it waits, the descriptor the inode of its
//! socket, and `/proc/PID/net/tcp` the addresses of all sockets of the network namespace (proc_pid_net(5)). The socket with the same
//! addresses in reverse is the other end. Its process has a descriptor of it. Of UNIX sockets, the kernel
//! reports the other end. Both ends of a pipe have one inode; the links of their descriptors have the permission to read or to write
//! (proc_pid_fd(5)).

mod children;
mod polls;
mod unix_sockets;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    iter::successors,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_blocking::Object;

use self::children::Children;
pub use self::polls::KnownListeners;
use crate::{Pid, ProcFs, Tid, procfs::Entries};

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

/// The ancestors of a process that has an end of a pipe: a shell, a wrapper and the server are three.
const MAX_GENERATIONS: usize = 8;

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
    pub tid: Tid,
    /// What the other side is to the thread.
    pub role: PartnerRole,
    /// The name of the process, the address of a socket of another machine or network namespace, or the device with its mount.
    pub name: String,
    /// The id of the process; `None` for an address, for a device, and for several processes of one name.
    pub pid: Option<Pid>,
    /// Whether the process of the thread waits on behalf of clients: one of its descriptors is a socket that listens, and it has accepted
    /// at least as many connections as its threads wait for services.
    pub serves: bool,
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
    /// A process that has the other end of a pipe, and is no descendant of that of the thread.
    Pipe,
    /// A child process, for whose end the thread waits; or a descendant that has the other end of a pipe.
    Child,
}

impl ProcFs {
    /// What threads, each a process and a thread id, wait for beyond their process now: of the first 64, and in 300 ms at most. Threads
    /// for which it is not known are left out.
    ///
    /// # Errors
    /// Those of reading `/proc`; [`io::ErrorKind::Unsupported`] while a capture is recorded or replayed.
    pub fn wait_partners(&self, threads: &[(Pid, Tid)]) -> io::Result<Vec<WaitPartner>> {
        if self.has_capture() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let Some((first, _)) = threads.first() else { return Ok(Vec::new()) };
        let entries = self.entries().clone();
        let threads: Vec<_> = threads.iter().copied().take(MAX_THREADS).collect();
        // The kernel waits for locks of the processes.
        profiler_blocking::run(Object::process(first.0), move || {
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
    tid: Tid,
    role: PartnerRole,
    /// `None` for a UNIX socket.
    address: Option<SocketAddr>,
    /// The inode of its socket, if it is in the same network namespace.
    inode: Option<u64>,
}

/// A pipe for which a thread waits.
struct Pipe {
    pid: Pid,
    tid: Tid,
    inode: u64,
    /// The end that the thread does not use.
    other: PipeEnd,
}

/// An end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PipeEnd {
    Reads,
    Writes,
}

impl PipeEnd {
    const ALL: [Self; 2] = [Self::Reads, Self::Writes];

    /// Whether a descriptor whose link has this mode is such an end.
    fn is_in(self, mode: u32) -> bool {
        let permission = match self {
            Self::Reads => 0o400,
            Self::Writes => 0o200,
        };
        mode & permission != 0
    }

    /// The only end that a descriptor is.
    fn of_mode(mode: u32) -> Option<Self> {
        match Self::ALL.map(|end| end.is_in(mode)) {
            [true, false] => Some(Self::Reads),
            [false, true] => Some(Self::Writes),
            _ => None,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Reads => Self::Writes,
            Self::Writes => Self::Reads,
        }
    }
}

/// The processes that have sockets and ends of pipes.
#[derive(Default)]
struct Owners {
    /// By inode.
    sockets: BTreeMap<u64, Pid>,
    /// By inode and end.
    pipes: BTreeMap<(u64, PipeEnd), BTreeMap<Pid, PipeOwner>>,
    /// Whether all processes were examined that can be.
    is_complete: bool,
}

/// A process that has an end of a pipe, as it is when the end is found: a child process of a request can live for milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PipeOwner {
    name: String,
    /// Its parent, the parent of that and so on.
    ancestors: Vec<Pid>,
}

impl Search<'_> {
    fn partners(&self, threads: &[(Pid, Tid)]) -> Vec<WaitPartner> {
        let mut tables = HashMap::<PathBuf, Rc<Sockets>>::new();
        let (mut found, mut connections, mut pipes) = (Vec::new(), Vec::new(), Vec::new());
        for (pid, tid) in threads {
            if self.is_late() {
                break;
            }
            let descriptor = match self.awaited(*pid, *tid) {
                Some(Awaited::Descriptor(descriptor)) => descriptor,
                Some(Awaited::Children(children)) => {
                    found.extend(self.child(*pid, *tid, children));
                    continue;
                }
                Some(Awaited::Polled(_)) | None => continue,
            };
            let path = PathBuf::from(format!("{pid}/fd/{descriptor}"));
            let Ok(link) = self.entries.link(&path) else { continue };
            let link = link.to_string_lossy();
            if let Some(inode) = socket_inode(&link) {
                let sockets = self.sockets(*pid, &mut tables);
                if let Some(end) = connection(&sockets, inode) {
                    connections.push((*pid, Connection { tid: *tid, ..end }));
                }
            } else if let Some(inode) = pipe_inode(&link) {
                let end = self.end_of_pipe(&path);
                pipes.extend(end.map(|end| Pipe { pid: *pid, tid: *tid, inode, other: end.other() }));
            } else if link.starts_with('/') {
                found.extend(self.device(*pid, *tid, descriptor));
            }
        }
        let own = threads.first().map_or(Pid(0), |(pid, _)| *pid);
        let with_pipes: BTreeSet<_> = pipes.iter().map(|pipe| pipe.pid).collect();
        let children = with_pipes.iter().filter_map(|pid| self.children(*pid)).flatten().collect();
        let servers = self.servers(&connections, &mut tables);
        let inodes = connections.iter().filter_map(|(_, end)| end.inode).collect();
        let ends = pipes.iter().map(|pipe| (pipe.inode, pipe.other)).collect();
        let owners = self.owners(self.processes(own, &children), inodes, &ends);
        found.extend(pipes.iter().filter_map(|pipe| Self::process_of_pipe(pipe, &owners)));
        found.extend(connections.into_iter().filter_map(|(pid, end)| {
            let serves = servers.contains(&pid);
            let owner = end.inode.and_then(|inode| owners.sockets.get(&inode));
            let (name, pid) = match owner {
                Some(pid) => (self.comm(*pid)?, Some(*pid)),
                None => (end.address?.to_string(), None),
            };
            Some(WaitPartner { tid: end.tid, role: end.role, name, pid, serves })
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

    /// The name of a process; `None` if it has ended.
    fn comm(&self, pid: Pid) -> Option<String> {
        let comm = self.text(&format!("{pid}/comm"), MAX_SHORT_BYTES).ok()?;
        Some(comm.trim_end_matches('\n').to_owned())
    }

    /// What a thread waits for in a system call: a descriptor, or children.
    fn awaited(&self, pid: Pid, tid: Tid) -> Option<Awaited> {
        let call = self.text(&format!("{pid}/task/{tid}/syscall"), MAX_SHORT_BYTES).ok()?;
        match parse_call(&call)? {
            Awaited::Polled(address) => {
                let polled = self.entries.read_memory(pid, address, size_of::<u32>()).ok()?;
                // A negative one is ignored by the kernel.
                let descriptor = i32::from_ne_bytes(polled.try_into().ok()?);
                u32::try_from(descriptor).ok().map(Awaited::Descriptor)
            }
            awaited => Some(awaited),
        }
    }

    /// The end of a pipe that a descriptor is; `None` for one that reads and writes.
    fn end_of_pipe(&self, descriptor: &Path) -> Option<PipeEnd> {
        PipeEnd::of_mode(self.entries.link_mode(descriptor).ok()?)
    }

    /// The process that has the other end of a pipe. Several are one if they have one name, and the process of the thread is not among
    /// them: it would wait for itself. A shell that runs a program has the ends of the program as well, and waits for it.
    fn process_of_pipe(pipe: &Pipe, owners: &Owners) -> Option<WaitPartner> {
        let of_pipe = owners.pipes.get(&(pipe.inode, pipe.other)).filter(|_| owners.is_complete)?;
        if of_pipe.contains_key(&pipe.pid) {
            return None;
        }
        let is_ancestor = |pid: &Pid| of_pipe.values().any(|owner| owner.ancestors.contains(pid));
        let others: Vec<_> = of_pipe.iter().filter(|(pid, _)| !is_ancestor(pid)).collect();
        let are_descendants = of_pipe.values().all(|owner| owner.ancestors.contains(&pipe.pid));
        let role = if are_descendants { PartnerRole::Child } else { PartnerRole::Pipe };
        let names: BTreeSet<_> = others.iter().map(|(_, owner)| owner.name.clone()).collect();
        let [name] = Vec::from_iter(names).try_into().ok()?;
        let pid = others.first().map(|(pid, _)| **pid).filter(|_| others.len() == 1);
        Some(WaitPartner { tid: pipe.tid, role, name, pid, serves: false })
    }

    /// `None` if the process has ended.
    fn pipe_owner(&self, pid: Pid) -> Option<PipeOwner> {
        let ancestors = self.ancestors(pid);
        Some(PipeOwner { name: self.comm(pid)?, ancestors })
    }

    /// The parent of a process, its parent and so on, as far as they can be read.
    fn ancestors(&self, pid: Pid) -> Vec<Pid> {
        let parent = |pid: &Pid| {
            let status = self.text(&format!("{pid}/status"), MAX_SHORT_BYTES).ok()?;
            let id = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
            id.trim().parse().ok().map(Pid).filter(|pid| *pid != Pid(0))
        };
        successors(parent(&pid), parent).take(MAX_GENERATIONS).collect()
    }

    /// The sockets of the network namespace of a process.
    fn sockets(&self, pid: Pid, tables: &mut HashMap<PathBuf, Rc<Sockets>>) -> Rc<Sockets> {
        let read =
            |name: &str| self.text(&format!("{pid}/net/{name}"), MAX_SOCKETS_BYTES).unwrap_or_default();
        let parse = |names: [&str; 2]| {
            let texts = names.map(read);
            texts.iter().flat_map(|text| text.lines().filter_map(parse_socket)).collect()
        };
        let read_all = || {
            let (tcp, udp): (Vec<_>, _) = (parse(["tcp", "tcp6"]), parse(["udp", "udp6"]));
            let internet = tcp.iter().filter(|socket| socket.state == LISTENS).map(|socket| socket.inode);
            let unix = read("unix");
            let listeners = internet.chain(polls::unix_listeners(&unix)).collect();
            let accepted = accepted(&tcp).into_iter().chain(polls::unix_accepted(&unix)).collect();
            Rc::new(Sockets { tcp, udp, listeners, accepted })
        };
        match self.entries.link(&PathBuf::from(format!("{pid}/ns/net"))) {
            Ok(namespace) => Rc::clone(tables.entry(namespace).or_insert_with(read_all)),
            Err(_) => read_all(),
        }
    }

    /// The processes of these connections that wait for services on behalf of their clients.
    fn servers(
        &self,
        connections: &[(Pid, Connection)],
        tables: &mut HashMap<PathBuf, Rc<Sockets>>,
    ) -> BTreeSet<Pid> {
        let mut waiting = BTreeMap::<Pid, usize>::new();
        for (pid, _) in connections.iter().filter(|(_, end)| end.role == PartnerRole::Service) {
            *waiting.entry(*pid).or_default() += 1;
        }
        let serves = |(pid, waiting): &(Pid, usize)| self.serves(*pid, *waiting, &self.sockets(*pid, tables));
        waiting.into_iter().filter(serves).map(|(pid, _)| pid).collect()
    }

    /// Whether a process has a socket that listens, and a connection of a client for each of its threads that wait for services: a program
    /// that takes work from a queue listens for those that examine it. The workers of a server share the socket of their parent.
    fn serves(&self, pid: Pid, waiting: usize, sockets: &Sockets) -> bool {
        let folder = PathBuf::from(format!("{pid}/fd"));
        let descriptors = self.entries.numbers_in(&folder).into_iter().flatten().take(MAX_DESCRIPTORS);
        let links =
            descriptors.filter_map(|descriptor| self.entries.link(&folder.join(descriptor.to_string())).ok());
        let inodes: Vec<_> = links.filter_map(|link| socket_inode(&link.to_string_lossy())).collect();
        inodes.iter().any(|inode| sockets.listeners.contains(inode))
            && inodes.iter().filter(|inode| sockets.accepted.contains(inode)).count() >= waiting
    }

    /// All processes, in the order in which they are examined: these children, which can end soon, then those whose ids are near that of
    /// `own`. Services that work together are often started together.
    fn processes(&self, own: Pid, children: &BTreeSet<Pid>) -> Vec<Pid> {
        let pids = self.entries.numbers_in(&PathBuf::from("."));
        let mut pids: Vec<_> = pids.into_iter().flatten().map(Pid).take(MAX_PROCESSES).collect();
        pids.sort_by_key(|pid| (!children.contains(pid), pid.0.abs_diff(own.0)));
        pids
    }

    /// The ones of these processes that have sockets with these inodes, and these ends of pipes.
    fn owners(&self, pids: Vec<Pid>, mut inodes: BTreeSet<u64>, pipes: &BTreeSet<(u64, PipeEnd)>) -> Owners {
        let mut owners = Owners { is_complete: pids.len() < MAX_PROCESSES, ..Owners::default() };
        for pid in pids {
            if inodes.is_empty() && pipes.is_empty() {
                break;
            }
            if self.is_late() {
                owners.is_complete = false;
                break;
            }
            let folder = PathBuf::from(format!("{pid}/fd"));
            let descriptors = self.entries.numbers_in(&folder);
            // A process can have ended.
            let is_hidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            owners.is_complete &= !descriptors.as_ref().err().is_some_and(is_hidden);
            let descriptors: Vec<_> = descriptors.into_iter().flatten().take(MAX_DESCRIPTORS).collect();
            owners.is_complete &= descriptors.len() < MAX_DESCRIPTORS;
            for descriptor in descriptors {
                let path = folder.join(descriptor.to_string());
                let Ok(link) = self.entries.link(&path) else { continue };
                let link = link.to_string_lossy();
                if let Some(inode) = socket_inode(&link).filter(|inode| inodes.remove(inode)) {
                    owners.sockets.insert(inode, pid);
                }
                let is_awaited = |inode: &u64| pipes.iter().any(|(of_pipe, _)| of_pipe == inode);
                if let Some(inode) = pipe_inode(&link).filter(is_awaited)
                    && let Ok(mode) = self.entries.link_mode(&path)
                {
                    let Some(owner) = self.pipe_owner(pid) else { continue };
                    for end in PipeEnd::ALL.into_iter().filter(|end| end.is_in(mode)) {
                        owners.pipes.entry((inode, end)).or_default().insert(pid, owner.clone());
                    }
                }
            }
        }
        owners
    }

    /// The device of the file of a descriptor.
    fn device(&self, pid: Pid, tid: Tid, descriptor: u32) -> Option<WaitPartner> {
        let information = self.text(&format!("{pid}/fdinfo/{descriptor}"), MAX_SHORT_BYTES).ok()?;
        let mount = information.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
        let mounts = self.text(&format!("{pid}/mountinfo"), MAX_MOUNTS_BYTES).ok()?;
        let name = device_of_mount(&mounts, mount)?;
        Some(WaitPartner { tid, role: PartnerRole::Device, name, pid: None, serves: false })
    }
}

/// What a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Descriptor(u32),
    /// The descriptor at this address.
    Polled(RuntimeAddress),
    Children(Children),
}

/// Parses a `syscall`; `None` for a thread that runs, and for a call that waits for neither a descriptor nor a child, or for several descriptors.
fn parse_call(text: &str) -> Option<Awaited> {
    let mut fields = text.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (first, second) = (argument()?, argument()?);
    if let Some(children) = Children::of_call(number, first, second) {
        return Some(Awaited::Children(children));
    }
    if CALLS_WITH_DESCRIPTOR.contains(&number) {
        return u32::try_from(first & u64::from(u32::MAX)).ok().map(Awaited::Descriptor);
    }
    (CALLS_WITH_POLL.contains(&number) && second == 1).then_some(Awaited::Polled(RuntimeAddress(first)))
}

/// The inode in the link of a descriptor: `socket:[4711]`.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The inode in the link of a descriptor: `pipe:[4711]`.
fn pipe_inode(link: &str) -> Option<u64> {
    link.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}

/// The sockets of a network namespace.
struct Sockets {
    tcp: Vec<InternetSocket>,
    udp: Vec<InternetSocket>,
    /// The inodes of those that listen, UNIX sockets among them.
    listeners: BTreeSet<u64>,
    /// The inodes of the connections that were accepted, UNIX sockets among them.
    accepted: BTreeSet<u64>,
}

/// The other end of the connection of a socket: one of these, or a UNIX socket.
fn connection(sockets: &Sockets, inode: u64) -> Option<Connection> {
    let of_unix = || {
        let (role, other) = unix_sockets::other_end(inode)?;
        Some(Connection { tid: Tid::default(), role, address: None, inode: Some(other) })
    };
    other_end(&sockets.tcp, inode).or_else(|| receiver(&sockets.udp, inode)).or_else(of_unix)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct InternetSocket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
}

/// Parses a line of `net/tcp`, `net/udp` and those of IPv6: number, local and remote address, state, six other fields, inode.
fn parse_socket(line: &str) -> Option<InternetSocket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (parse_address(fields.next()?)?, parse_address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(5)?.parse().ok()?;
    Some(InternetSocket { local, remote, state, inode })
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
fn other_end(sockets: &[InternetSocket], inode: u64) -> Option<Connection> {
    let own = sockets.iter().find(|socket| socket.inode == inode && socket.state != LISTENS)?;
    let role =
        if listener(sockets, &own.local).is_some() { PartnerRole::Client } else { PartnerRole::Service };
    let is_other_end = |socket: &&InternetSocket| socket.local == own.remote && socket.remote == own.local;
    let other = sockets.iter().find(is_other_end).map(|socket| socket.inode);
    let accepted = other.filter(|inode| *inode != NOT_ACCEPTED);
    let other = accepted.or_else(|| Some(listener(sockets, &own.remote).filter(|_| other.is_some())?.inode));
    Some(Connection { tid: Tid::default(), role, address: Some(own.remote), inode: other })
}

/// The socket that listens at an address.
fn listener<'a>(sockets: &'a [InternetSocket], address: &SocketAddr) -> Option<&'a InternetSocket> {
    sockets.iter().find(|socket| socket.state == LISTENS && listens_at(socket, address))
}

/// The inodes of the connections that were accepted: their local address is one at which a socket listens.
fn accepted(sockets: &[InternetSocket]) -> Vec<u64> {
    let listeners = sockets.iter().filter(|socket| socket.state == LISTENS).map(|socket| socket.local);
    let (of_any_address, of_one): (HashSet<_>, HashSet<_>) =
        listeners.partition(|listener| listener.ip().is_unspecified());
    let ports: HashSet<_> = of_any_address.iter().map(SocketAddr::port).collect();
    let is_accepted = |socket: &&InternetSocket| {
        socket.state != LISTENS
            && socket.inode != NOT_ACCEPTED
            && (ports.contains(&socket.local.port()) || of_one.contains(&socket.local))
    };
    sockets.iter().filter(is_accepted).map(|socket| socket.inode).collect()
}

/// The socket at the address to which one of UDP is connected: that of a server.
fn receiver(sockets: &[InternetSocket], inode: u64) -> Option<Connection> {
    let own = sockets.iter().find(|socket| socket.inode == inode && socket.remote.port() != 0)?;
    let other = sockets.iter().find(|socket| socket.remote.port() == 0 && listens_at(socket, &own.remote));
    Some(Connection {
        tid: Tid::default(),
        role: PartnerRole::Service,
        address: Some(own.remote),
        inode: other.map(|socket| socket.inode),
    })
}

fn listens_at(socket: &InternetSocket, address: &SocketAddr) -> bool {
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
    let receivers = sockets.iter().filter_map(|socket| receiver(&sockets, socket.inode)).count();
    assert!(ends.max(receivers) <= sockets.len());
    let _ = (parse_call(text), device_of_mount(text, "1"));
    polls::parse_any(text);
    unix_sockets::parse_any(text.as_bytes());
}

#[cfg(test)]
mod tests;
