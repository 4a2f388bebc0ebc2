//! Names of the methods that a .NET runtime compiles, from the runtime itself: each one listens at a socket for tools
//! that want to hear of its events. Nothing has to be set in the target for that, and nothing is written there.

mod bytes;
mod ipc;
mod listener;
mod methods;
mod nettrace;
mod room;
mod session;
mod socket;
#[cfg(test)]
mod test_stream;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

pub(crate) use self::room::Room;
use self::{
    listener::{Listener, Report},
    socket::Endpoint,
};
use super::{
    code_map::CodeMap,
    managed::Tier,
    names::{Name, Names},
};
use crate::{process::root::Root, profile::Reason};

/// How much longer a report may take than the listener was told: it has to be put together.
const REPORT_TIME: Duration = Duration::from_millis(200);

/// What has to be known of a process to find and trust its runtime.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeProcess {
    pub(crate) root: Arc<Root>,
    /// Where it keeps temporary files, in its root.
    pub(crate) directories: Vec<PathBuf>,
    /// In the profiler's pid namespace.
    pub(crate) pid: u32,
    /// In its innermost pid namespace.
    pub(crate) namespace_pid: u32,
    pub(crate) uid: u32,
    /// Clock ticks from boot to its start.
    pub(crate) start_ticks: u64,
}

/// Whether a process's runtime can be asked, found out without asking it anything; `None` where there is no socket.
pub(crate) fn reach(process: RuntimeProcess, until: Instant) -> Option<Result<(), Reason>> {
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
pub(crate) struct RuntimeNames {
    endpoint: Endpoint,
    room: Room,
    ear: Hearing,
    awaited: Option<Receiver<Report>>,
    code: CodeMap<Method>,
    names: Names,
    modules: HashMap<u64, String>,
    malformed_events: u64,
    dropped_events: u64,
    truncated: bool,
    trouble: Option<Reason>,
}

/// What a stream tells when it comes in these pieces; the same, however it is cut.
#[cfg(fuzzing)]
pub(crate) fn heard_of(pieces: &[&[u8]]) -> impl PartialEq + std::fmt::Debug + use<> {
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
pub(crate) fn read_reply(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk() else { return };
    if let Ok(body_bytes) = ipc::body_bytes(header) {
        let _ = ipc::reply(header, &body[..body.len().min(body_bytes)]);
    }
}

#[derive(Debug)]
enum Hearing {
    /// There was no runtime yet.
    Nothing,
    Listening(Listener),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Method {
    module: u64,
    tier: Tier,
    /// Without its module.
    name: Name,
}

/// What a runtime says of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The method with its module.
    pub(crate) name: String,
    pub(crate) tier: Tier,
    /// Since when it is there.
    pub(crate) exists_from_ns: u64,
}

impl RuntimeNames {
    /// Nothing is asked before the first [`listen`](Self::listen).
    pub(crate) fn new(process: RuntimeProcess, room: Room) -> Self {
        Self {
            endpoint: Endpoint::of(process),
            room,
            ear: Hearing::Nothing,
            awaited: None,
            code: CodeMap::default(),
            names: Names::default(),
            modules: HashMap::new(),
            malformed_events: 0,
            dropped_events: 0,
            truncated: false,
            trouble: None,
        }
    }

    /// Begins to listen, as soon as there is a runtime.
    pub(crate) fn listen(&mut self) {
        if !matches!(self.ear, Hearing::Nothing) || !self.endpoint.exists() {
            return;
        }
        self.ear = match Listener::start(self.endpoint.clone(), self.room.clone()) {
            Ok(listener) => Hearing::Listening(listener),
            Err(error) => {
                log::warn!("failed to listen to the runtime of process {}: {error}", self.endpoint.pid);
                Hearing::Over
            }
        };
    }

    /// Whether it has a thread that listens.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.ear, Hearing::Listening(_))
    }

    /// Asks for all that the runtime says up to now; the listening is over with the last time. What is there at `until`
    /// is what there is.
    pub(crate) fn ask(&mut self, is_last: bool, until: Instant) {
        if let Hearing::Listening(listener) = &self.ear {
            self.awaited = Some(listener.ask(is_last, until));
        }
    }

    /// Takes what was asked for.
    pub(crate) fn settle(&mut self, until: Instant) {
        let Some(awaited) = self.awaited.take() else { return };
        let left = until.saturating_duration_since(Instant::now()) + REPORT_TIME;
        match awaited.recv_timeout(left) {
            Ok(report) => self.take(report),
            Err(_) => self.trouble = Some(Reason::RuntimeSilent),
        }
    }

    /// The method whose code stood at `address` at `time_ns`.
    pub(crate) fn lookup(&self, address: u64, time_ns: u64) -> Option<Told> {
        let entry = self.code.lookup(address, time_ns)?;
        let name = self.names.get(entry.payload.name);
        let name = match self.modules.get(&entry.payload.module) {
            Some(module) => format!("{module}!{name}"),
            None => name.to_owned(),
        };
        Some(Told { name, tier: entry.payload.tier, exists_from_ns: entry.exists_from_ns })
    }

    /// Whether the code that stood at `address` at `time_ns` is a copy of an image's in memory.
    pub(crate) fn is_precompiled(&self, address: u64, time_ns: u64) -> bool {
        self.code.lookup(address, time_ns).is_some_and(|entry| entry.payload.tier == Tier::Precompiled)
    }

    /// See [`CodeMap::epoch`].
    pub(crate) fn epoch(&self, time_ns: u64) -> u32 {
        self.code.epoch(time_ns)
    }

    /// Events that contradict themselves.
    pub(crate) fn malformed_events(&self) -> u64 {
        self.malformed_events
    }

    /// Events that are missing.
    pub(crate) fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    /// How much memory the names take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let modules = self.modules.values().map(|name| name.len() + size_of::<(u64, String)>());
        self.code.memory_bytes() + self.names.memory_bytes() + modules.sum::<usize>()
    }

    /// Why an address has no name here; `None` where there is no runtime.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.ear {
            Hearing::Nothing => None,
            _ if self.truncated => Some(Reason::TooLarge),
            _ => Some(self.trouble.unwrap_or(Reason::NoJitEntry)),
        }
    }

    fn take(&mut self, report: Report) {
        let Report { mut heard, dropped_events, trouble } = report;
        heard.methods.sort_by_key(|method| method.from_ns);
        for method in &heard.methods {
            let name = heard.names.get(method.name);
            let size = u64::from(method.size);
            let known = self.code.newest_exactly(method.start, size).map(|entry| entry.payload);
            let is_known = known
                .is_some_and(|known| known.module == method.module && self.names.get(known.name) == name);
            if is_known {
                continue;
            }
            let name = self.names.push(name.as_bytes());
            let taken = name.is_some_and(|name| {
                let payload = Method { module: method.module, tier: method.tier, name };
                self.code.insert(method.start, size, method.from_ns, payload).is_ok()
            });
            self.truncated |= !taken;
        }
        self.modules.extend(std::mem::take(&mut heard.modules));
        self.malformed_events += heard.malformed_events;
        self.dropped_events += dropped_events;
        self.truncated |= heard.truncated;
        self.trouble = trouble.or(self.trouble);
    }
}
