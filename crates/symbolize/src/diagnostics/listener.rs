//! Receives the events of one runtime on a thread of its own, so that symbolization never waits for the runtime.
//!
//! The thread opens a session for methods that are compiled from now on. Then it opens a second session and stops it at
//! once: that one ends with a rundown of all existing methods. So all methods are known from the beginning, also when
//! the process exits before the profile ends, and the end of a profile waits only for what the runtime has not written
//! yet. Where events were dropped, another rundown replaces them.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    ipc::{CollectCommand, SessionConfig},
    nettrace::{Clock, Decoder, Event},
};
use profiler_profile::Reason;

use super::{
    clock::TimeBase,
    failure_reason,
    memory_budget::MemoryBudget,
    method_events::{CodeTime, MethodEvents},
    session::Session,
    socket::{CancellableDeadline, Endpoint, Received},
};

/// Keywords of the runtime provider (`ClrEtwAll.man`): modules (Loader), methods that are jitted (Jit), precompiled
/// methods that are used (NGen).
const LOADER: u64 = 0x8;
const JIT: u64 = 0x10;
const NGEN: u64 = 0x20;
/// Keyword of the rundown provider: the rundown at the end of a session.
const END_RUNDOWN: u64 = 0x100;
/// The level of events with names.
const VERBOSE: u32 = 5;

/// The session for methods that are compiled from now on. The listener empties the buffer continuously.
const METHOD_SESSION: SessionConfig = SessionConfig {
    buffer_mib: 32,
    rundown_keywords: 0,
    provider: RUNTIME_PROVIDER,
    keywords: LOADER | JIT | NGEN,
    level: VERBOSE,
};

/// Sessions for the methods that exist, with a small and a large buffer. Their provider does not exist, so they have the
/// events of the rundown alone. All of these must fit into the buffer, which is memory of the target.
const RUNDOWN_SESSIONS: [SessionConfig; 2] = [rundown_session(64), rundown_session(256)];

const fn rundown_session(buffer_mib: u32) -> SessionConfig {
    SessionConfig {
        buffer_mib,
        rundown_keywords: LOADER | JIT | NGEN | END_RUNDOWN,
        provider: "Microsoft-DotNETCore-None",
        keywords: 0,
        level: 0,
    }
}

/// Time for a rundown while no deadline is set. That of a very large program takes minutes, and blocks its JIT compiler.
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Duration of a method session without reports: practically unlimited.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Bytes that are read of one session. A program that compiles 6,000 methods a second writes 3 MB a second.
const MAX_SESSION_BYTES: u64 = 8 << 30;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Age of the oldest event that a runtime has not written yet. It writes every 100 ms.
const MAX_UNWRITTEN_NS: u64 = 200_000_000;

/// Time for stopping a session whose events are not needed.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The events since the last report.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) events: MethodEvents,
    /// Events that the runtime dropped, and that no rundown replaced.
    pub(super) dropped_events: u64,
    /// Why events may be missing.
    pub(super) failure: Option<Reason>,
    /// The time before which all methods were reported (`CLOCK_MONOTONIC`).
    pub(super) complete_until_ns: u64,
}

impl Report {
    fn new(budget: &MemoryBudget) -> Self {
        Self { events: MethodEvents::new(budget), ..Self::default() }
    }
}

#[derive(Debug)]
struct ReportRequest {
    is_last: bool,
    reply: Sender<Report>,
}

/// A thread that receives events. Dropping it stops its session.
#[derive(Debug)]
pub(super) struct Listener {
    deadline: Arc<CancellableDeadline>,
    requests: Option<Sender<ReportRequest>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts the thread.
    pub(super) fn start(endpoint: Endpoint, budget: MemoryBudget) -> io::Result<Self> {
        let deadline = Arc::new(CancellableDeadline::new()?);
        let (requests, received) = channel();
        let listener = ListenerThread {
            endpoint,
            deadline: Arc::clone(&deadline),
            command: CollectCommand::CollectTracing4,
            report: Report::new(&budget),
            budget,
            complete_until_ns: 0,
        };
        let thread = std::thread::Builder::new().name("listener".to_owned());
        let thread = thread.spawn(move || listener.run(&received))?;
        Ok(Self { deadline, requests: Some(requests), thread: Some(thread) })
    }

    /// Requests a report, which is sent shortly before the deadline at the latest. The thread ends after the last one.
    pub(super) fn request_report(&self, is_last: bool, deadline: Instant) -> Receiver<Report> {
        let (reply, report) = channel();
        if let Some(requests) = &self.requests {
            // If the thread has ended, the receiver of the report returns an error.
            let _ = requests.send(ReportRequest { is_last, reply });
            self.deadline.set(deadline);
        }
        report
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.requests = None;
        self.deadline.set_permanently(Instant::now() + STOP_TIMEOUT);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::warn!("a thread that listens to a runtime panicked");
        }
    }
}

/// A session and its decoder.
struct Stream {
    session: Session,
    decoder: Decoder,
    opened_ns: u64,
    received_bytes: u64,
}

/// Why reading a stream ended without an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    EndOfStream,
    /// The deadline was set: a report is requested, or the listener is dropped.
    Cancelled,
}

struct ListenerThread {
    endpoint: Endpoint,
    deadline: Arc<CancellableDeadline>,
    /// The newest version that the runtime knows.
    command: CollectCommand,
    report: Report,
    budget: MemoryBudget,
    /// As in [`Report`].
    complete_until_ns: u64,
}

impl ListenerThread {
    fn run(mut self, requests: &Receiver<ReportRequest>) {
        let mut methods = self.open_stream(&METHOD_SESSION);
        if methods.is_some() {
            self.request_rundown(0);
        }
        loop {
            let mut dropped_from_ns = None;
            if let Some(stream) = &mut methods {
                let end =
                    self.read(stream, Instant::now() + SESSION_TIMEOUT, true, None, &mut dropped_from_ns);
                if !matches!(end, Ok(ReadEnd::Cancelled)) {
                    self.record_failure(end.err());
                    methods = None;
                    self.exclude_unwritten_events();
                }
            }
            let request = requests.recv().ok();
            let continues = request.as_ref().is_some_and(|request| !request.is_last);
            // The next session opens before this one stops, so that no event is missed between them.
            let next = if continues { self.open_stream(&METHOD_SESSION) } else { None };
            if let Some(stream) = methods {
                self.stop(stream, &mut dropped_from_ns);
            }
            let Some(request) = request else { return };
            if let Some(from_ns) = dropped_from_ns {
                self.request_rundown(from_ns);
            }
            let mut report = std::mem::replace(&mut self.report, Report::new(&self.budget));
            report.complete_until_ns = self.complete_until_ns;
            if continues {
                self.deadline.clear();
            }
            // The requester may have stopped waiting.
            let _ = request.reply.send(report);
            if !continues {
                return;
            }
            methods = next;
        }
    }

    fn open_stream(&mut self, config: &SessionConfig) -> Option<Stream> {
        match Session::open(&self.endpoint, config, self.command, &self.deadline) {
            Ok(session) => {
                self.command = session.command;
                let decoder = Decoder::default();
                Some(Stream { session, decoder, opened_ns: monotonic_ns(), received_bytes: 0 })
            }
            Err(error) => {
                self.record_failure(Some(error));
                None
            }
        }
    }

    /// Adds all methods that exist, as existing from `from_ns` on, and takes them for all methods up to now: few methods
    /// are unloaded before.
    fn request_rundown(&mut self, from_ns: u64) {
        self.complete_until_ns = 0;
        for config in RUNDOWN_SESSIONS {
            let Some(stream) = self.open_stream(&config) else { return };
            match self.read_rundown(stream, from_ns) {
                Ok(0) => {
                    self.complete_until_ns = u64::MAX;
                    return;
                }
                Ok(dropped_events) => self.report.dropped_events = dropped_events,
                Err(error) => return self.record_failure(Some(error)),
            }
        }
    }

    /// Stops a session and reads its rundown. Returns the number of dropped events.
    fn read_rundown(&mut self, mut stream: Stream, from_ns: u64) -> io::Result<u64> {
        let _stop_command = stream.session.send_stop(&self.endpoint, &self.deadline)?;
        let deadline = Instant::now() + RUNDOWN_TIMEOUT;
        self.read(&mut stream, deadline, false, Some(from_ns), &mut None)?;
        if !stream.decoder.is_ended() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let dropped_events = stream.decoder.dropped_events();
        if dropped_events == 0 {
            self.report.dropped_events = 0;
        }
        Ok(dropped_events)
    }

    fn stop(&mut self, mut stream: Stream, dropped_from_ns: &mut Option<u64>) {
        let stop_command = stream.session.send_stop(&self.endpoint, &self.deadline);
        let deadline = Instant::now() + STOP_TIMEOUT;
        let rest = stop_command
            .and_then(|_stop_command| self.read(&mut stream, deadline, false, None, dropped_from_ns));
        if !stream.decoder.is_ended() {
            self.exclude_unwritten_events();
        }
        self.record_failure(rest.err());
    }

    /// Ends the complete time before the events that a runtime had not written when its session broke off.
    fn exclude_unwritten_events(&mut self) {
        let written_ns = monotonic_ns().saturating_sub(MAX_UNWRITTEN_NS);
        self.complete_until_ns = self.complete_until_ns.min(written_ns);
    }

    /// Reads to the end of the stream, or until the deadline is set if `is_cancellable`. Methods exist from `from_ns` on,
    /// or from the times of their events. Sets `dropped_from_ns` to the time before the first dropped event.
    fn read(
        &mut self,
        stream: &mut Stream,
        mut deadline: Instant,
        is_cancellable: bool,
        from_ns: Option<u64>,
        dropped_from_ns: &mut Option<u64>,
    ) -> io::Result<ReadEnd> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut is_deadline_set = false;
        while !stream.decoder.is_ended() {
            let cancellable = (!is_deadline_set).then_some(&*self.deadline);
            match stream.session.connection.receive(&mut buffer, deadline, cancellable)? {
                Received::End => return Ok(ReadEnd::EndOfStream),
                Received::Cancelled if is_cancellable => return Ok(ReadEnd::Cancelled),
                Received::Cancelled => {
                    is_deadline_set = true;
                    deadline = self.deadline.get().map_or(deadline, |earlier| earlier.min(deadline));
                }
                Received::Bytes(count) => {
                    stream.received_bytes += count as u64;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    self.decode(stream, bytes, from_ns, dropped_from_ns)?;
                }
            }
        }
        Ok(ReadEnd::EndOfStream)
    }

    fn decode(
        &mut self,
        stream: &mut Stream,
        bytes: &[u8],
        from_ns: Option<u64>,
        dropped_from_ns: &mut Option<u64>,
    ) -> io::Result<()> {
        let (events, opened_ns) = (&mut self.report.events, stream.opened_ns);
        let before_ns =
            events.methods.last().map_or(opened_ns, |method| method.exists_from_ns.max(opened_ns));
        let on_event = |clock: Option<Clock>, event: &Event<'_>| {
            let base = clock.map(|clock| TimeBase::new(clock, opened_ns));
            let code_time = match (from_ns, base) {
                (None, Some(base)) => CodeTime::OfEvent(base),
                (from_ns, _) => CodeTime::Ns(from_ns.unwrap_or(opened_ns)),
            };
            events.add(event, code_time);
        };
        stream.decoder.feed(bytes, on_event).map_err(|_| io::ErrorKind::InvalidData)?;
        if stream.decoder.dropped_events() > 0 {
            dropped_from_ns.get_or_insert(before_ns);
        }
        if stream.received_bytes > MAX_SESSION_BYTES {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            Ok(())
        }
    }

    /// Keeps the reason of the first failure.
    fn record_failure(&mut self, error: Option<io::Error>) {
        let Some(error) = error else { return };
        log::info!("the .NET runtime of process {} did not report all methods: {error}", self.endpoint.pid);
        self.report.failure.get_or_insert(failure_reason(&error));
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
