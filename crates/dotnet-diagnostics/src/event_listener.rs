//! Receives the events of one runtime, from several sessions, on a thread of its own.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::ipc::{self, CollectCommand, Reply};

use super::{
    command::SentCommand,
    event_buffer::{EventBuffer, TakenEvents},
    event_sessions::{EventSession, depend_on_version, major_version},
    event_stream::EventStream,
    event_threads::ThreadReader,
    listener::{BUFFER_BYTES, SESSION_TIMEOUT, STOP_TIMEOUT},
    memory_budget::MemoryBudget,
    runtime_thread::RuntimeThread,
    session::{Session, limited},
    socket::{CancellableDeadline, Endpoint, Ready, Received, wait_for_any},
    stream::Stream,
};
use crate::event_request::EventRequest;

/// A thread that receives events. Dropping it stops its sessions, and waits for that no longer than for an honest runtime.
#[derive(Debug)]
pub(crate) struct EventListener {
    thread: RuntimeThread,
    buffer: Arc<Mutex<EventBuffer>>,
    /// The deadline of the thread that was notified to stop.
    stops_until: Option<Instant>,
}

impl EventListener {
    /// Starts the thread.
    pub(super) fn start(
        endpoint: Endpoint,
        request: Arc<EventRequest>,
        threads: ThreadReader,
        budget: MemoryBudget,
    ) -> io::Result<Self> {
        let kept = request.stream.clone().filter(|stream| {
            let is_claimed = stream.claim(endpoint.pid, &budget);
            if !is_claimed {
                log::warn!(
                    "the events of process {} are not in the nettrace file, which has one process",
                    endpoint.pid
                );
            }
            is_claimed
        });
        let buffer = Arc::new(Mutex::new(EventBuffer::new(budget)));
        let filled = Arc::clone(&buffer);
        let thread = RuntimeThread::start("events", endpoint.pid, move |deadline| {
            let command = CollectCommand::CollectTracing5;
            let listener = ListenerThread { endpoint, deadline, command, threads, buffer: filled, kept };
            listener.run(&request);
        })?;
        Ok(Self { thread, buffer, stops_until: None })
    }

    /// Notifies the thread to stop its sessions, and to read what the runtime has not written yet.
    pub(crate) fn begin_stop(&mut self, deadline: Instant) {
        let deadline = *self.stops_until.get_or_insert(deadline);
        self.thread.deadline.set_permanently(deadline);
    }

    /// Waits until the runtime cannot send events any more, until the deadline at most.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        self.thread.wait_until(deadline);
    }

    /// Waits for the end of a thread that was notified to stop.
    pub(crate) fn wait_until_stopped(&mut self) {
        if let Some(deadline) = self.stops_until {
            self.thread.wait_until_ended(deadline);
        }
    }

    /// Whether the thread has ended: the runtime has closed its sessions, or refused them.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.has_ended()
    }

    /// See [`EventBuffer::take`].
    pub(crate) fn take_events(&self, interval_end: MonotonicTime, is_last: bool) -> TakenEvents {
        lock(&self.buffer).take(interval_end, is_last)
    }

    /// The events that were dropped and those that are malformed, since the start.
    pub(crate) fn lost_events(&self) -> LostEvents {
        let buffer = lock(&self.buffer);
        LostEvents { dropped: buffer.dropped_events, malformed: buffer.malformed_events }
    }
}

/// The events of a session that are in no profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostEvents {
    /// By the runtime, or because a limit was reached.
    pub dropped: u64,
    /// Those that could not be decoded.
    pub malformed: u64,
}

impl LostEvents {
    /// The sums of both.
    pub fn plus(self, other: Self) -> Self {
        Self { dropped: self.dropped + other.dropped, malformed: self.malformed + other.malformed }
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        self.begin_stop(Instant::now() + STOP_TIMEOUT);
        self.wait_until_stopped();
    }
}

/// A session, its stream, and the events that were dropped of it so far.
struct OpenStream {
    session: EventSession,
    stream: Stream,
    dropped_events: u64,
}

struct ListenerThread {
    endpoint: Endpoint,
    deadline: Arc<CancellableDeadline>,
    /// The newest version that the runtime knows.
    command: CollectCommand,
    threads: ThreadReader,
    buffer: Arc<Mutex<EventBuffer>>,
    /// The stream in which the bytes of the only session are kept.
    kept: Option<EventStream>,
}

impl ListenerThread {
    fn run(mut self, request: &EventRequest) {
        let version = if depend_on_version(request) { self.runtime_version() } else { None };
        let sessions = match self.kept {
            Some(_) => vec![EventSession::of_kept_stream(request, version)],
            None => EventSession::all(request, version),
        };
        let mut streams: Vec<_> = sessions.into_iter().filter_map(|session| self.open(session)).collect();
        self.read(&mut streams, Instant::now() + SESSION_TIMEOUT, true);
        // Each session is stopped on a connection of its own, whose reply follows the rest of the events.
        let stop_commands: Vec<_> = streams
            .iter()
            .map(|open| open.stream.session.send_stop(&self.endpoint, &self.deadline))
            .collect();
        let deadline = self.deadline.get().unwrap_or_else(|| Instant::now() + STOP_TIMEOUT);
        self.read(&mut streams, deadline, false);
        stop_commands.into_iter().filter_map(Result::err).for_each(|error| self.log(&error));
    }

    /// The first number of the version of the runtime (.NET 6 and later).
    fn runtime_version(&self) -> Option<u32> {
        let deadline = || limited(STOP_TIMEOUT, &self.deadline);
        let mut sent = SentCommand::send(&self.endpoint, &ipc::process_info_command(), deadline()).ok()?;
        let Reply::Success(payload) = sent.receive_reply(deadline(), Some(&self.deadline)).ok()?? else {
            return None;
        };
        major_version(&ipc::decode_runtime_version(&payload).ok()?)
    }

    fn open(&mut self, session: EventSession) -> Option<OpenStream> {
        let providers = session.providers();
        let config = session.config(&providers);
        match Session::open(&self.endpoint, &config, self.command, &self.deadline) {
            Ok(open) => {
                self.command = open.command;
                Some(OpenStream { stream: Stream::with_details(open), session, dropped_events: 0 })
            }
            Err(error) => {
                self.log(&error);
                None
            }
        }
    }

    /// Reads all streams to their ends, up to the deadline, or until the deadline is set if `is_cancellable`. Streams that
    /// have ended are removed. Streams that always have bytes are read in turn.
    fn read(&mut self, streams: &mut Vec<OpenStream>, deadline: Instant, is_cancellable: bool) {
        let mut bytes = vec![0; BUFFER_BYTES];
        let mut next = 0;
        while !streams.is_empty() {
            let connections = streams.iter().map(|open| &open.stream.session.connection);
            let cancellable = is_cancellable.then_some(&*self.deadline);
            let index = match wait_for_any(connections, next, deadline, cancellable) {
                Ok(Ready::Connection(index)) => index,
                Ok(Ready::Cancelled) => return,
                Err(error) => return self.log(&error),
            };
            let has_ended = match streams.get_mut(index).map(|open| self.receive(open, &mut bytes)) {
                Some(Ok(has_ended)) => has_ended,
                Some(Err(error)) => {
                    self.log(&error);
                    true
                }
                None => return,
            };
            next = index + 1;
            if has_ended {
                streams.remove(index);
                next = index;
            }
        }
    }

    /// Receives what has arrived of a stream. Returns whether this is its end.
    fn receive(&mut self, open: &mut OpenStream, bytes: &mut [u8]) -> io::Result<bool> {
        let OpenStream { session, stream, dropped_events } = open;
        let received = stream.session.connection.receive(bytes, Instant::now(), None)?;
        let Received::Bytes(count) = received else { return Ok(true) };
        let received = bytes.get(..count).unwrap_or_default();
        let (result, new_threads) = {
            let mut buffer = lock(&self.buffer);
            let result = stream.feed(received, |base, event| {
                if let Some(base) = base {
                    buffer.add(session, base, event);
                }
            });
            if let Some(base) = stream.time_base() {
                buffer.add_gaps(session, base, stream.decoder.take_gaps());
            }
            buffer.dropped_events += stream.decoder.dropped_events() - *dropped_events;
            *dropped_events = stream.decoder.dropped_events();
            (result, buffer.take_new_threads())
        };
        let found = self.threads.look_up(new_threads);
        lock(&self.buffer).add_threads(found);
        result?;
        if let Some(kept) = &self.kept {
            kept.append(received, stream.decoder.decoded_bytes());
            if stream.decoder.is_ended() {
                kept.complete();
            }
        }
        Ok(stream.decoder.is_ended())
    }

    fn log(&self, error: &io::Error) {
        log::warn!("the .NET runtime of process {} did not report all events: {error}", self.endpoint.pid);
    }
}

fn lock(buffer: &Mutex<EventBuffer>) -> MutexGuard<'_, EventBuffer> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
