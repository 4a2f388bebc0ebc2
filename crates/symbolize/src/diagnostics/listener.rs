//! Listening to one runtime, on a thread of its own: who names stacks must not wait for it.
//!
//! First a session is opened that tells of methods as they are compiled, then a second one is opened and stopped at
//! once: it ends with a rundown, of all methods there are. So all names are there from the beginning on, also when the
//! process ends before the profile does, and the end of a profile only waits for what the runtime has not written yet.
//! Where events were dropped, another rundown tells of what they told.

use profiler_dotnet_symbols::eventpipe::{
    ipc::{Collect, Dialect},
    nettrace::{Clock, Decoder, Event},
};
use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    methods::{Heard, RUNTIME, Since, TimeBase},
    room::Room,
    session::Session,
    socket::{Endpoint, Patience, Received},
    trouble,
};
use profiler_profile::Reason;

/// Methods compiled at run time (Jit), those compiled ahead that are used (NGen), and their modules (Loader):
/// `ClrEtwAll.man`.
const LOADER: u64 = 0x8;
const JIT: u64 = 0x10;
const NGEN: u64 = 0x20;
/// The rundown is of the end of a session.
const END: u64 = 0x100;
/// With names.
const VERBOSE: u32 = 5;

/// The methods that are compiled from now on. The buffer is read all the time.
const COMPILED: Collect = Collect {
    buffer_mib: 32,
    rundown_keywords: 0,
    provider: RUNTIME,
    keywords: LOADER | JIT | NGEN,
    level: VERBOSE,
};

/// The methods there are: a provider that does not exist has no events but those of the rundown, all of which have to
/// fit into the buffer. It belongs to the target's memory, as far as it is filled.
const RUNDOWNS: [Collect; 2] = [rundown(64), rundown(256)];

const fn rundown(buffer_mib: u32) -> Collect {
    Collect {
        buffer_mib,
        rundown_keywords: LOADER | JIT | NGEN | END,
        provider: "Microsoft-DotNETCore-None",
        keywords: 0,
        level: 0,
    }
}

/// How long a rundown may take while nobody waits for it. Very large programs take minutes, and hold up their compiler.
const RUNDOWN_TIME: Duration = Duration::from_secs(30);

/// How long a session lives on its own: as good as for ever.
const SESSION_TIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Bytes that are read of one session. A program that makes 6,000 methods a second writes 3 MB a second.
const MAX_SESSION_BYTES: u64 = 8 << 30;

/// What is read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// How old the events can be that a runtime has not written yet: it writes every 100 ms.
const UNWRITTEN_NS: u64 = 200_000_000;

/// How long the runtime is waited for when nobody wants to hear what it says.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

/// What a listener has to tell since the last time it was asked.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) heard: Heard,
    /// Events that the runtime had no room for and that no rundown made good.
    pub(super) dropped_events: u64,
    /// Why there may be more.
    pub(super) trouble: Option<Reason>,
    /// Before when all methods were told that there were (`CLOCK_MONOTONIC`).
    pub(super) complete_until_ns: u64,
}

impl Report {
    fn with(room: &Room) -> Self {
        Self { heard: Heard::with(room), ..Self::default() }
    }
}

#[derive(Debug)]
struct Order {
    is_last: bool,
    reply: Sender<Report>,
}

/// A thread that listens. Dropped, it stops its session.
#[derive(Debug)]
pub(super) struct Listener {
    patience: Arc<Patience>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts to listen.
    pub(super) fn start(endpoint: Endpoint, room: Room) -> io::Result<Self> {
        let patience = Arc::new(Patience::new()?);
        let (orders, received) = channel();
        let ear = Ear {
            endpoint,
            patience: Arc::clone(&patience),
            dialect: Dialect::CollectTracing4,
            report: Report::with(&room),
            room,
            complete_until_ns: 0,
        };
        let thread = std::thread::Builder::new().name("listener".to_owned());
        let thread = thread.spawn(move || ear.run(&received))?;
        Ok(Self { patience, orders: Some(orders), thread: Some(thread) })
    }

    /// Asks for what was heard, until a moment before `until`. It is over with the last one.
    pub(super) fn ask(&self, is_last: bool, until: Instant) -> Receiver<Report> {
        let (reply, report) = channel();
        if let Some(orders) = &self.orders {
            // Without a listener there is no report, which the receiver tells.
            let _ = orders.send(Order { is_last, reply });
            self.patience.end_at(until);
        }
        report
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.orders = None;
        self.patience.end_for_good_at(Instant::now() + FAREWELL_TIME);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::warn!("a thread that listens to a runtime panicked");
        }
    }
}

/// A session, and how far it was read.
struct Stream {
    session: Session,
    decoder: Decoder,
    opened_ns: u64,
    bytes: u64,
}

/// Why reading stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    End,
    Called,
}

struct Ear {
    endpoint: Endpoint,
    patience: Arc<Patience>,
    /// The newest that the runtime understands.
    dialect: Dialect,
    report: Report,
    room: Room,
    /// As in a [`Report`].
    complete_until_ns: u64,
}

impl Ear {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut compiled = self.open(&COMPILED);
        if compiled.is_some() {
            self.run_down(0);
        }
        loop {
            let mut dropped_from_ns = None;
            if let Some(stream) = &mut compiled {
                let heard =
                    self.read(stream, Instant::now() + SESSION_TIME, true, None, &mut dropped_from_ns);
                if !matches!(heard, Ok(Pause::Called)) {
                    self.note(heard.err());
                    compiled = None;
                    self.lose_the_unwritten();
                }
            }
            let order = orders.recv().ok();
            let goes_on = order.as_ref().is_some_and(|order| !order.is_last);
            // Before the one is stopped, so that nothing is missed between them.
            let next = if goes_on { self.open(&COMPILED) } else { None };
            if let Some(stream) = compiled {
                self.stop(stream, &mut dropped_from_ns);
            }
            let Some(order) = order else { return };
            if let Some(from_ns) = dropped_from_ns {
                self.run_down(from_ns);
            }
            let mut report = std::mem::replace(&mut self.report, Report::with(&self.room));
            report.complete_until_ns = self.complete_until_ns;
            if goes_on {
                self.patience.renew();
            }
            // Who asked may not wait any more.
            let _ = order.reply.send(report);
            if !goes_on {
                return;
            }
            compiled = next;
        }
    }

    fn open(&mut self, collect: &Collect) -> Option<Stream> {
        match Session::open(&self.endpoint, collect, self.dialect, &self.patience) {
            Ok(session) => {
                self.dialect = session.dialect;
                let decoder = Decoder::default();
                Some(Stream { session, decoder, opened_ns: monotonic_ns(), bytes: 0 })
            }
            Err(error) => {
                self.note(Some(error));
                None
            }
        }
    }

    /// Hears of all methods there are; they are taken to be there from `from_ns` on, and to be all that there were: the
    /// few that the runtime has thrown away before are of no account.
    fn run_down(&mut self, from_ns: u64) {
        self.complete_until_ns = 0;
        for collect in RUNDOWNS {
            let Some(stream) = self.open(&collect) else { return };
            match self.try_run_down(stream, from_ns) {
                Ok(0) => {
                    self.complete_until_ns = u64::MAX;
                    return;
                }
                Ok(dropped_events) => self.report.dropped_events = dropped_events,
                Err(error) => return self.note(Some(error)),
            }
        }
    }

    /// How many events are missing.
    fn try_run_down(&mut self, mut stream: Stream, from_ns: u64) -> io::Result<u64> {
        let _stopping = stream.session.ask_to_stop(&self.endpoint, &self.patience)?;
        let until = Instant::now() + RUNDOWN_TIME;
        self.read(&mut stream, until, false, Some(from_ns), &mut None)?;
        if !stream.decoder.ended() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let dropped_events = stream.decoder.dropped_events();
        if dropped_events == 0 {
            self.report.dropped_events = 0;
        }
        Ok(dropped_events)
    }

    fn stop(&mut self, mut stream: Stream, dropped_from_ns: &mut Option<u64>) {
        let stopping = stream.session.ask_to_stop(&self.endpoint, &self.patience);
        let until = Instant::now() + FAREWELL_TIME;
        let rest = stopping.and_then(|_stopping| self.read(&mut stream, until, false, None, dropped_from_ns));
        if !stream.decoder.ended() {
            self.lose_the_unwritten();
        }
        self.note(rest.err());
    }

    /// A session is over that the runtime did not end in order: what it had not written yet is lost.
    fn lose_the_unwritten(&mut self) {
        let written_ns = monotonic_ns().saturating_sub(UNWRITTEN_NS);
        self.complete_until_ns = self.complete_until_ns.min(written_ns);
    }

    /// Reads until the end of the stream, or until somebody calls where `pauses`. `since_ns` is since when methods are
    /// there whose event does not say. Sets `dropped_from_ns` to the time before the first event that is missing.
    fn read(
        &mut self,
        stream: &mut Stream,
        mut until: Instant,
        pauses: bool,
        since_ns: Option<u64>,
        dropped_from_ns: &mut Option<u64>,
    ) -> io::Result<Pause> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut called = false;
        while !stream.decoder.ended() {
            let patience = (!called).then_some(&*self.patience);
            match stream.session.connection.receive(&mut buffer, until, patience)? {
                Received::End => return Ok(Pause::End),
                Received::Called if pauses => return Ok(Pause::Called),
                Received::Called => {
                    called = true;
                    until = self.patience.ends().map_or(until, |ends| ends.min(until));
                }
                Received::Bytes(count) => {
                    stream.bytes += count as u64;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    self.take(stream, bytes, since_ns, dropped_from_ns)?;
                }
            }
        }
        Ok(Pause::End)
    }

    fn take(
        &mut self,
        stream: &mut Stream,
        bytes: &[u8],
        since_ns: Option<u64>,
        dropped_from_ns: &mut Option<u64>,
    ) -> io::Result<()> {
        let (heard, opened_ns) = (&mut self.report.heard, stream.opened_ns);
        let before_ns = heard.methods.last().map_or(opened_ns, |method| method.from_ns.max(opened_ns));
        let hear = |clock: Option<Clock>, event: &Event<'_>| {
            let base = clock.map(|clock| TimeBase::new(clock, opened_ns));
            let since = match (since_ns, base) {
                (None, Some(base)) => Since::Event(base),
                (since_ns, _) => Since::Ns(since_ns.unwrap_or(opened_ns)),
            };
            heard.hear(event, since);
        };
        stream.decoder.feed(bytes, hear).map_err(|_| io::ErrorKind::InvalidData)?;
        if stream.decoder.dropped_events() > 0 {
            dropped_from_ns.get_or_insert(before_ns);
        }
        if stream.bytes > MAX_SESSION_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    }

    /// Keeps the first trouble.
    fn note(&mut self, error: Option<io::Error>) {
        let Some(error) = error else { return };
        log::info!("the .NET runtime of process {} does not tell all: {error}", self.endpoint.pid);
        self.report.trouble.get_or_insert(trouble(&error));
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
