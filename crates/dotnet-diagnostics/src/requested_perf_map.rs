//! Requests a perf map of a runtime, for the names of its stubs: enables it, disables it, and removes the file.
//!
//! No step waits while the map is being enabled. A runtime replies to the command after it has written all its methods.

use std::{
    fmt, io,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use profiler_blocking::Deadline;
use profiler_dotnet_symbols::eventpipe::ipc::{self, Reply};

use super::{command::SentCommand, runtime_process::PerfMapPaths, socket::Endpoint};

/// Age at which a process is asked. A runtime that is asked while it starts can crash (dotnet/runtime issues 122472 and
/// 123438).
const MIN_PROCESS_AGE: Duration = Duration::from_secs(5);

/// Time for sending a command. Symbolization waits meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_millis(20);

/// Time for disabling a perf map that is dropped unread.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for removing the files of a perf map.
const REMOVE_TIMEOUT: Duration = Duration::from_millis(500);

/// A requested perf map of one process. Dropping it disables the map and removes its files.
#[derive(Debug)]
pub(super) struct RequestedPerfMap {
    endpoint: Endpoint,
    files: PerfMapPaths,
    state: RequestState,
    /// Whether the command was sent. The files did not exist before, so they are removed afterwards.
    was_enabled: bool,
    /// Whether the runtime may be writing the map.
    may_be_enabled: bool,
    /// How long dropping this may wait, where others are dropped with it.
    drop_deadline: Option<Instant>,
}

#[derive(Debug)]
enum RequestState {
    /// The runtime is not listening yet, or the process is too young.
    Waiting,
    RequestingVersion(SentCommand),
    Enabling(SentCommand),
    Enabled,
    Disabling(SentCommand),
    Finished,
}

/// Why a runtime is not asked for a perf map, or does not write one.
#[derive(Debug)]
enum Obstacle {
    /// The runtime does not know the command.
    Old,
    /// The runtime can deadlock (dotnet/runtime issue 128401).
    Deadlock(String),
    Young,
    /// A file that the runtime would overwrite exists.
    Exists(PathBuf),
    Refused,
    Failed(io::Error),
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old => f.write_str("its runtime is older than .NET 8"),
            Self::Deadlock(version) => {
                write!(
                    f,
                    "writing one can lock up its runtime, .NET {version}, for ever; .NET 10.0.11 has the fix"
                )
            }
            Self::Young => {
                f.write_str("its runtime can crash while it starts, and it was not sampled long enough")
            }
            Self::Exists(path) => write!(f, "`{}` already exists", path.display()),
            Self::Refused => f.write_str("its runtime rejected the command"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl RequestedPerfMap {
    /// Sends nothing before the first [`advance`](Self::advance).
    pub(super) fn new(endpoint: Endpoint, files: PerfMapPaths) -> Self {
        Self {
            endpoint,
            files,
            state: RequestState::Waiting,
            was_enabled: false,
            may_be_enabled: false,
            drop_deadline: None,
        }
    }

    /// Takes the next steps to enable the map, as many as are possible without waiting.
    pub(super) fn advance(&mut self) {
        loop {
            match self.step() {
                Ok(Some(next)) => self.state = next,
                Ok(None) => return,
                Err(obstacle) => return self.give_up(&obstacle),
            }
        }
    }

    /// Sends the command that disables the map. [`finish`](Self::finish) waits for the reply.
    pub(super) fn disable(&mut self, deadline: Instant) {
        match self.state {
            RequestState::Waiting if self.endpoint.exists() => self.give_up(&Obstacle::Young),
            RequestState::RequestingVersion(_) => {
                self.give_up(&io::Error::from(io::ErrorKind::TimedOut).into());
            }
            _ => self.state = RequestState::Finished,
        }
        if self.may_be_enabled {
            match SentCommand::send(&self.endpoint, &ipc::disable_perf_map_command(), deadline) {
                Ok(command) => self.state = RequestState::Disabling(command),
                Err(error) => {
                    log::info!("failed to disable the perf map of process {}: {error}", self.endpoint.pid);
                }
            }
        }
    }

    /// Sends the command that disables the map, if it is still to be sent, and bounds the time that dropping this takes.
    pub(super) fn begin_drop(&mut self, deadline: Instant) {
        self.drop_deadline = Some(deadline);
        if self.may_be_enabled {
            self.disable(Instant::now() + SEND_TIMEOUT);
        }
    }

    /// Waits until the map is disabled. Its file is complete then.
    pub(super) fn finish(&mut self, deadline: Instant) {
        let RequestState::Disabling(command) = &mut self.state else { return };
        match command.receive_reply(deadline, None) {
            Ok(None) => {
                log::warn!("process {} did not confirm that its perf map is complete", self.endpoint.pid);
            }
            // The connection fails when the process has exited.
            Ok(Some(_)) | Err(_) => self.may_be_enabled = false,
        }
        self.state = RequestState::Finished;
    }

    /// The next state, if it can be reached without waiting.
    fn step(&mut self) -> Result<Option<RequestState>, Obstacle> {
        let now = Instant::now();
        let send_deadline = now + SEND_TIMEOUT;
        Ok(match &mut self.state {
            RequestState::Waiting
                if self.files.process_age() < MIN_PROCESS_AGE || !self.endpoint.exists() =>
            {
                None
            }
            RequestState::Waiting => {
                let message = ipc::process_info_command();
                Some(RequestState::RequestingVersion(SentCommand::send(
                    &self.endpoint,
                    &message,
                    send_deadline,
                )?))
            }
            RequestState::RequestingVersion(command) => match command.receive_reply(now, None)? {
                None => None,
                Some(Reply::Error) => return Err(Obstacle::Old),
                Some(Reply::Success(payload)) => {
                    let version = ipc::decode_runtime_version(&payload).map_err(|_| Obstacle::Refused)?;
                    check_version(&version)?;
                    self.check_files()?;
                    (self.was_enabled, self.may_be_enabled) = (true, true);
                    let message = ipc::enable_perf_map_command();
                    Some(RequestState::Enabling(SentCommand::send(&self.endpoint, &message, send_deadline)?))
                }
            },
            RequestState::Enabling(command) => match command.receive_reply(now, None)? {
                None => None,
                Some(Reply::Error) => {
                    self.may_be_enabled = false;
                    return Err(Obstacle::Refused);
                }
                Some(Reply::Success(_)) => Some(RequestState::Enabled),
            },
            RequestState::Enabled | RequestState::Disabling(_) | RequestState::Finished => None,
        })
    }

    /// Fails when the runtime would overwrite a file.
    fn check_files(&self) -> Result<(), Obstacle> {
        match self.files.paths.iter().find(|path| self.endpoint.root.exists(path)) {
            Some(path) => Err(Obstacle::Exists(path.clone())),
            None => Ok(()),
        }
    }

    fn remove_files(&self) {
        let Endpoint { root, pid, uid, .. } = &self.endpoint;
        for path in &self.files.paths {
            match root.remove_file(path, *uid) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log::warn!("failed to remove `{}` of process {pid}: {error}", path.display());
                }
                _ => {}
            }
        }
    }

    fn give_up(&mut self, obstacle: &Obstacle) {
        log::warn!("no perf map of process {}: {obstacle}", self.endpoint.pid);
        self.state = RequestState::Finished;
    }
}

impl Drop for RequestedPerfMap {
    fn drop(&mut self) {
        let now = Instant::now();
        let deadline = self.drop_deadline.unwrap_or(now + DROP_TIMEOUT);
        // Also where the session has no time left: nothing may remain in the target.
        Deadline::of_this_thread().set(deadline.max(now) + REMOVE_TIMEOUT);
        if self.may_be_enabled {
            if !matches!(self.state, RequestState::Disabling(_)) {
                self.disable(deadline);
            }
            self.finish(deadline);
        }
        if self.was_enabled {
            self.remove_files();
        }
    }
}

impl PerfMapPaths {
    fn process_age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_nanos(self.started_unix_ns))
    }
}

/// Checks that a runtime of a version can write perf maps without a deadlock.
fn check_version(version: &str) -> Result<(), Obstacle> {
    /// The first major version with the command.
    const FIRST: u32 = 8;
    /// The first version that has the fix of the deadlock (dotnet/runtime pull request 129142).
    const FIXED: [u32; 3] = [10, 0, 11];
    let mut numbers = version.split(['.', '+', '-']).map(|number| number.parse().unwrap_or(0));
    let [major, minor, patch] = [(); 3].map(|()| numbers.next().unwrap_or(0));
    if major < FIRST {
        Err(Obstacle::Old)
    } else if major == FIXED[0] && [major, minor, patch] < FIXED {
        Err(Obstacle::Deadlock(version.chars().take(32).collect()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read as _, Write as _},
        os::unix::net::{UnixListener, UnixStream},
        path::Path,
        sync::{
            Arc,
            mpsc::{Receiver, channel},
        },
    };

    use profiler_processes::{Pid, root_directory::RootDirectory};

    use super::*;

    const VERSION: u8 = 4;
    const ENABLE: u8 = 5;
    const DISABLE: u8 = 6;
    const DONE: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\0\0\0\0\0\0\0";
    const UNKNOWN_COMMAND: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";

    /// Far more time than a test takes.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A process with a simulated runtime.
    struct Fixture {
        directory: tempfile::TempDir,
        map: Option<RequestedPerfMap>,
        commands: Receiver<u8>,
    }

    impl Fixture {
        fn new(
            started_unix_ns: u64,
            mut reply_to: impl FnMut(&Path, u8) -> Vec<u8> + Send + 'static,
        ) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
            let endpoint = Endpoint {
                root: Arc::new(RootDirectory::open(directory.path()).unwrap()),
                paths: vec!["/socket".into()],
                pid: Pid::own(),
                uid: rustix::process::geteuid().as_raw(),
            };
            let paths = vec!["/elsewhere/map".into(), "/map".into()];
            let map = RequestedPerfMap::new(endpoint, PerfMapPaths { paths, started_unix_ns });
            let (sender, commands) = channel();
            let file = directory.path().join("map");
            std::thread::spawn(move || {
                let mut open = Vec::new();
                for stream in listener.incoming() {
                    let mut stream: UnixStream = stream.unwrap();
                    let mut header = [0; 20];
                    stream.read_exact(&mut header).unwrap();
                    let reply = reply_to(&file, header[17]);
                    if sender.send(header[17]).is_err() {
                        return;
                    }
                    // The requester may have closed the connection.
                    let _ = stream.write_all(&reply);
                    open.push(stream);
                }
            });
            Self { directory, map: Some(map), commands }
        }

        fn map(&mut self) -> &mut RequestedPerfMap {
            self.map.as_mut().unwrap()
        }

        fn advance_until(&mut self, is_reached: impl Fn(&RequestState) -> bool) {
            let deadline = Instant::now() + TIMEOUT;
            while !is_reached(&self.map().state) {
                assert!(Instant::now() < deadline, "{:?}", self.map().state);
                self.map().advance();
            }
        }

        /// Takes one step at a time, so that no state is missed.
        fn step_until(&mut self, is_reached: fn(&RequestState) -> bool) {
            let deadline = Instant::now() + TIMEOUT;
            while !is_reached(&self.map().state) {
                assert!(Instant::now() < deadline, "{:?}", self.map().state);
                if let Some(next) = self.map().step().unwrap() {
                    self.map().state = next;
                }
            }
        }

        fn received_commands(&self) -> Vec<u8> {
            self.commands.try_iter().collect()
        }

        fn text(&self) -> Option<String> {
            fs::read_to_string(self.directory.path().join("map")).ok()
        }
    }

    fn version_reply(version: &str) -> Vec<u8> {
        let units =
            |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        let text = |text: &str| [&(text.len() as u32 + 1).to_le_bytes()[..], &units(text)].concat();
        let body = [vec![0; 24], text("a"), text("b"), text("c"), text("d"), text(version)].concat();
        [b"DOTNET_IPC_V1\0", &[20 + body.len() as u8, 0, 0xff, 0, 0, 0][..], &body].concat()
    }

    fn reply_of_runtime(map: &Path, command: u8) -> Vec<u8> {
        match command {
            VERSION => return version_reply("9.0.1+c8acea22"),
            ENABLE => fs::write(map, "begin ").unwrap(),
            DISABLE => fs::write(map, "begin end").unwrap(),
            _ => panic!("an unexpected command"),
        }
        DONE.to_vec()
    }

    #[test]
    fn a_map_is_removed_when_it_is_dropped() {
        let mut fixture = Fixture::new(0, reply_of_runtime);
        fixture.advance_until(|state| matches!(state, RequestState::Enabled));
        assert_eq!(fixture.text().as_deref(), Some("begin "));
        let deadline = Instant::now() + TIMEOUT;
        fixture.map().disable(deadline);
        fixture.map().finish(deadline);
        assert_eq!(fixture.text().as_deref(), Some("begin end"));
        drop(fixture.map.take());
        assert_eq!(fixture.text(), None);
        assert_eq!(fixture.commands.iter().take(3).collect::<Vec<_>>(), [VERSION, ENABLE, DISABLE]);
    }

    #[test]
    fn a_map_that_is_dropped_in_any_state_is_disabled_and_removed() {
        type IsReached = fn(&RequestState) -> bool;
        let states: [(IsReached, &[u8]); 4] = [
            (|_| true, &[]),
            (|state| matches!(state, RequestState::RequestingVersion(_)), &[VERSION]),
            (|state| matches!(state, RequestState::Enabling(_)), &[VERSION, ENABLE, DISABLE]),
            (|state| matches!(state, RequestState::Enabled), &[VERSION, ENABLE, DISABLE]),
        ];
        for (is_reached, expected) in states {
            let mut fixture = Fixture::new(0, reply_of_runtime);
            fixture.step_until(is_reached);
            drop(fixture.map.take());
            let received: Vec<_> = fixture.commands.iter().take(expected.len()).collect();
            assert_eq!(received, expected);
            assert_eq!(fixture.text(), None);
        }
    }

    #[test]
    fn an_existing_file_is_not_touched() {
        let mut fixture = Fixture::new(0, reply_of_runtime);
        fs::write(fixture.directory.path().join("map"), "existing").unwrap();
        fixture.advance_until(|state| matches!(state, RequestState::Finished));
        drop(fixture.map.take());
        assert_eq!(fixture.text().as_deref(), Some("existing"));
        assert_eq!(fixture.received_commands(), [VERSION]);
    }

    #[test]
    fn a_young_process_is_not_asked() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut fixture = Fixture::new(now.as_nanos() as u64, reply_of_runtime);
        fixture.map().advance();
        assert!(matches!(fixture.map().state, RequestState::Waiting));
        fixture.map().disable(Instant::now());
        drop(fixture.map.take());
        assert!(fixture.received_commands().is_empty());
    }

    #[test]
    fn an_error_or_a_malformed_reply_ends_the_request() {
        for replies in [
            [UNKNOWN_COMMAND.to_vec(), Vec::new()],
            [version_reply("nonsense"), Vec::new()],
            [DONE.to_vec(), Vec::new()],
            [vec![b'x'; 64], Vec::new()],
            [version_reply("8.0.30"), UNKNOWN_COMMAND.to_vec()],
            [version_reply("8.0.30"), vec![b'x'; 64]],
        ] {
            let mut fixture = Fixture::new(0, move |_, command| match command {
                VERSION => replies[0].clone(),
                ENABLE => replies[1].clone(),
                _ => DONE.to_vec(),
            });
            fixture.advance_until(|state| matches!(state, RequestState::Finished));
            drop(fixture.map.take());
            assert_eq!(fixture.text(), None);
        }
    }

    #[test]
    fn only_versions_without_the_deadlock_are_asked() {
        for version in ["8.0.30+ab", "9.0.0", "10.0.11", "10.1.0", "11.0.0-preview.7.1", "12.0"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["7.0.20", "3.1.23", "", "nonsense"] {
            assert!(matches!(check_version(version), Err(Obstacle::Old)), "{version}");
        }
        for version in ["10.0.0", "10.0.0-rc.1", "10.0.10+ab", "10"] {
            let obstacle = check_version(version).unwrap_err().to_string();
            assert!(obstacle.contains("lock up") && obstacle.contains(version), "{obstacle}");
        }
    }
}
