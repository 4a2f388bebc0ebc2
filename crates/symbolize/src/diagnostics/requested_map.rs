//! A perf map that a runtime is asked to write, for the names of its stubs: switched on, off again, and removed.
//!
//! Each step is taken as far as it goes without waiting. A runtime answers to being switched on when it has written
//! all methods that it has.

use profiler_dotnet_symbols::eventpipe::ipc::{self, Reply};
use std::{
    fmt, io,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{question::Question, socket::Endpoint};

/// Runtimes that are asked while they start crash (dotnet/runtime issues 122472 and 123438).
const LEAST_AGE: Duration = Duration::from_secs(5);

/// How long it takes to send a command: who names stacks waits for that.
const ASK_TIME: Duration = Duration::from_millis(20);

/// How long a runtime is waited for when nobody wants to read its map.
const FAREWELL_TIME: Duration = Duration::from_secs(3);

/// Where a runtime would put its perf map.
#[derive(Clone, Debug)]
pub struct MapPlaces {
    /// The files, in the target's root; it writes some of them.
    pub paths: Vec<PathBuf>,
    /// When the process started, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
}

/// A perf map of one process. Dropped, it is switched off and gone.
#[derive(Debug)]
pub(super) struct RequestedMap {
    endpoint: Endpoint,
    places: MapPlaces,
    state: State,
    /// The runtime was asked, so that a file that is there is of our making: none was there before.
    was_asked: bool,
    /// The runtime may be writing.
    may_be_on: bool,
}

#[derive(Debug)]
enum State {
    /// The runtime is not there yet, or too young.
    Waiting,
    AskedForVersion(Question),
    TurningOn(Question),
    On,
    TurningOff(Question),
    Over,
}

/// Why a runtime is not asked for a map, or does not write one.
#[derive(Debug)]
enum Obstacle {
    /// It would not understand.
    Old,
    /// It can lock up for ever (dotnet/runtime issue 128401).
    Deadlock(String),
    Young,
    /// Somebody else wants it, or wanted it.
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
            Self::Exists(path) => write!(f, "`{}` is there already", path.display()),
            Self::Refused => f.write_str("its runtime refuses"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl RequestedMap {
    /// Nothing is asked before the first [`advance`](Self::advance).
    pub(super) fn new(endpoint: Endpoint, places: MapPlaces) -> Self {
        Self { endpoint, places, state: State::Waiting, was_asked: false, may_be_on: false }
    }

    /// Takes the next steps until the map is on, as far as they go at once.
    pub(super) fn advance(&mut self) {
        loop {
            match self.step() {
                Ok(Some(next)) => self.state = next,
                Ok(None) => return,
                Err(obstacle) => return self.give_up(&obstacle),
            }
        }
    }

    /// Switches it off; [`settle`](Self::settle) waits for the answer.
    pub(super) fn turn_off(&mut self, until: Instant) {
        match self.state {
            State::Waiting if self.endpoint.exists() => self.give_up(&Obstacle::Young),
            State::AskedForVersion(_) => self.give_up(&io::Error::from(io::ErrorKind::TimedOut).into()),
            _ => self.state = State::Over,
        }
        if self.may_be_on {
            match Question::ask(&self.endpoint, &ipc::disable_perf_map(), until) {
                Ok(question) => self.state = State::TurningOff(question),
                Err(error) => log::info!("process {} ends its perf map itself: {error}", self.endpoint.pid),
            }
        }
    }

    /// Waits until it is off: then all that was written is in the file.
    pub(super) fn settle(&mut self, until: Instant) {
        let State::TurningOff(question) = &mut self.state else { return };
        match question.reply(until, None) {
            Ok(None) => {
                log::warn!("process {} did not say that its perf map is whole", self.endpoint.pid);
            }
            // Who is gone writes no more either.
            Ok(Some(_)) | Err(_) => self.may_be_on = false,
        }
        self.state = State::Over;
    }

    /// The state after this one, where it is reached.
    fn step(&mut self) -> Result<Option<State>, Obstacle> {
        let now = Instant::now();
        let soon = now + ASK_TIME;
        Ok(match &mut self.state {
            State::Waiting if self.places.age() < LEAST_AGE || !self.endpoint.exists() => None,
            State::Waiting => {
                Some(State::AskedForVersion(Question::ask(&self.endpoint, &ipc::process_info(), soon)?))
            }
            State::AskedForVersion(question) => match question.reply(now, None)? {
                None => None,
                Some(Reply::Refused) => return Err(Obstacle::Old),
                Some(Reply::Done(body)) => {
                    let version = ipc::version(&body).map_err(|_| Obstacle::Refused)?;
                    check_version(&version)?;
                    self.check_places()?;
                    (self.was_asked, self.may_be_on) = (true, true);
                    Some(State::TurningOn(Question::ask(&self.endpoint, &ipc::enable_perf_map(), soon)?))
                }
            },
            State::TurningOn(question) => match question.reply(now, None)? {
                None => None,
                Some(Reply::Refused) => {
                    self.may_be_on = false;
                    return Err(Obstacle::Refused);
                }
                Some(Reply::Done(_)) => Some(State::On),
            },
            State::On | State::TurningOff(_) | State::Over => None,
        })
    }

    /// A map that is there would be written anew.
    fn check_places(&self) -> Result<(), Obstacle> {
        match self.places.paths.iter().find(|path| self.endpoint.root.exists(path)) {
            Some(path) => Err(Obstacle::Exists(path.clone())),
            None => Ok(()),
        }
    }

    fn remove(&self) {
        let Endpoint { root, pid, uid, .. } = &self.endpoint;
        for path in &self.places.paths {
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
        self.state = State::Over;
    }
}

impl Drop for RequestedMap {
    fn drop(&mut self) {
        if self.may_be_on {
            let until = Instant::now() + FAREWELL_TIME;
            self.turn_off(until);
            self.settle(until);
        }
        if self.was_asked {
            self.remove();
        }
    }
}

impl MapPlaces {
    fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_nanos(self.started_unix_ns))
    }
}

/// Whether a runtime writes perf maps when it is asked, and lives.
fn check_version(version: &str) -> Result<(), Obstacle> {
    /// The first that knows the command.
    const FIRST: u32 = 8;
    /// The first that surely has the fix of the deadlock (dotnet/runtime pull request 129142).
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

    use super::*;
    use profiler_processes::root_directory::RootDirectory;

    const VERSION: u8 = 4;
    const ENABLE: u8 = 5;
    const DISABLE: u8 = 6;
    const DONE: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\0\0\0\0\0\0\0";
    const UNKNOWN_COMMAND: &[u8] = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";

    /// Far more than any of this takes.
    const DEADLINE: Duration = Duration::from_secs(20);

    /// A process with a runtime of the test's own making.
    struct Scene {
        directory: tempfile::TempDir,
        map: Option<RequestedMap>,
        commands: Receiver<u8>,
    }

    impl Scene {
        fn new(started_unix_ns: u64, mut answer: impl FnMut(&Path, u8) -> Vec<u8> + Send + 'static) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
            let endpoint = Endpoint {
                root: Arc::new(RootDirectory::open(directory.path()).unwrap()),
                paths: vec!["/socket".into()],
                pid: std::process::id(),
                uid: rustix::process::geteuid().as_raw(),
            };
            let paths = vec!["/elsewhere/map".into(), "/map".into()];
            let map = RequestedMap::new(endpoint, MapPlaces { paths, started_unix_ns });
            let (sender, commands) = channel();
            let file = directory.path().join("map");
            std::thread::spawn(move || {
                let mut open = Vec::new();
                for stream in listener.incoming() {
                    let mut stream: UnixStream = stream.unwrap();
                    let mut header = [0; 20];
                    stream.read_exact(&mut header).unwrap();
                    let reply = answer(&file, header[17]);
                    if sender.send(header[17]).is_err() {
                        return;
                    }
                    // Who asked may be gone.
                    let _ = stream.write_all(&reply);
                    open.push(stream);
                }
            });
            Self { directory, map: Some(map), commands }
        }

        fn map(&mut self) -> &mut RequestedMap {
            self.map.as_mut().unwrap()
        }

        fn advance_until(&mut self, is_there: impl Fn(&State) -> bool) {
            let deadline = Instant::now() + DEADLINE;
            while !is_there(&self.map().state) {
                assert!(Instant::now() < deadline, "{:?}", self.map().state);
                self.map().advance();
            }
        }

        /// One step at a time, so that no moment is missed.
        fn step_until(&mut self, is_there: fn(&State) -> bool) {
            let deadline = Instant::now() + DEADLINE;
            while !is_there(&self.map().state) {
                assert!(Instant::now() < deadline, "{:?}", self.map().state);
                if let Some(next) = self.map().step().unwrap() {
                    self.map().state = next;
                }
            }
        }

        fn heard(&self) -> Vec<u8> {
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

    fn good_runtime(map: &Path, command: u8) -> Vec<u8> {
        match command {
            VERSION => return version_reply("9.0.1+c8acea22"),
            ENABLE => fs::write(map, "begin ").unwrap(),
            DISABLE => fs::write(map, "begin end").unwrap(),
            _ => panic!("an unexpected command"),
        }
        DONE.to_vec()
    }

    #[test]
    fn a_map_is_on_until_it_is_off_and_stays_until_it_was_read() {
        let mut scene = Scene::new(0, good_runtime);
        scene.advance_until(|state| matches!(state, State::On));
        assert_eq!(scene.text().as_deref(), Some("begin "));
        let until = Instant::now() + DEADLINE;
        scene.map().turn_off(until);
        scene.map().settle(until);
        assert_eq!(scene.text().as_deref(), Some("begin end"));
        drop(scene.map.take());
        assert_eq!(scene.text(), None);
        assert_eq!(scene.commands.iter().take(3).collect::<Vec<_>>(), [VERSION, ENABLE, DISABLE]);
    }

    #[test]
    fn dropped_at_any_moment_it_leaves_neither_a_file_nor_a_map_that_is_on() {
        type Moment = fn(&State) -> bool;
        let moments: [(Moment, &[u8]); 4] = [
            (|_| true, &[]),
            (|state| matches!(state, State::AskedForVersion(_)), &[VERSION]),
            (|state| matches!(state, State::TurningOn(_)), &[VERSION, ENABLE, DISABLE]),
            (|state| matches!(state, State::On), &[VERSION, ENABLE, DISABLE]),
        ];
        for (moment, expected) in moments {
            let mut scene = Scene::new(0, good_runtime);
            scene.step_until(moment);
            drop(scene.map.take());
            let heard: Vec<_> = scene.commands.iter().take(expected.len()).collect();
            assert_eq!(heard, expected);
            assert_eq!(scene.text(), None);
        }
    }

    #[test]
    fn a_map_that_was_there_before_is_not_touched() {
        let mut scene = Scene::new(0, good_runtime);
        fs::write(scene.directory.path().join("map"), "another's").unwrap();
        scene.advance_until(|state| matches!(state, State::Over));
        drop(scene.map.take());
        assert_eq!(scene.text().as_deref(), Some("another's"));
        assert_eq!(scene.heard(), [VERSION]);
    }

    #[test]
    fn a_young_process_is_not_asked() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut scene = Scene::new(now.as_nanos() as u64, good_runtime);
        scene.map().advance();
        assert!(matches!(scene.map().state, State::Waiting));
        scene.map().turn_off(Instant::now());
        drop(scene.map.take());
        assert!(scene.heard().is_empty());
    }

    #[test]
    fn a_runtime_that_refuses_or_answers_garbage_is_left_alone() {
        for answers in [
            [UNKNOWN_COMMAND.to_vec(), Vec::new()],
            [version_reply("nonsense"), Vec::new()],
            [DONE.to_vec(), Vec::new()],
            [vec![b'x'; 64], Vec::new()],
            [version_reply("8.0.30"), UNKNOWN_COMMAND.to_vec()],
            [version_reply("8.0.30"), vec![b'x'; 64]],
        ] {
            let mut scene = Scene::new(0, move |_, command| match command {
                VERSION => answers[0].clone(),
                ENABLE => answers[1].clone(),
                _ => DONE.to_vec(),
            });
            scene.advance_until(|state| matches!(state, State::Over));
            drop(scene.map.take());
            assert_eq!(scene.text(), None);
        }
    }

    #[test]
    fn only_runtimes_that_live_with_a_map_are_asked() {
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
