//! gRPC over HTTP/2 for one message in each direction.
//!
//! Clients of gRPC compress messages themselves, and do not say how much of a request was written. Messages are already compressed
//! here, and that decides whether a failed request can be repeated. So requests are framed here.

use std::time::Duration;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use hyper::header::HeaderName;
use percent_encoding::percent_decode_str;
use prost::Message as _;

use super::{
    messages::{RetryInfo, Status},
    response::{Received, outcome_of_success, printable},
};
use crate::delivery::outcome::Outcome;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// A `google.rpc.Status` with details, in base64.
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The type of a detail with a delay.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Binary headers may have padding or not (gRPC over HTTP2, "Custom-Metadata").
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The size of the prefix of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

// Status codes (gRPC, "Status codes and their use in gRPC").
const OK: u32 = 0;
const CANCELLED: u32 = 1;
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const ABORTED: u32 = 10;
const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const DATA_LOSS: u32 = 15;
const UNAUTHENTICATED: u32 = 16;

/// The prefix of a compressed message (gRPC over HTTP2, "Length-Prefixed-Message").
pub(super) fn prefix(body: &[u8]) -> Bytes {
    // A message of the queue is smaller.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut prefix = vec![1];
    prefix.extend_from_slice(&length.to_be_bytes());
    prefix.into()
}

/// How servers say that a message is too large: gRPC for Go, C and Python, for Java, and tonic. Their codes for it are
/// those of a quota, or even one to repeat.
const TOO_LARGE: [&str; 4] =
    ["larger than max", "exceeds maximum size", "message length too large", "exceeded while decompressing"];

/// What a response says about the message (OTLP specification, "Failures" of OTLP/gRPC).
pub(super) fn outcome(received: &Received) -> Outcome {
    let Some(code) = status_code(received) else {
        let cut = received.cut.as_deref().unwrap_or("it has no `grpc-status`");
        return Outcome::Ambiguous(format!("the response of the backend cannot be understood: {cut}"));
    };
    let text = received.header(&MESSAGE).map(decode_message).unwrap_or_default();
    let reason = format!("the backend responded with gRPC status {code}: {text}");
    let after = retry_delay(received);
    match code {
        OK => success(received),
        RESOURCE_EXHAUSTED | OUT_OF_RANGE if is_too_large(&text) => Outcome::TooLarge(reason),
        CANCELLED | DEADLINE_EXCEEDED | ABORTED | OUT_OF_RANGE | UNAVAILABLE | DATA_LOSS => {
            Outcome::Retry { after, reason }
        }
        RESOURCE_EXHAUSTED if after.is_some() => Outcome::Retry { after, reason },
        _ => Outcome::Rejected(reason),
    }
}

/// The text of the status (gRPC over HTTP2, "Percent-Encoded").
fn decode_message(encoded: &str) -> String {
    printable(&percent_decode_str(encoded).decode_utf8_lossy())
}

fn is_too_large(text: &str) -> bool {
    let text = text.to_lowercase();
    TOO_LARGE.iter().any(|known| text.contains(known))
}

/// The code of the response, or the one for its HTTP status (gRPC, "HTTP to gRPC Status Code Mapping").
fn status_code(received: &Received) -> Option<u32> {
    if let Some(code) = received.header(&STATUS) {
        return code.trim().parse().ok();
    }
    match received.status.as_u16() {
        200 => None,
        400 => Some(INTERNAL),
        401 => Some(UNAUTHENTICATED),
        403 => Some(PERMISSION_DENIED),
        404 => Some(UNIMPLEMENTED),
        429 | 502 | 503 | 504 => Some(UNAVAILABLE),
        _ => Some(UNKNOWN),
    }
}

fn success(received: &Received) -> Outcome {
    let message = received.body.split_at_checked(PREFIX_BYTES).filter(|(prefix, message)| {
        let expected = u32::try_from(message.len()).map(u32::to_be_bytes);
        prefix[0] == 0 && expected.is_ok_and(|length| prefix[1..] == length)
    });
    match message {
        Some((_, message)) => outcome_of_success(message),
        None => Outcome::Ambiguous("the response of the backend has no message".to_owned()),
    }
}

/// The delay of `RetryInfo`, zero if it has none.
fn retry_delay(received: &Received) -> Option<Duration> {
    let status = BASE64.decode(received.header(&DETAILS)?.trim()).ok()?;
    let details = Status::decode(&*status).ok()?.details;
    let info = details.iter().find(|detail| detail.type_url == RETRY_INFO)?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds), u32::try_from(delay.nanos));
    // A negative part counts as zero.
    Some(Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_nanos(nanos.unwrap_or(0).into()))
}

#[cfg(test)]
mod tests {
    use hyper::{HeaderMap, StatusCode};

    use super::{
        super::messages::{Delay, Detail},
        *,
    };

    fn received(status: u16, trailers: &[(HeaderName, &str)], body: &[u8]) -> Received {
        let mut response = Received::new(StatusCode::from_u16(status).unwrap(), HeaderMap::new());
        response.body = body.to_vec();
        for (name, value) in trailers {
            response.trailers.insert(name.clone(), value.parse().unwrap());
        }
        response
    }

    fn details(delay: Option<Delay>) -> String {
        let value = RetryInfo { retry_delay: delay }.encode_to_vec();
        let detail = Detail { type_url: RETRY_INFO.to_owned(), value };
        let status = Status { message: "later".to_owned(), details: vec![detail] };
        BASE64.encode(status.encode_to_vec())
    }

    #[test]
    fn only_the_codes_of_the_specification_are_retried() {
        for code in 1..=20 {
            let outcome = outcome(&received(200, &[(STATUS, &code.to_string())], b""));
            let is_retried = matches!(outcome, Outcome::Retry { after: None, .. });
            assert_eq!(is_retried, [1, 4, 10, 11, 14, 15].contains(&code), "{code}: {outcome:?}");
            assert!(is_retried || matches!(outcome, Outcome::Rejected(_)), "{code}: {outcome:?}");
        }
    }

    #[test]
    fn a_delay_makes_exhausted_resources_a_reason_to_retry() {
        let delay = Delay { seconds: 2, nanos: 500_000_000 };
        for code in ["8", "14"] {
            for (delay, expected) in
                [(Some(delay), 2_500), (None, 0), (Some(Delay { seconds: -1, nanos: -1 }), 0)]
            {
                let details = details(delay);
                for details in [&*details, details.trim_end_matches('=')] {
                    let response = received(200, &[(STATUS, code), (DETAILS, details)], b"");
                    let Outcome::Retry { after, .. } = outcome(&response) else { panic!("{code}") };
                    assert_eq!(after, Some(Duration::from_millis(expected)));
                }
            }
        }
        let garbage = received(200, &[(STATUS, "8"), (DETAILS, "!")], b"");
        assert!(matches!(outcome(&garbage), Outcome::Rejected(_)));
    }

    #[test]
    fn the_status_of_http_counts_where_there_is_no_other() {
        for (status, is_retried) in [(400, false), (404, false), (429, true), (503, true), (500, false)] {
            let outcome = outcome(&received(status, &[], b""));
            assert_eq!(matches!(outcome, Outcome::Retry { .. }), is_retried, "{status}: {outcome:?}");
        }
        assert!(matches!(outcome(&received(200, &[], b"")), Outcome::Ambiguous(_)));
        assert!(matches!(outcome(&received(200, &[(STATUS, "x")], b"")), Outcome::Ambiguous(_)));
    }

    #[test]
    fn a_success_has_one_message() {
        let ok = (STATUS, "0");
        let delivered = outcome(&received(200, std::slice::from_ref(&ok), &[0; 5]));
        assert_eq!(delivered, Outcome::Delivered { warning: None });
        let partial = [&[0, 0, 0, 0, 4][..], b"\x0a\x02\x08\x02"].concat();
        let outcome_of = |body: &[u8]| outcome(&received(200, std::slice::from_ref(&ok), body));
        assert!(matches!(outcome_of(&partial), Outcome::PartlyRejected { profiles: 2, .. }));
        for body in [&[][..], &[0; 4], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 1]] {
            assert!(matches!(outcome_of(body), Outcome::Ambiguous(_)), "{body:?}");
        }
    }
}
