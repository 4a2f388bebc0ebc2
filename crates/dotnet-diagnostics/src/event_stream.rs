//! Keeps the bytes of an EventPipe session, for a nettrace file that the tools of the runtime open.

use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use profiler_processes::Pid;

use super::memory_budget::{MemoryBudget, MemoryReservation};

/// The length of the longest stream that is kept whole. A program that throws ten thousand exceptions each second writes 4 MB a
/// second.
const MAX_BYTES: usize = 64 << 20;

/// The memory that is reserved at a time.
const STEP_BYTES: usize = 1 << 20;

/// The tag that ends a stream (PerfView, src/TraceEvent/EventPipe/NetTraceFormat_v5.md).
const END_OF_STREAM: u8 = 1;

/// The events of the runtime of one process as it sends them: a nettrace stream. Clones are the same stream.
///
/// The first runtime that is found in a session has it. It is kept in memory, up to 64 MiB and what the events of other
/// processes leave of their budget.
#[derive(Clone, Default)]
pub struct EventStream(Arc<Mutex<ReceivedStream>>);

#[derive(Default)]
struct ReceivedStream {
    /// The process whose stream it is, in the profiler's pid namespace.
    pid: Option<Pid>,
    bytes: Vec<u8>,
    /// The length of the objects in `bytes` that are whole.
    whole_bytes: usize,
    memory: MemoryReservation,
    end: StreamEnd,
}

/// How an [`EventStream`] ends.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// The runtime has not sent its end: the process has exited, or the runtime needed too long.
    #[default]
    Missing,
    /// As the runtime ended it.
    Complete,
    /// It was cut, because it exceeded its memory.
    Cut,
}

impl EventStream {
    /// Makes it the stream of a process. Returns false where it is that of another process already.
    pub(super) fn claim(&self, pid: Pid, budget: &MemoryBudget) -> bool {
        let mut state = self.lock();
        let is_free = state.pid.is_none();
        if is_free {
            state.pid = Some(pid);
            state.memory = MemoryReservation::new(budget);
        }
        is_free
    }

    /// Appends bytes as they were received. The objects of the stream up to `whole_bytes` are whole.
    pub(super) fn append(&self, bytes: &[u8], whole_bytes: usize) {
        let mut state = self.lock();
        if state.end == StreamEnd::Cut {
            return;
        }
        if state.reserve(bytes.len()) {
            state.bytes.extend_from_slice(bytes);
            state.whole_bytes = whole_bytes;
        } else {
            state.end = StreamEnd::Cut;
        }
    }

    /// Notes that the runtime has ended the stream.
    pub(super) fn complete(&self) {
        let mut state = self.lock();
        if state.end == StreamEnd::Missing {
            state.end = StreamEnd::Complete;
        }
    }

    /// The process whose stream it is; `None` where no runtime was found.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.lock().pid
    }

    /// How it ends.
    #[must_use]
    pub fn end(&self) -> StreamEnd {
        self.lock().end
    }

    /// Writes the stream. One without its own end has the whole objects that were received, and an end after them.
    ///
    /// # Errors
    /// Writing fails. [`NotFound`](io::ErrorKind::NotFound): no runtime has sent anything.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let state = self.lock();
        let whole = state.bytes.get(..state.whole_bytes).unwrap_or_default();
        if whole.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no .NET runtime has sent events"));
        }
        to.write_all(whole)?;
        if state.end == StreamEnd::Complete { Ok(()) } else { to.write_all(&[END_OF_STREAM]) }
    }

    fn lock(&self) -> MutexGuard<'_, ReceivedStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReceivedStream {
    /// Reserves memory for more bytes. Returns false where there is no more.
    fn reserve(&mut self, bytes: usize) -> bool {
        let missing = (self.bytes.len() + bytes).saturating_sub(self.bytes.capacity());
        if missing == 0 {
            return true;
        }
        let step = missing.max(STEP_BYTES);
        let is_reserved = self.bytes.capacity() + step <= MAX_BYTES && self.memory.reserve(step);
        if is_reserved {
            self.bytes.reserve_exact(self.bytes.capacity() - self.bytes.len() + step);
        }
        is_reserved
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let (pid, bytes, end) = (state.pid, state.whole_bytes, state.end);
        f.debug_struct("EventStream").field("pid", &pid).field("bytes", &bytes).field("end", &end).finish()
    }
}

/// A stream is equal to its clones alone.
impl PartialEq for EventStream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for EventStream {}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        nettrace::Decoder,
        testing::{METHOD_LOADED, TestStream},
    };

    use super::*;

    fn written(stream: &EventStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.write(&mut bytes).unwrap();
        bytes
    }

    /// Number of events, and whether the stream is ended.
    fn decoded(bytes: &[u8]) -> (usize, bool) {
        let (mut decoder, mut events) = (Decoder::default(), 0);
        decoder.feed(bytes, |_, _| events += 1).unwrap();
        (events, decoder.is_ended())
    }

    /// A stream that received these bytes in pieces.
    fn received(bytes: &[u8], piece_bytes: usize) -> EventStream {
        let (stream, mut decoder) = (EventStream::default(), Decoder::default());
        assert!(stream.claim(Pid(7), &MemoryBudget::default()));
        for piece in bytes.chunks(piece_bytes) {
            decoder.feed(piece, |_, _| {}).unwrap();
            stream.append(piece, decoder.decoded_bytes());
        }
        if decoder.is_ended() {
            stream.complete();
        }
        stream
    }

    fn two_events() -> TestStream {
        let event = |number| [(METHOD_LOADED, number, 0, vec![1, 2, 3])];
        TestStream::new(0).events(&event(1)).events(&event(2))
    }

    #[test]
    fn a_whole_stream_is_written_as_it_was_received() {
        let bytes = two_events().end();
        for piece_bytes in [1, 10, bytes.len()] {
            let stream = received(&bytes, piece_bytes);
            assert_eq!(
                (written(&stream), stream.end(), stream.pid()),
                (bytes.clone(), StreamEnd::Complete, Some(Pid(7)))
            );
        }
    }

    #[test]
    fn a_stream_without_an_end_ends_after_its_last_whole_object() {
        let bytes = two_events().0;
        let stream = received(&bytes[..bytes.len() - 1], 16);
        assert_eq!((decoded(&written(&stream)), stream.end()), ((1, true), StreamEnd::Missing));
        let stream = received(&bytes, 16);
        assert_eq!((decoded(&written(&stream)), stream.end()), ((2, true), StreamEnd::Missing));
    }

    #[test]
    fn a_stream_beyond_its_memory_is_cut_between_objects() {
        let mut bytes = two_events();
        while bytes.0.len() <= MAX_BYTES {
            bytes = bytes.block("Unknown", &vec![0; 3 << 20]);
        }
        let stream = received(&bytes.end(), 100_000);
        let written = written(&stream);
        assert_eq!((decoded(&written), stream.end()), ((2, true), StreamEnd::Cut));
        assert!((MAX_BYTES / 2..MAX_BYTES).contains(&written.len()), "{}", written.len());
    }

    #[test]
    fn a_stream_leaves_the_memory_of_other_processes() {
        let budget = MemoryBudget::default();
        let mut others = MemoryReservation::new(&budget);
        while others.reserve(1 << 20) {}
        let stream = EventStream::default();
        assert!(stream.claim(Pid(7), &budget));
        stream.append(b"Nettrace", 8);
        assert_eq!(stream.end(), StreamEnd::Cut);
        assert_eq!(stream.write(&mut Vec::new()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn one_process_has_the_stream() {
        let stream = EventStream::default();
        assert_eq!((stream.pid(), stream.end()), (None, StreamEnd::Missing));
        let clone = stream.clone();
        assert!(clone.claim(Pid(7), &MemoryBudget::default()));
        assert!(!stream.claim(Pid(8), &MemoryBudget::default()));
        assert_eq!((stream.pid(), &stream), (Some(Pid(7)), &clone));
        assert_ne!(stream, EventStream::default());
    }
}
