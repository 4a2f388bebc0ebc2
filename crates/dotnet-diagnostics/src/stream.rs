//! The stream of events of a session.

use std::io;

use profiler_dotnet_symbols::eventpipe::nettrace::{Clock, Decoder, Event};
use profiler_processes::monotonic_time;

use super::{
    clock::TimeBase,
    method_events::{EventTime, MethodEvents, Observed},
    session::Session,
};

/// Bytes that are read of one session. A program that compiles 6,000 methods a second writes 3 MB a second.
const MAX_SESSION_BYTES: u64 = 8 << 30;

/// Age of the oldest event that a runtime with enough CPU time has not written yet. It writes every 100 ms.
pub(crate) const MAX_UNWRITTEN_NS: u64 = 200_000_000;

/// A session and its decoder.
pub(super) struct Stream {
    pub(super) session: Session,
    pub(super) decoder: Decoder,
    /// When it was opened (`CLOCK_MONOTONIC`).
    pub(super) opened_ns: u64,
    /// The time of the newest method, or of the opening.
    newest_ns: u64,
    pub(super) received_bytes: u64,
    /// The time before the first dropped event.
    pub(super) dropped_from_ns: Option<u64>,
    /// The time since which the stream is read without a pause.
    read_since_ns: Option<u64>,
    /// The longest time from a method's event to its arrival since then.
    max_delay_ns: u64,
}

impl Stream {
    /// The stream of a session that was just opened.
    pub(super) fn new(session: Session) -> Self {
        Self::with_decoder(session, Decoder::default())
    }

    /// The stream of a session that was just opened, whose events have names, fields and stacks.
    pub(super) fn with_details(session: Session) -> Self {
        Self::with_decoder(session, Decoder::with_details())
    }

    fn with_decoder(session: Session, decoder: Decoder) -> Self {
        let opened_ns = monotonic_time().0;
        Self {
            session,
            decoder,
            opened_ns,
            newest_ns: opened_ns,
            received_bytes: 0,
            dropped_from_ns: None,
            read_since_ns: None,
            max_delay_ns: 0,
        }
    }

    /// Starts to measure how late events arrive.
    pub(super) fn begin_reading(&mut self) {
        self.read_since_ns.get_or_insert_with(|| monotonic_time().0);
    }

    /// The age of the oldest event that the runtime may not have written yet. A runtime that lacks CPU time is late.
    pub(super) fn max_unwritten_ns(&self) -> u64 {
        MAX_UNWRITTEN_NS.max(self.max_delay_ns.saturating_mul(2))
    }

    /// Decodes the next bytes into `events`. The methods of a rundown are not from before `rundown_from_ns`.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        rundown_from_ns: Option<u64>,
        events: &mut MethodEvents,
    ) -> io::Result<()> {
        let (opened_ns, known_methods) = (self.opened_ns, events.methods.len());
        self.feed(bytes, |base, event| {
            let time = base.map_or(EventTime::Ns(opened_ns), EventTime::OfTicks);
            events.add(event, time, rundown_from_ns);
        })?;
        if self.decoder.dropped_events() > 0 {
            self.dropped_from_ns.get_or_insert(self.newest_ns);
        }
        let new_methods = || events.methods.iter().skip(known_methods);
        let times = || {
            new_methods().filter_map(|method| match method.observed {
                Observed::Loaded { at_ns } => Some(at_ns),
                Observed::Existing { .. } | Observed::Unloaded { .. } => None,
            })
        };
        self.newest_ns = times().fold(self.newest_ns, u64::max);
        if let Some(since_ns) = self.read_since_ns
            && let Some(oldest_ns) = times().filter(|time_ns| *time_ns >= since_ns).min()
        {
            self.max_delay_ns = self.max_delay_ns.max(monotonic_time().0.saturating_sub(oldest_ns));
        }
        Ok(())
    }

    /// How its times are converted, once that is known.
    pub(super) fn time_base(&self) -> Option<TimeBase> {
        self.decoder.clock().map(|clock| TimeBase::new(clock, self.opened_ns))
    }

    /// Decodes the next bytes, and calls `on_event` with each event and how its time is converted, if that is known.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(Option<TimeBase>, &Event<'_>),
    ) -> io::Result<()> {
        self.received_bytes += bytes.len() as u64;
        if self.received_bytes > MAX_SESSION_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let opened_ns = self.opened_ns;
        let on_event = |clock: Option<Clock>, event: &Event<'_>| {
            on_event(clock.map(|clock| TimeBase::new(clock, opened_ns)), event);
        };
        self.decoder.feed(bytes, on_event).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
