//! Interprets bytes of a fuzz target as responses of a backend.

use std::time::{Duration, SystemTime};

use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, HeaderValue},
};

use super::{endpoint::Protocol, grpc, response::Received};
use crate::delivery::{backoff::Backoff, outcome::Outcome, queue::Queue};

/// The longest text of an outcome that is logged: 300 characters, each escaped, and what it begins with.
const MAX_REASON_BYTES: usize = 4 << 10;

/// The longest delay of a retry: the maximum `Retry-After` plus the maximum back-off.
const MAX_DELAY: Duration = Duration::from_secs(600 + 90);

/// Interprets a response by each protocol. It is a status, lines with a header each, an empty line and the body. Checks the texts
/// that are logged and the delays.
pub fn check_response(bytes: &[u8]) {
    let Some(received) = received(bytes) else { return };
    let now = SystemTime::UNIX_EPOCH;
    let by_http = [Protocol::OtlpHttp, Protocol::Pyroscope].map(|protocol| received.outcome(protocol, now));
    for outcome in by_http.into_iter().chain([grpc::outcome(&received)]) {
        check_outcome(outcome);
    }
}

fn received(bytes: &[u8]) -> Option<Received> {
    const END_OF_HEAD: &[u8] = b"\n\n";
    let end = bytes.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD)?;
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = StatusCode::from_bytes(lines.next()?).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        headers.append(name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?);
    }
    let body = bytes[end + END_OF_HEAD.len()..].to_vec();
    Some(Received { body, ..Received::new(status, headers) })
}

fn check_outcome(outcome: Outcome) {
    let text = match outcome {
        Outcome::Delivered { warning } => warning.unwrap_or_default(),
        Outcome::PartlyRejected { profiles, reason } => {
            assert!(profiles > 0);
            let queue = Queue::new(0);
            // A backend can answer so each time.
            for _ in 0..3 {
                queue.count_rejected_profiles(profiles);
            }
            reason
        }
        Outcome::Rejected(reason) | Outcome::TooLarge(reason) | Outcome::Ambiguous(reason) => reason,
        Outcome::Retry { after, reason } => {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
            assert!(backoff.next_delay(after) <= MAX_DELAY);
            reason
        }
    };
    assert!(text.len() <= MAX_REASON_BYTES && !text.contains(char::is_control), "{text:?}");
}
