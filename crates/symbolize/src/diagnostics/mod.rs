//! Names of the methods that a .NET runtime compiles, from the runtime itself: each one listens at a socket for tools
//! that want to hear of its events. Nothing has to be set in the target for that, and nothing is written there.

mod known;
mod listener;
mod methods;
mod question;
#[cfg(feature = "capture")]
mod recording;
mod requested_map;
mod room;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use profiler_dotnet_symbols::managed::Tier;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use self::{
    known::Known,
    listener::{Listener, Report},
    requested_map::RequestedMap,
    socket::Endpoint,
};
pub use self::{known::RuntimeMethod, requested_map::MapPlaces, room::Room};
use profiler_processes::root_directory::RootDirectory;
use profiler_profile::Reason;

/// What a capture calls the recording of a process ([`RuntimeNames::recording`]).
#[cfg(feature = "capture")]
pub const RECORDING: &str = "runtime-methods.jsonl";

/// How much longer a report may take than the listener was told: it has to be put together.
const REPORT_TIME: Duration = Duration::from_millis(200);

/// What has to be known of a process to find and trust its runtime.
#[derive(Clone, Debug)]
pub struct RuntimeProcess {
    pub root: Arc<RootDirectory>,
    /// Where it keeps temporary files, in its root.
    pub directories: Vec<PathBuf>,
    /// In the profiler's pid namespace.
    pub pid: u32,
    /// In its innermost pid namespace.
    pub namespace_pid: u32,
    pub uid: u32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
    /// Where it puts a perf map, when it is to be asked for one.
    pub perf_map: Option<MapPlaces>,
}

/// Whether a process's runtime can be asked, found out without asking it anything; `None` where there is no socket.
pub fn reach(process: RuntimeProcess, until: Instant) -> Option<Result<(), Reason>> {
    let endpoint = Endpoint::of(process);
    endpoint.exists().then(|| endpoint.connect(until).map(drop).map_err(|error| trouble(&error)))
}

/// Why a runtime does not tell.
fn trouble(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::InvalidData => Reason::RuntimeRefused,
        io::ErrorKind::PermissionDenied => Reason::RuntimeNotReachable,
        io::ErrorKind::FileTooLarge => Reason::TooLarge,
        _ => Reason::RuntimeSilent,
    }
}

/// What one process's runtime says of its code.
#[derive(Debug)]
pub struct RuntimeNames {
    ear: Hearing,
    awaited: Option<Receiver<Report>>,
    perf_map: Option<RequestedMap>,
    known: Known,
}

/// What a stream tells when it comes in these pieces; the same, however it is cut.
#[cfg(fuzzing)]
pub fn heard_of(pieces: &[&[u8]]) -> impl PartialEq + std::fmt::Debug + use<> {
    let (mut decoder, mut heard) = (nettrace::Decoder::default(), methods::Heard::default());
    let all = pieces.iter().all(|piece| {
        let hear = |clock: Option<nettrace::Clock>, event: &nettrace::Event<'_>| {
            let since = clock.map_or(methods::Since::Ns(0), |clock| {
                methods::Since::Event(methods::TimeBase::new(clock, 0))
            });
            heard.hear(event, since);
        };
        decoder.feed(piece, hear).is_ok()
    });
    (all, decoder.dropped_events(), heard.methods, format!("{:?}", heard.names), heard.malformed_events)
}

/// A reply to a command, header and body.
#[cfg(fuzzing)]
pub fn read_reply(bytes: &[u8]) {
    let _ = ipc::missing_bytes(bytes);
    if let Ok(ipc::Reply::Done(body)) = ipc::reply(bytes) {
        let _ = (ipc::session(&body), ipc::version(&body));
    }
}

/// A recording; what is written of it reads the same.
#[cfg(all(fuzzing, feature = "capture"))]
pub fn read_recording(bytes: &[u8]) {
    let read = recording::read(bytes);
    let again = recording::read(&recording::write(&read));
    assert!(read.methods().eq(again.methods()));
}

#[derive(Debug)]
enum Hearing {
    /// There was no runtime yet.
    Nothing(Endpoint, Room),
    Listening(Listener),
    Over,
}

impl RuntimeNames {
    /// Nothing is asked before the first [`listen`](Self::listen).
    pub fn new(process: RuntimeProcess, room: Room) -> Self {
        let perf_map = process.perf_map.clone();
        let endpoint = Endpoint::of(process);
        let perf_map = perf_map.map(|places| RequestedMap::new(endpoint.clone(), places));
        Self { ear: Hearing::Nothing(endpoint, room), awaited: None, perf_map, known: Known::default() }
    }

    /// What was told when a capture was taken; there is nobody to be asked any more.
    #[cfg(feature = "capture")]
    pub fn recorded(text: &[u8]) -> Self {
        Self { ear: Hearing::Over, awaited: None, perf_map: None, known: recording::read(text) }
    }

    /// Sees to the perf map, where one was asked for.
    pub fn advance_perf_map(&mut self) {
        if let Some(map) = &mut self.perf_map {
            map.advance();
        }
    }

    /// Begins to listen, as soon as there is a runtime.
    pub fn listen(&mut self) {
        let Hearing::Nothing(endpoint, room) = &self.ear else { return };
        if !endpoint.exists() {
            return;
        }
        self.ear = match Listener::start(endpoint.clone(), room.clone()) {
            Ok(listener) => Hearing::Listening(listener),
            Err(error) => {
                log::warn!("failed to listen to the runtime of process {}: {error}", endpoint.pid);
                Hearing::Over
            }
        };
    }

    /// Whether it has a thread that listens.
    pub fn is_listening(&self) -> bool {
        matches!(self.ear, Hearing::Listening(_))
    }

    /// Asks for all that the runtime says up to now; the listening is over with the last time. What is there at `until`
    /// is what there is.
    pub fn ask(&mut self, is_last: bool, until: Instant) {
        if let Hearing::Listening(listener) = &self.ear {
            self.awaited = Some(listener.ask(is_last, until));
        }
        if let Some(map) = self.perf_map.as_mut().filter(|_| is_last) {
            map.turn_off(until);
        }
    }

    /// Takes what was asked for. After the last time the perf map is whole, and stays until this is dropped.
    pub fn settle(&mut self, until: Instant) {
        if let Some(awaited) = self.awaited.take() {
            let left = until.saturating_duration_since(Instant::now()) + REPORT_TIME;
            match awaited.recv_timeout(left) {
                Ok(report) => self.known.take(report),
                Err(_) => self.known.gaps.trouble = Some(Reason::RuntimeSilent),
            }
        }
        if let Some(map) = &mut self.perf_map {
            map.settle(until);
        }
    }

    /// The method whose code stood at `address` at `time_ns`.
    pub fn lookup(&self, address: u64, time_ns: u64) -> Option<RuntimeMethod> {
        self.known.lookup(address, time_ns)
    }

    /// Whether the code that stood at `address` at `time_ns` is a copy of an image's in memory.
    pub fn is_precompiled(&self, address: u64, time_ns: u64) -> bool {
        self.known.tier(address, time_ns) == Some(Tier::Precompiled)
    }

    /// See [`Known::epoch`].
    pub fn epoch(&self, time_ns: u64) -> u32 {
        self.known.epoch(time_ns)
    }

    /// Whether every method is known that there was at `time_ns`.
    pub fn has_all_of(&self, time_ns: u64) -> bool {
        self.known.gaps.has_all_of(time_ns)
    }

    /// Events that contradict themselves.
    pub fn malformed_events(&self) -> u64 {
        self.known.gaps.malformed_events
    }

    /// Events that are missing.
    pub fn dropped_events(&self) -> u64 {
        self.known.gaps.dropped_events
    }

    /// How much memory the names take.
    pub fn memory_bytes(&self) -> usize {
        self.known.memory_bytes()
    }

    /// Why an address has no name here; `None` where there is no runtime.
    pub fn reason(&self) -> Option<Reason> {
        match self.ear {
            Hearing::Nothing(..) => None,
            _ if self.known.gaps.truncated => Some(Reason::TooLarge),
            _ => Some(self.known.gaps.trouble.unwrap_or(Reason::NoJitEntry)),
        }
    }

    /// For a capture, from which [`recorded`](Self::recorded) knows the same; `None` where there is no runtime.
    #[cfg(feature = "capture")]
    pub fn recording(&self) -> Option<Vec<u8>> {
        match self.ear {
            Hearing::Nothing(..) => None,
            Hearing::Listening(_) | Hearing::Over => Some(recording::write(&self.known)),
        }
    }
}
