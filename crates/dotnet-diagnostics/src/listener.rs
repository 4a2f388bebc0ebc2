//! Receives the events of one runtime on a thread of its own, so that symbolization never waits for the runtime.
//!
//! The thread opens a session for methods that are compiled from now on. Then it opens a second session and stops it at
//! once: that one ends with a rundown of all existing methods. So all methods are known from the beginning, also when
//! the process exits before the profile ends, and the end of a profile waits only for what the runtime has not written
//! yet. Where events were dropped, another rundown replaces them.
//!
//! Before .NET 5, the end of a rundown can block the runtime for ever ([`Session::rundown_can_block`]).
//! There the rundown waits for a pause of the JIT compiler, or for the end of a profile.
//!
//! A runtime takes 100 ms to stop a session. So the end of a profile first requests the events that were received, and the
//! rest only if a sampled method is missing.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    ipc::{CollectCommand, ProviderConfig, SessionConfig},
};
use profiler_processes::{Pid, monotonic_time};

use super::{
    method_events::EventOptions,
    report::{Report, ReportScope},
    runtime_process::failure_reason,
    runtime_thread::RuntimeThread,
    session::Session,
    socket::{CancellableDeadline, Endpoint, Received},
    stream::{MAX_UNWRITTEN, Stream},
};

/// Keywords of the runtime provider (`ClrEtwAll.man`): modules (Loader), methods that are jitted (Jit), precompiled
/// methods that are used (NGen).
const LOADER: u64 = 0x8;
const JIT: u64 = 0x10;
const NGEN: u64 = 0x20;
/// Keyword of the rundown provider: the rundown at the end of a session.
const END_RUNDOWN: u64 = 0x100;
/// Keywords of a rundown of all methods and modules.
pub(super) const RUNDOWN_KEYWORDS: u64 = LOADER | JIT | NGEN | END_RUNDOWN;
/// The level of events with names.
const VERBOSE: u32 = 5;

/// The session for methods that are compiled from now on. The listener empties the buffer continuously.
const METHOD_SESSION: SessionConfig<'static> = SessionConfig {
    buffer_mib: 32,
    rundown_keywords: 0,
    collects_stacks: false,
    providers: &[ProviderConfig {
        name: RUNTIME_PROVIDER,
        keywords: LOADER | JIT | NGEN,
        level: VERBOSE,
        filter: "",
        events: &[],
    }],
};

/// Sessions for the methods that exist, with a small and a large buffer. Their provider does not exist, so they have the
/// events of the rundown alone. All of these must fit into the buffer, which is memory of the target.
const RUNDOWN_SESSIONS: [SessionConfig<'static>; 2] = [rundown_session(64), rundown_session(256)];

const fn rundown_session(buffer_mib: u32) -> SessionConfig<'static> {
    SessionConfig {
        buffer_mib,
        rundown_keywords: RUNDOWN_KEYWORDS,
        collects_stacks: false,
        providers: &[ProviderConfig {
            name: "Microsoft-DotNETCore-None",
            keywords: 0,
            level: 0,
            filter: "",
            events: &[],
        }],
    }
}

/// The time without an event of a method session after which the JIT compiler pauses. A runtime writes events every 100 ms.
const COMPILER_PAUSE: Duration = Duration::from_millis(200);

/// The bytes of a method session in that time up to which a rundown is requested at the end of a profile without a pause. A runtime
/// that compiles 3,000 methods a second writes about as many.
const MAX_COMPILER_BYTES: u64 = 384 << 10;

/// Time for a rundown while no deadline is set. That of a very large program takes minutes, and blocks its JIT compiler.
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Duration of a method session without reports: practically unlimited.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Bytes that are read at once.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Time for stopping a session.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Reads of a session for a report of the received events. One read takes more than a runtime usually writes at once.
const MAX_DRAIN_READS: usize = 64;

#[derive(Debug)]
struct ReportRequest {
    scope: ReportScope,
    reply: Sender<Report>,
}

/// A thread that receives events. Dropping it stops its session, and waits for that no longer than for an honest runtime.
#[derive(Debug)]
pub(super) struct Listener {
    thread: RuntimeThread,
    requests: Option<Sender<ReportRequest>>,
    /// When the thread was notified to stop.
    stopping: Option<Instant>,
}

impl Listener {
    /// Starts the thread.
    pub(super) fn start(endpoint: Endpoint, options: EventOptions) -> io::Result<Self> {
        let (requests, received) = channel();
        let thread = RuntimeThread::start("listener", endpoint.pid, move |deadline| {
            let listener = ListenerThread {
                endpoint,
                deadline,
                command: CollectCommand::CollectTracing4,
                rundown_can_block: false,
                report: Report::new(&options),
                options,
                complete_until: MonotonicTime::ZERO,
                complete_since: MonotonicTime::ZERO,
                lacks_rundown: false,
                unloads_code: false,
            };
            listener.run(&received);
        })?;
        Ok(Self { thread, requests: Some(requests), stopping: None })
    }

    /// Requests a report, which is sent shortly before the deadline at the latest. The thread ends after the last one.
    pub(super) fn request_report(&self, scope: ReportScope, deadline: Instant) -> Receiver<Report> {
        let (reply, report) = channel();
        if let Some(requests) = &self.requests {
            // If the thread has ended, the receiver of the report returns an error.
            let _ = requests.send(ReportRequest { scope, reply });
            self.thread.deadline.set(deadline);
        }
        report
    }

    /// Notifies the thread to stop its session. Dropping the listener waits for it.
    pub(super) fn begin_stop(&mut self) {
        self.requests = None;
        let now = *self.stopping.get_or_insert_with(Instant::now);
        self.thread.deadline.set_permanently(now + STOP_TIMEOUT);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.begin_stop();
        let stopping = self.stopping.unwrap_or_else(Instant::now);
        self.thread.wait_until_ended(stopping + STOP_TIMEOUT);
    }
}

/// Why reading a stream ended without an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadEnd {
    EndOfStream,
    /// Nothing arrived for [`COMPILER_PAUSE`].
    Pause,
    /// The deadline was set: a report is requested, or the listener is dropped.
    Cancelled,
}

/// Where reading a stream ends before the end of the stream.
#[derive(Clone, Copy)]
struct ReadLimit {
    deadline: Instant,
    /// It also ends when the deadline of the thread is set.
    is_cancellable: bool,
    /// It also ends when nothing arrives for [`COMPILER_PAUSE`].
    ends_with_pause: bool,
}

impl ReadLimit {
    fn after(timeout: Duration) -> Self {
        Self { deadline: Instant::now() + timeout, is_cancellable: false, ends_with_pause: false }
    }

    /// The time to which the next bytes are awaited.
    fn next(&self) -> Instant {
        let pause = Instant::now() + COMPILER_PAUSE;
        if self.ends_with_pause { pause.min(self.deadline) } else { self.deadline }
    }

    /// Whether a timeout is a pause.
    fn is_pause(&self) -> bool {
        self.ends_with_pause && Instant::now() < self.deadline
    }
}

struct ListenerThread {
    endpoint: Endpoint,
    deadline: Arc<CancellableDeadline>,
    /// The newest version that the runtime knows.
    command: CollectCommand,
    /// As in [`Session`].
    rundown_can_block: bool,
    report: Report,
    options: EventOptions,
    /// As in [`Report`].
    complete_until: MonotonicTime,
    /// As in [`Report`].
    complete_since: MonotonicTime,
    /// Whether the last rundown did not end in time, so that methods and modules are missing.
    lacks_rundown: bool,
    /// Whether the runtime has unloaded code.
    unloads_code: bool,
}

impl ListenerThread {
    fn run(mut self, requests: &Receiver<ReportRequest>) {
        let mut methods = self.open_stream(&METHOD_SESSION);
        if let Some(stream) = &methods {
            self.complete_since = stream.opened;
            self.lacks_rundown = true;
            if !self.rundown_can_block {
                self.request_rundown(MonotonicTime::ZERO);
            }
        }
        loop {
            if let Some(stream) = &mut methods {
                stream.begin_reading();
                let end = self.read_methods(stream);
                if !matches!(end, Ok(ReadEnd::Cancelled)) {
                    self.end_session(end.err());
                    methods = None;
                }
            }
            let Ok(request) = requests.recv() else {
                if let Some(stream) = methods {
                    self.abandon(stream);
                }
                return;
            };
            let report = match request.scope {
                ReportScope::Received => self.report_received(&mut methods),
                ReportScope::UpToNow => {
                    // The next session opens before this one stops, so that no event is missed between them.
                    let next = self.open_stream(&METHOD_SESSION);
                    self.report_up_to_now(std::mem::replace(&mut methods, next))
                }
                ReportScope::Last => self.report_up_to_now(methods.take()),
            };
            let is_last = request.scope == ReportScope::Last;
            if !is_last {
                self.deadline.clear();
            }
            // The requester may have stopped waiting.
            let _ = request.reply.send(report);
            if is_last {
                return;
            }
        }
    }

    /// Reads the method session until the deadline is set. A rundown that had to wait for a pause is requested in the first.
    fn read_methods(&mut self, stream: &mut Stream) -> io::Result<ReadEnd> {
        let limit = ReadLimit { is_cancellable: true, ..ReadLimit::after(SESSION_TIMEOUT) };
        if self.lacks_rundown && self.rundown_can_block {
            match self.read(stream, ReadLimit { ends_with_pause: true, ..limit }, None)? {
                ReadEnd::Pause => self.request_rundown(MonotonicTime::ZERO),
                end => return Ok(end),
            }
        }
        self.read(stream, limit, None)
    }

    /// A report of the events that were received.
    fn report_received(&mut self, methods: &mut Option<Stream>) -> Report {
        let now = monotonic_time();
        let drained = methods.as_mut().map(|stream| self.drain(stream)).transpose();
        if let Err(error) = &drained {
            self.end_session(Some(error.kind().into()));
            *methods = None;
        }
        let mut report = self.take_report();
        if let Some(stream) = methods {
            let has_gaps = stream.dropped_from.is_some() || matches!(drained, Ok(Some(false)));
            let written =
                if has_gaps { MonotonicTime::ZERO } else { now.saturating_sub(stream.max_unwritten()) };
            report.complete_until = report.complete_until.min(written);
            report.is_provisional = has_gaps || self.unloads_code;
        }
        report
    }

    /// Stops a session. A report of all events up to now.
    fn report_up_to_now(&mut self, methods: Option<Stream>) -> Report {
        if let Some(mut stream) = methods {
            let needs_rundown = self.lacks_rundown || stream.dropped_from.is_some();
            let can_block =
                self.rundown_can_block && needs_rundown && self.compiles_many_methods(&mut stream);
            let dropped_from = self.stop(stream);
            if dropped_from.is_some() {
                self.complete_since = monotonic_time();
            }
            // The first profile of a session can end before the rundown.
            let lacking_from = self.lacks_rundown.then_some(MonotonicTime::ZERO);
            match lacking_from.or(dropped_from) {
                Some(_) if can_block => self.omit_rundown(),
                Some(from) => self.request_rundown(from),
                None => {}
            }
        }
        self.take_report()
    }

    /// Whether the runtime compiles so many methods that a rundown is likely to block it. The events of some time are read for
    /// this.
    fn compiles_many_methods(&mut self, stream: &mut Stream) -> bool {
        let known_bytes = stream.received_bytes;
        match self.read(stream, ReadLimit::after(COMPILER_PAUSE), None) {
            // The session is open.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            result => self.record_failure(result.err()),
        }
        stream.received_bytes - known_bytes > MAX_COMPILER_BYTES
    }

    /// The methods that exist stay unknown until the next report.
    fn omit_rundown(&mut self) {
        self.complete_until = MonotonicTime::ZERO;
        self.lacks_rundown = true;
        self.record_failure(Some(io::Error::new(
            io::ErrorKind::TimedOut,
            "it compiles many methods, and a rundown could block it (dotnet/runtime issue 51579)",
        )));
    }

    /// The events since the last report.
    fn take_report(&mut self) -> Report {
        let mut report = std::mem::replace(&mut self.report, Report::new(&self.options));
        self.unloads_code |= report.events.unloads_code;
        report.complete_until = self.complete_until;
        report.complete_since = self.complete_since;
        report
    }

    fn open_stream(&mut self, config: &SessionConfig<'_>) -> Option<Stream> {
        match Session::open(&self.endpoint, config, self.command, &self.deadline) {
            Ok(session) => {
                self.command = session.command;
                self.rundown_can_block = session.rundown_can_block;
                Some(Stream::new(session))
            }
            Err(error) => {
                self.record_failure(Some(error));
                None
            }
        }
    }

    /// Adds all methods that exist, as existing from `from` on, and takes them for all methods up to now: few methods
    /// are unloaded before.
    fn request_rundown(&mut self, from: MonotonicTime) {
        self.complete_until = MonotonicTime::ZERO;
        self.lacks_rundown = true;
        for config in RUNDOWN_SESSIONS {
            let Some(stream) = self.open_stream(&config) else { return };
            match self.read_rundown(stream, from) {
                Ok(0) => {
                    self.complete_until = MonotonicTime::MAX;
                    self.lacks_rundown = false;
                    return;
                }
                Ok(dropped_events) => {
                    self.report.dropped_events = dropped_events;
                    self.lacks_rundown = false;
                }
                Err(error) => {
                    self.lacks_rundown = error.kind() == io::ErrorKind::TimedOut;
                    return self.record_failure(Some(error));
                }
            }
        }
    }

    /// Stops a session and reads its rundown. Returns the number of dropped events.
    fn read_rundown(&mut self, mut stream: Stream, from: MonotonicTime) -> io::Result<u64> {
        let _stop_command = stream.session.send_stop(&self.endpoint, &self.deadline)?;
        self.read(&mut stream, ReadLimit::after(RUNDOWN_TIMEOUT), Some(from))?;
        if !stream.decoder.is_ended() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let dropped_events = stream.decoder.dropped_events();
        if dropped_events == 0 {
            self.report.dropped_events = 0;
        }
        Ok(dropped_events)
    }

    /// Stops a session and reads its rest. Returns the time before the first dropped event.
    fn stop(&mut self, mut stream: Stream) -> Option<MonotonicTime> {
        let stop_command = stream.session.send_stop(&self.endpoint, &self.deadline);
        let limit = ReadLimit::after(STOP_TIMEOUT);
        let rest = stop_command.and_then(|_stop_command| self.read(&mut stream, limit, None));
        if !stream.decoder.is_ended() {
            self.exclude_unwritten_events();
        }
        self.record_failure(rest.err());
        stream.dropped_from
    }

    /// Stops a session whose events are not needed. Its connection closes before the runtime has written the rest and
    /// the reply, so this waits for them where the signal of a closed connection would end the process.
    fn abandon(&mut self, mut stream: Stream) {
        let stop_command = stream.session.send_stop(&self.endpoint, &self.deadline);
        if !survives_sigpipe(self.endpoint.pid) {
            let limit = ReadLimit::after(STOP_TIMEOUT);
            let rest = stop_command.and_then(|_stop_command| self.read(&mut stream, limit, None));
            self.record_failure(rest.err());
        } else if let Err(error) = stop_command {
            self.record_failure(Some(error));
        }
    }

    /// Ends the complete time of a session that broke off.
    fn end_session(&mut self, error: Option<io::Error>) {
        self.record_failure(error);
        self.exclude_unwritten_events();
    }

    /// Ends the complete time before the events that a runtime had not written when its session broke off.
    fn exclude_unwritten_events(&mut self) {
        let written = monotonic_time().saturating_sub(MAX_UNWRITTEN);
        self.complete_until = self.complete_until.min(written);
    }

    /// Reads what has arrived. Returns whether this is all. The next [`read`](Self::read) finds the end of the stream.
    fn drain(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for _ in 0..MAX_DRAIN_READS {
            match stream.session.connection.receive(&mut buffer, Instant::now(), None) {
                Ok(Received::Bytes(count)) => {
                    stream.decode(buffer.get(..count).unwrap_or_default(), None, &mut self.report.events)?;
                }
                Ok(Received::End | Received::Cancelled) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads to the end of the stream or to the limit. The methods of a rundown are not from before `rundown_from`.
    fn read(
        &mut self,
        stream: &mut Stream,
        mut limit: ReadLimit,
        rundown_from: Option<MonotonicTime>,
    ) -> io::Result<ReadEnd> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut is_deadline_set = false;
        while !stream.decoder.is_ended() {
            // A stream that always has bytes never waits.
            if Instant::now() >= limit.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let cancellable = (!is_deadline_set).then_some(&*self.deadline);
            let received = match stream.session.connection.receive(&mut buffer, limit.next(), cancellable) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && limit.is_pause() => {
                    return Ok(ReadEnd::Pause);
                }
                received => received?,
            };
            match received {
                Received::End => return Ok(ReadEnd::EndOfStream),
                Received::Cancelled if limit.is_cancellable => return Ok(ReadEnd::Cancelled),
                Received::Cancelled => {
                    is_deadline_set = true;
                    let deadline = limit.deadline;
                    limit.deadline = self.deadline.get().map_or(deadline, |earlier| earlier.min(deadline));
                }
                Received::Bytes(count) => {
                    stream.decode(
                        buffer.get(..count).unwrap_or_default(),
                        rundown_from,
                        &mut self.report.events,
                    )?;
                }
            }
        }
        Ok(ReadEnd::EndOfStream)
    }

    /// Keeps the reason of the first failure.
    fn record_failure(&mut self, error: Option<io::Error>) {
        let Some(error) = error else { return };
        log::info!("the .NET runtime of process {} did not report all methods: {error}", self.endpoint.pid);
        self.report.failure.get_or_insert(failure_reason(&error));
    }
}

/// Whether a process ignores or handles SIGPIPE. Runtimes ignore it, but a native host can undo that.
fn survives_sigpipe(pid: Pid) -> bool {
    const SIGPIPE_BIT: u64 = 1 << 12;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigIgn:").or_else(|| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) & SIGPIPE_BIT != 0
}
