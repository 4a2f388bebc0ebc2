//! Connects to the diagnostics socket of a .NET process in the target's root, and sends and receives with a deadline.
//!
//! The peer is untrusted: it may never reply, and may send any bytes.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use profiler_processes::{Pid, root_directory::RootDirectory};
use profiler_profile::Reason;

use super::{
    raised_capability::RaisedCapability,
    runtime_process::{RuntimeProcess, failure_reason},
};
use crate::sys::peer::{peer_credentials, refuse_descriptors};

/// The possible paths of a process's diagnostics socket, and the process that must own it.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) root: Arc<RootDirectory>,
    pub(super) paths: Vec<PathBuf>,
    /// The process, in the profiler's pid namespace.
    pub(super) pid: Pid,
    pub(super) uid: u32,
}

impl Endpoint {
    /// The socket of the runtime in a process.
    pub(super) fn new(process: RuntimeProcess) -> Self {
        let name = format!("dotnet-diagnostic-{}-{}-socket", process.namespace_pid, process.start_ticks);
        Self {
            root: process.root,
            paths: process.directories.iter().map(|directory| directory.join(&name)).collect(),
            pid: process.pid,
            uid: process.uid,
        }
    }

    /// Whether a socket exists. [`connect`](Self::connect) checks its owner.
    pub(super) fn exists(&self) -> bool {
        self.paths.iter().any(|path| self.root.open_socket(path).is_ok())
    }

    /// Connects, and checks that the process itself listens and that its user owns the socket.
    pub(super) fn connect(&self, deadline: Instant) -> io::Result<Connection> {
        let found = self.paths.iter().find_map(|path| self.root.open_socket(path).ok());
        let socket = found.ok_or(io::ErrorKind::NotFound)?;
        if rustix::fs::fstat(&socket)?.st_uid != self.uid {
            return Err(refused("another user owns the socket"));
        }
        let connection = Connection::open(&socket, deadline)?;
        let peer = peer_credentials(connection.socket.as_fd())?;
        if (peer.pid, peer.uid) != (self.pid, self.uid) {
            return Err(refused("another process listens at the socket"));
        }
        Ok(connection)
    }
}

fn refused(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// A deadline that another thread can set while a thread waits on a socket. Setting it wakes the waiting thread.
#[derive(Debug)]
pub(super) struct CancellableDeadline {
    state: Mutex<DeadlineState>,
    waker: OwnedFd,
}

#[derive(Clone, Copy, Debug, Default)]
struct DeadlineState {
    deadline: Option<Instant>,
    is_permanent: bool,
}

impl CancellableDeadline {
    pub(super) fn new() -> io::Result<Self> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), waker })
    }

    /// Sets the deadline and wakes the waiting thread.
    pub(super) fn set(&self, deadline: Instant) {
        self.set_state(DeadlineState { deadline: Some(deadline), is_permanent: false });
    }

    /// Sets the deadline like [`set`](Self::set). [`clear`](Self::clear) has no effect afterwards.
    pub(super) fn set_permanently(&self, deadline: Instant) {
        self.set_state(DeadlineState { deadline: Some(deadline), is_permanent: true });
    }

    fn set_state(&self, state: DeadlineState) {
        *self.lock() = state;
        // A write to a full counter fails. The waiting thread is awake then.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Removes the deadline.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        if state.is_permanent {
            return;
        }
        *state = DeadlineState::default();
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    /// The deadline, if one is set.
    pub(super) fn get(&self) -> Option<Instant> {
        self.lock().deadline
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DeadlineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Bytes(usize),
    /// The peer closed the connection.
    End,
    /// The cancellable deadline was set.
    Cancelled,
}

/// The result of waiting for several connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// The connection with this index has bytes, or was closed.
    Connection(usize),
    /// The cancellable deadline was set.
    Cancelled,
}

/// Waits until one of several connections has bytes or is closed, or deadline `cancellable` is set. Of several such
/// connections, the result is the first one from index `first` on, or else the first one before: a caller that passes the
/// index behind the last result reads from all in turn. After the deadline, a connection that always has bytes is a timeout
/// as well.
pub(super) fn wait_for_any<'a>(
    connections: impl IntoIterator<Item = &'a Connection>,
    first: usize,
    deadline: Instant,
    cancellable: Option<&CancellableDeadline>,
) -> io::Result<Ready> {
    let sockets = connections.into_iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN));
    let mut fds: Vec<_> = sockets.collect();
    let count = fds.len();
    fds.extend(cancellable.map(|cancellable| PollFd::new(&cancellable.waker, PollFlags::IN)));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(count) if count == 0 || left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) if fds.iter().skip(count).any(|waker| !waker.revents().is_empty()) => {
                return Ok(Ready::Cancelled);
            }
            Ok(_) => {
                let ready = fds.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
                let next = ready.map(|(index, _)| index).min_by_key(|index| (*index < first, *index));
                return next.map(Ready::Connection).ok_or_else(|| io::ErrorKind::TimedOut.into());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A connection to a runtime. No operation blocks beyond its deadline, except that opening one takes a millisecond at least.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to the socket of an `O_PATH` descriptor. The path of the socket is not used: it can be replaced meanwhile,
    /// and can be longer than the 108 bytes of an address.
    fn open(listener: &OwnedFd, deadline: Instant) -> io::Result<Self> {
        /// The kernel takes a timeout of 0 as none.
        const MIN_TIMEOUT: Duration = Duration::from_millis(1);
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", listener.as_raw_fd()))?;
        // The socket belongs to the user of the target, and connecting to it needs permission to write.
        let _raised = RaisedCapability::dac_override();
        if let Err(error) = refuse_descriptors(socket.as_fd()) {
            log::debug!("file descriptors of the peer are not refused: {error}");
        }
        loop {
            // The send timeout also bounds connect(2), which waits while the queue of the listener is full
            // (`unix_stream_connect`, net/unix/af_unix.c).
            let left = deadline.saturating_duration_since(Instant::now());
            set_socket_timeout(&socket, Timeout::Send, Some(left.max(MIN_TIMEOUT)))?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // Not before an attempt: a thread that loses its CPU until the deadline connects to a listener that has place.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if left.is_zero() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket })
    }

    /// Sends all bytes.
    pub(super) fn send(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, deadline, None)?;
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for bytes, or deadline `cancellable` is set.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        deadline: Instant,
        cancellable: Option<&CancellableDeadline>,
    ) -> io::Result<Received> {
        loop {
            if self.wait(PollFlags::IN, deadline, cancellable)? {
                return Ok(Received::Cancelled);
            }
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Ok(Received::End),
                Ok((received, _)) => return Ok(Received::Bytes(received)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the socket is ready. Returns true when the cancellable deadline is set.
    fn wait(
        &self,
        events: PollFlags,
        deadline: Instant,
        cancellable: Option<&CancellableDeadline>,
    ) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let waker = cancellable.map(|cancellable| PollFd::new(&cancellable.waker, PollFlags::IN));
            let mut fds: Vec<_> = [PollFd::new(&self.socket, events)].into_iter().chain(waker).collect();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(fds.get(1).is_some_and(|waker| !waker.revents().is_empty())),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Connects to the diagnostics socket of a process without sending a command. `None` is a process without a socket.
pub fn probe(process: RuntimeProcess, deadline: Instant) -> Option<Result<(), Reason>> {
    let endpoint = Endpoint::new(process);
    endpoint.exists().then(|| endpoint.connect(deadline).map(drop).map_err(|error| failure_reason(&error)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn endpoint(directory: &std::path::Path) -> Endpoint {
        Endpoint {
            root: Arc::new(RootDirectory::open(directory).unwrap()),
            paths: vec!["/missing/socket".into(), "/socket".into()],
            pid: Pid::own(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// The deadline of what does not come.
    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    /// The deadline of what comes.
    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_socket_of_the_process_is_connected_to_however_long_its_path_is() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let endpoint = endpoint(&deep);
        assert!(!endpoint.exists());
        let short = directory.path().join("socket");
        let _listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(short, deep.join("socket")).unwrap();
        assert!(endpoint.exists());
        endpoint.connect(later()).unwrap();
    }

    #[test]
    fn what_is_no_socket_or_lies_outside_the_root_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let endpoint = endpoint(&root);
        let outside = directory.path().join("outside");
        let _listener = UnixListener::bind(&outside).unwrap();
        symlink(&outside, root.join("socket")).unwrap();
        assert!(!endpoint.exists());
        std::fs::remove_file(root.join("socket")).unwrap();
        std::fs::write(root.join("socket"), "a file").unwrap();
        assert!(!endpoint.exists());
        assert_eq!(endpoint.connect(later()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_process_or_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let own = endpoint(directory.path());
        for other in [Endpoint { pid: Pid(1), ..own.clone() }, Endpoint { uid: own.uid + 1, ..own }] {
            assert_eq!(other.connect(later()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_command_that_needs_no_wait_is_sent_after_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let passed = Instant::now();
        endpoint(directory.path()).connect(passed).unwrap().send(b"x", passed).unwrap();
        let mut received = [0];
        io::Read::read_exact(&mut listener.accept().unwrap().0, &mut received).unwrap();
        assert_eq!(received, *b"x");
    }

    #[test]
    fn connecting_to_a_full_backlog_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let endpoint = endpoint(directory.path());
        let mut connections = Vec::new();
        let error = loop {
            match endpoint.connect(soon()) {
                Ok(connection) => connections.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_connection_that_has_bytes_is_ready() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let endpoint = endpoint(directory.path());
        let connections = [(); 3].map(|()| endpoint.connect(later()).unwrap());
        let mut peers: Vec<_> = listener.incoming().take(3).map(Result::unwrap).collect();
        let cancellable = CancellableDeadline::new().unwrap();
        let wait = |deadline| wait_for_any(&connections, 0, deadline, Some(&cancellable));
        assert_eq!(wait(soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        io::Write::write_all(&mut peers[1], b"x").unwrap();
        assert_eq!(wait(later()).unwrap(), Ready::Connection(1));
        drop(peers.remove(0));
        assert_eq!(wait(later()).unwrap(), Ready::Connection(0));
        cancellable.set(soon());
        assert_eq!(wait(later()).unwrap(), Ready::Cancelled);
    }

    #[test]
    fn connections_that_always_have_bytes_are_ready_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let endpoint = endpoint(directory.path());
        let connections = [(); 3].map(|()| endpoint.connect(later()).unwrap());
        let mut peers: Vec<_> = listener.incoming().take(3).map(Result::unwrap).collect();
        for index in [0, 2] {
            io::Write::write_all(&mut peers[index], b"x").unwrap();
        }
        for (first, ready) in [(0, 0), (1, 2), (2, 2), (3, 0)] {
            let result = wait_for_any(&connections, first, later(), None).unwrap();
            assert_eq!(result, Ready::Connection(ready), "from {first}");
        }
    }

    #[test]
    fn receiving_times_out_and_is_cancelled_by_a_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let connection = endpoint(directory.path()).connect(later()).unwrap();
        let error = connection.receive(&mut [0; 4], soon(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let cancellable = CancellableDeadline::new().unwrap();
        let later = later();
        cancellable.set(later);
        let received = connection.receive(&mut [0; 4], later, Some(&cancellable)).unwrap();
        assert_eq!(received, Received::Cancelled);
        cancellable.clear();
        assert_eq!(cancellable.get(), None);
        cancellable.set_permanently(later);
        cancellable.clear();
        assert_eq!(cancellable.get(), Some(later));
    }
}
