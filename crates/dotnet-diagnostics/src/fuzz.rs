//! Entry points of the fuzz targets for the diagnostics socket. Built with `--cfg fuzzing` only.

use std::{
    collections::HashMap,
    fmt::Debug,
    io,
    path::Path,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    ipc,
    nettrace::{Clock, Decoder, Event},
};
use profiler_processes::root_directory::RootDirectory;

use super::{
    MemoryBudget, MethodTable, ReportScope, RuntimeNames, RuntimeProcess,
    clock::TimeBase,
    event_buffer::EventBuffer,
    event_sessions::EventSession,
    method_events::{EventOptions, EventTime, MethodEvents},
};
use crate::event_request::{EventProvider, EventRequest};

/// The name of the socket of the runtime that [`receive_methods`] connects to.
pub const SOCKET_NAME: &str = super::SIMULATED_SOCKET_NAME;

/// The time that the runtime has for a report. What it has not sent by then is missing.
const REPORT_TIME: Duration = Duration::from_millis(5);

/// Connects to the runtime whose socket is in `directory` and receives its methods: in the last report, and before it in
/// a report of the received events (bit 0 of `reports`) and in one of the events up to now (bit 1).
///
/// # Errors
/// Those of opening the directory.
pub fn receive_methods(directory: &Path, reports: u8) -> io::Result<()> {
    let process = RuntimeProcess::simulated(RootDirectory::open(directory)?);
    let mut names = RuntimeNames::new(process, MemoryBudget::default());
    names.start_listener();
    assert!(names.is_listening());
    for (scope, bit) in [(ReportScope::Received, 1), (ReportScope::UpToNow, 2), (ReportScope::Last, 0)] {
        if scope == ReportScope::Last || reports & bit != 0 {
            let deadline = Instant::now() + REPORT_TIME;
            names.request_report(scope, deadline);
            names.receive_report(deadline, usize::MAX);
        }
    }
    Ok(())
}

/// Decodes a stream that arrives in pieces. The result does not depend on where the stream is split.
pub fn decode_stream(pieces: &[&[u8]]) -> impl PartialEq + Debug + use<> {
    let options = EventOptions { budget: MemoryBudget::default(), keeps_compilations: true };
    let (mut decoder, mut events) = (Decoder::default(), MethodEvents::new(&options));
    let is_valid = pieces.iter().all(|piece| {
        let on_event = |clock: Option<Clock>, event: &Event<'_>| {
            let time = clock.map_or(EventTime::Known(MonotonicTime::ZERO), |clock| {
                EventTime::OfTicks(TimeBase::new(clock, MonotonicTime::ZERO))
            });
            events.add(event, time, None);
        };
        decoder.feed(piece, on_event).is_ok()
    });
    let names = format!("{:?}", events.names);
    let counts = (decoder.dropped_events(), events.malformed_events);
    (is_valid, counts, events.methods, names, events.compilations, decode_runtime_events(pieces))
}

/// Decodes all runtime events of a stream that arrives in pieces.
fn decode_runtime_events(pieces: &[&[u8]]) -> impl PartialEq + Debug + use<> {
    let providers = vec![EventProvider { name: RUNTIME_PROVIDER.to_owned(), keywords: 0, level: 5 }];
    let sessions = EventSession::all(&EventRequest { providers, ..EventRequest::default() }, None);
    let (mut decoder, mut buffer) = (Decoder::with_details(), EventBuffer::new(MemoryBudget::default()));
    for piece in pieces {
        let on_event = |clock: Option<Clock>, event: &Event<'_>| {
            if let (Some(clock), [session]) = (clock, &sessions[..]) {
                buffer.add(session, TimeBase::new(clock, MonotonicTime::ZERO), event);
            }
        };
        if decoder.feed(piece, on_event).is_err() {
            break;
        }
    }
    if let (Some(clock), [session]) = (decoder.clock(), &sessions[..]) {
        buffer.add_gaps(session, TimeBase::new(clock, MonotonicTime::ZERO), decoder.take_gaps());
    }
    buffer.add_threads(HashMap::new());
    let of_interval = format!("{:?}", buffer.take(MonotonicTime(u64::MAX / 2), false));
    let rest = format!("{:?}", buffer.take(MonotonicTime::MAX, true));
    (buffer.malformed_events, buffer.dropped_events, of_interval, rest)
}

/// Decodes the reply to a command, header and payload.
pub fn decode_reply(bytes: &[u8]) {
    let _ = ipc::missing_reply_bytes(bytes);
    if let Ok(ipc::Reply::Success(payload)) = ipc::decode_reply(bytes) {
        let _ = (ipc::decode_session_id(&payload), ipc::decode_runtime_version(&payload));
    }
}

/// Reads a recording, and checks that it reads the same after it is written again.
#[cfg(feature = "capture")]
pub fn read_recording(bytes: &[u8]) {
    let read = |bytes: &[u8]| MethodTable::from_recording(bytes).unwrap_or_default();
    let first = read(bytes);
    let again = read(&first.recording().unwrap_or_default());
    assert!(first.methods().eq(again.methods()));
}
