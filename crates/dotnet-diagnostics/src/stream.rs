//! The stream of events of a session.

use std::{io, time::Duration};

use profiler_addresses::MonotonicTime;
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
pub(crate) const MAX_UNWRITTEN: Duration = Duration::from_millis(200);

/// A session and its decoder.
pub(super) struct Stream {
    pub(super) session: Session,
    pub(super) decoder: Decoder,
    /// When it was opened.
    pub(super) opened: MonotonicTime,
    /// The time of the newest method, or of the opening.
    newest: MonotonicTime,
    pub(super) received_bytes: u64,
    /// The time before the first dropped event.
    pub(super) dropped_from: Option<MonotonicTime>,
    /// The time since which the stream is read without a pause.
    read_since: Option<MonotonicTime>,
    /// The longest time from a method's event to its arrival since then.
    max_delay: Duration,
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
        let opened = monotonic_time();
        Self {
            session,
            decoder,
            opened,
            newest: opened,
            received_bytes: 0,
            dropped_from: None,
            read_since: None,
            max_delay: Duration::ZERO,
        }
    }

    /// Starts to measure how late events arrive.
    pub(super) fn begin_reading(&mut self) {
        self.read_since.get_or_insert_with(monotonic_time);
    }

    /// The age of the oldest event that the runtime may not have written yet. A runtime that lacks CPU time is late.
    pub(super) fn max_unwritten(&self) -> Duration {
        MAX_UNWRITTEN.max(self.max_delay.saturating_mul(2))
    }

    /// Decodes the next bytes into `events`. The methods of a rundown are not from before `rundown_from`.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        rundown_from: Option<MonotonicTime>,
        events: &mut MethodEvents,
    ) -> io::Result<()> {
        let (opened, known_methods) = (self.opened, events.methods.len());
        self.feed(bytes, |base, event| {
            let time = base.map_or(EventTime::Known(opened), EventTime::OfTicks);
            events.add(event, time, rundown_from);
        })?;
        if self.decoder.dropped_events() > 0 {
            self.dropped_from.get_or_insert(self.newest);
        }
        let new_methods = || events.methods.iter().skip(known_methods);
        let times = || {
            new_methods().filter_map(|method| match method.observed {
                Observed::Loaded { at } => Some(at),
                Observed::Existing { .. } | Observed::Unloaded { .. } => None,
            })
        };
        self.newest = times().fold(self.newest, MonotonicTime::max);
        if let Some(since) = self.read_since
            && let Some(oldest) = times().filter(|time| *time >= since).min()
        {
            self.max_delay = self.max_delay.max(monotonic_time().saturating_since(oldest));
        }
        Ok(())
    }

    /// How its times are converted, once that is known.
    pub(super) fn time_base(&self) -> Option<TimeBase> {
        self.decoder.clock().map(|clock| TimeBase::new(clock, self.opened))
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
        let opened = self.opened;
        let on_event = |clock: Option<Clock>, event: &Event<'_>| {
            on_event(clock.map(|clock| TimeBase::new(clock, opened)), event);
        };
        self.decoder.feed(bytes, on_event).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
