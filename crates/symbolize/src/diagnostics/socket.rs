//! The diagnostics socket of a .NET process: finding it in the target's root, and speaking with a time limit.
//!
//! Whoever is at the other end is not trusted: it may never answer, and answer anything.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType},
};

use super::RuntimeProcess;
use crate::sys::peer::peer_credentials;
use profiler_processes::root_directory::RootDirectory;

/// Where the socket of a process can be, and whose it has to be.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) root: Arc<RootDirectory>,
    pub(super) paths: Vec<PathBuf>,
    /// The process, in the profiler's pid namespace.
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Endpoint {
    /// That of a process's runtime.
    pub(super) fn of(process: RuntimeProcess) -> Self {
        let name = format!("dotnet-diagnostic-{}-{}-socket", process.namespace_pid, process.start_ticks);
        Self {
            root: process.root,
            paths: process.directories.iter().map(|directory| directory.join(&name)).collect(),
            pid: process.pid,
            uid: process.uid,
        }
    }

    /// Whether there is one. It is looked at when it is connected to.
    pub(super) fn exists(&self) -> bool {
        self.paths.iter().any(|path| self.root.open_socket(path).is_ok())
    }

    /// Connects to the process itself: not to another that listens in its place, nor to a user's other socket.
    pub(super) fn connect(&self, until: Instant) -> io::Result<Connection> {
        let found = self.paths.iter().find_map(|path| self.root.open_socket(path).ok());
        let socket = found.ok_or(io::ErrorKind::NotFound)?;
        if rustix::fs::fstat(&socket)?.st_uid != self.uid {
            return Err(refused("the socket is another user's"));
        }
        let connection = Connection::to(&socket, until)?;
        let peer = peer_credentials(connection.socket.as_fd())?;
        if (peer.pid, peer.uid) != (self.pid, self.uid) {
            return Err(refused("another process listens at the socket"));
        }
        Ok(connection)
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// How long who waits is to wait: as long as nobody calls, and after that not longer than said.
#[derive(Debug)]
pub(super) struct Patience {
    call: Mutex<Call>,
    waker: OwnedFd,
}

#[derive(Clone, Copy, Debug, Default)]
struct Call {
    ends: Option<Instant>,
    for_good: bool,
}

impl Patience {
    pub(super) fn new() -> io::Result<Self> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { call: Mutex::default(), waker })
    }

    /// Calls, and lets nothing last longer than until then.
    pub(super) fn end_at(&self, until: Instant) {
        self.call(Call { ends: Some(until), for_good: false });
    }

    /// As [`end_at`](Self::end_at), and nothing renews it.
    pub(super) fn end_for_good_at(&self, until: Instant) {
        self.call(Call { ends: Some(until), for_good: true });
    }

    fn call(&self, call: Call) {
        *self.lock() = call;
        // A full counter has already woken everybody.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Nobody calls any more.
    pub(super) fn renew(&self) {
        let mut call = self.lock();
        if call.for_good {
            return;
        }
        *call = Call::default();
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    /// Until when, once somebody called.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.lock().ends
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Bytes(usize),
    /// The other end closed the connection.
    End,
    /// Somebody called.
    Called,
}

/// One connection. It never blocks for longer than it is told to.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to what an `O_PATH` descriptor names. Its path could be led elsewhere meanwhile, and may be longer than
    /// the 108 bytes that an address has.
    fn to(listener: &OwnedFd, until: Instant) -> io::Result<Self> {
        const FULL_QUEUE_WAIT: Duration = Duration::from_millis(5);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", listener.as_raw_fd()))?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self { socket }),
                Err(rustix::io::Errno::AGAIN) if Instant::now() < until => {
                    std::thread::sleep(FULL_QUEUE_WAIT);
                }
                Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT, until, None)?;
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for some bytes, and also for a call where `patience` is given.
    pub(super) fn receive(
        &self,
        buffer: &mut [u8],
        until: Instant,
        patience: Option<&Patience>,
    ) -> io::Result<Received> {
        loop {
            if self.wait(PollFlags::IN, until, patience)? {
                return Ok(Received::Called);
            }
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Ok(Received::End),
                Ok((received, _)) => return Ok(Received::Bytes(received)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the socket is ready. True when somebody called instead.
    fn wait(&self, for_what: PollFlags, until: Instant, patience: Option<&Patience>) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let waker = patience.map(|patience| PollFd::new(&patience.waker, PollFlags::IN));
            let mut fds: Vec<_> = [PollFd::new(&self.socket, for_what)].into_iter().chain(waker).collect();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(fds.get(1).is_some_and(|waker| !waker.revents().is_empty())),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn endpoint(directory: &std::path::Path) -> Endpoint {
        Endpoint {
            root: Arc::new(RootDirectory::open(directory).unwrap()),
            paths: vec!["/missing/socket".into(), "/socket".into()],
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
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
        endpoint.connect(soon()).unwrap();
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
        assert_eq!(endpoint.connect(soon()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_process_or_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let own = endpoint(directory.path());
        for stranger in [Endpoint { pid: 1, ..own.clone() }, Endpoint { uid: own.uid + 1, ..own }] {
            assert_eq!(stranger.connect(soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_queue_that_stays_full_is_not_waited_for() {
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
    fn who_says_nothing_is_not_waited_for_and_a_call_is_heard() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let connection = endpoint(directory.path()).connect(soon()).unwrap();
        let error = connection.receive(&mut [0; 4], soon(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let patience = Patience::new().unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        patience.end_at(later);
        let received = connection.receive(&mut [0; 4], later, Some(&patience)).unwrap();
        assert_eq!(received, Received::Called);
        patience.renew();
        assert_eq!(patience.ends(), None);
        patience.end_for_good_at(later);
        patience.renew();
        assert_eq!(patience.ends(), Some(later));
    }
}
