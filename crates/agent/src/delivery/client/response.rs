//! Reads responses, and decides what those by HTTP mean for the message.

use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, StatusCode,
    body::Incoming,
    header::{self, HeaderName},
};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message as _;

use super::{endpoint::Protocol, messages::Status};
use crate::delivery::outcome::Outcome;

/// The part of a response body that is read.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The part of a text of the backend that is logged.
const MAX_TEXT_CHARACTERS: usize = 300;

/// A response as far as it was read.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) trailers: HeaderMap,
    /// Why the body is not whole.
    pub(super) cut: Option<String>,
}

impl Received {
    pub(super) fn new(status: StatusCode, headers: HeaderMap) -> Self {
        Self { status, headers, body: Vec::new(), trailers: HeaderMap::new(), cut: None }
    }

    /// Reads the body up to a limit.
    pub(super) async fn read_body(&mut self, mut body: Incoming) {
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.cut = Some(format!("the response ended early: {}", describe(&error)));
                    return;
                }
            };
            match frame.into_data() {
                Ok(data) if self.body.len() + data.len() > MAX_BODY_BYTES => {
                    self.cut = Some(format!("the response is longer than {MAX_BODY_BYTES} bytes"));
                    return;
                }
                Ok(data) => self.body.extend_from_slice(&data),
                Err(frame) => self.trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
    }

    /// What a response by HTTP says about the message (OTLP specification, "OTLP/HTTP Response"; Connect protocol,
    /// "Unary-Response"). `now` is for dates in `Retry-After`.
    pub(super) fn outcome(&self, protocol: Protocol, now: SystemTime) -> Outcome {
        let status = self.status.as_u16();
        let is_success = self.status.is_success();
        match (status, protocol) {
            _ if is_success && protocol == Protocol::Pyroscope => Outcome::Delivered { warning: None },
            _ if is_success => self.otlp_success(),
            (413, _) => Outcome::TooLarge(self.reason()),
            (429 | 503, _) | (502 | 504, Protocol::OtlpHttp) => {
                Outcome::Retry { after: self.retry_after(now), reason: self.reason() }
            }
            // A gateway got no response, and Connect leaves open whether the request can be repeated.
            (502 | 504, _) => Outcome::Ambiguous(self.reason()),
            (300..=399, _) => Outcome::Rejected(format!(
                "{}: redirects are not followed, give the final URL",
                self.reason()
            )),
            _ => Outcome::Rejected(self.reason()),
        }
    }

    fn otlp_success(&self) -> Outcome {
        if let Some(cut) = &self.cut {
            return Outcome::Ambiguous(format!("{}: {cut}", self.reason()));
        }
        if self.is_html() {
            return Outcome::Ambiguous(format!("{}: the response is a page, check the URL", self.reason()));
        }
        if self.body.is_empty() || !self.is_protobuf() {
            return Outcome::Delivered { warning: None };
        }
        outcome_of_success(&self.body)
    }

    /// RFC 9110, section 10.2.3: seconds, or a date.
    fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = value.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    }

    fn reason(&self) -> String {
        let status = self.status;
        let text = match Status::decode(&*self.body) {
            Ok(decoded) if self.is_protobuf() => decoded.message,
            _ if self.is_html() => String::new(),
            _ => String::from_utf8_lossy(&self.body).into_owned(),
        };
        if text.is_empty() {
            format!("the backend responded {status}")
        } else {
            format!("the backend responded {status}: {}", printable(&text))
        }
    }

    fn is_protobuf(&self) -> bool {
        let names = ["application/x-protobuf", "application/protobuf", "application/proto"];
        self.media_type().is_some_and(|found| names.iter().any(|name| found.eq_ignore_ascii_case(name)))
    }

    fn is_html(&self) -> bool {
        self.media_type().is_some_and(|found| found.eq_ignore_ascii_case("text/html"))
    }

    fn media_type(&self) -> Option<&str> {
        self.header(&header::CONTENT_TYPE)?.split(';').next().map(str::trim)
    }

    /// A header of the trailers, or else of the response.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.trailers.get(name).or_else(|| self.headers.get(name))?.to_str().ok()
    }
}

/// What a successful response of OTLP says about the message (OTLP specification, "Partial Success").
pub(super) fn outcome_of_success(body: &[u8]) -> Outcome {
    let response = match ExportProfilesServiceResponse::decode(body) {
        Ok(response) => response,
        Err(error) => {
            return Outcome::Ambiguous(format!("the response is no ExportProfilesServiceResponse: {error}"));
        }
    };
    let Some(partial) = response.partial_success else { return Outcome::Delivered { warning: None } };
    let text = printable(&partial.error_message);
    match u64::try_from(partial.rejected_profiles) {
        Ok(profiles) if profiles > 0 => {
            Outcome::PartlyRejected { profiles, reason: format!("{profiles} profiles were rejected: {text}") }
        }
        _ => Outcome::Delivered { warning: Some(text).filter(|text| !text.is_empty()) },
    }
}

/// Text of a backend in one line of bounded length.
pub(super) fn printable(text: &str) -> String {
    text.trim().chars().take(MAX_TEXT_CHARACTERS).flat_map(char::escape_debug).collect()
}

/// An error of hyper with its causes, which its own text leaves out.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesPartialSuccess;

    use super::*;

    fn received(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Received {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Received { body: body.to_vec(), ..Received::new(StatusCode::from_u16(status).unwrap(), map) }
    }

    fn outcome(status: u16, protocol: Protocol) -> Outcome {
        received(status, &[], b"").outcome(protocol, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        for status in 200..600 {
            let (otlp, pyroscope) =
                (outcome(status, Protocol::OtlpHttp), outcome(status, Protocol::Pyroscope));
            let is_retried = |outcome: &Outcome| matches!(outcome, Outcome::Retry { .. });
            assert_eq!(is_retried(&otlp), [429, 502, 503, 504].contains(&status), "{status}");
            assert_eq!(is_retried(&pyroscope), [429, 503].contains(&status), "{status}");
            let is_ambiguous = |outcome: &Outcome| matches!(outcome, Outcome::Ambiguous(_));
            assert!(!is_ambiguous(&otlp), "{status}");
            assert_eq!(is_ambiguous(&pyroscope), [502, 504].contains(&status), "{status}");
            assert_eq!(matches!(otlp, Outcome::Delivered { .. }), status < 300, "{status}");
            assert_eq!(matches!(otlp, Outcome::TooLarge(_)), status == 413, "{status}");
        }
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
        ] {
            let response = received(503, &[("retry-after", value)], b"");
            let Outcome::Retry { after, .. } = response.outcome(Protocol::OtlpHttp, now) else {
                panic!("{value}")
            };
            assert_eq!(after, seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_partial_success_is_never_retried() {
        let protobuf = [("content-type", "application/x-protobuf")];
        let success = |rejected_profiles, text: &str| {
            let partial = ExportProfilesPartialSuccess { rejected_profiles, error_message: text.to_owned() };
            let body = ExportProfilesServiceResponse { partial_success: Some(partial) }.encode_to_vec();
            received(200, &protobuf, &body).outcome(Protocol::OtlpHttp, SystemTime::UNIX_EPOCH)
        };
        let Outcome::PartlyRejected { profiles, reason } = success(3, "too old\n") else { panic!() };
        assert_eq!((profiles, &*reason), (3, "3 profiles were rejected: too old"));
        assert_eq!(success(0, "slow"), Outcome::Delivered { warning: Some("slow".to_owned()) });
        for count in [0, -1, i64::MIN] {
            assert_eq!(success(count, ""), Outcome::Delivered { warning: None });
        }
        let garbage = received(200, &protobuf, b"\xff\xff");
        let outcome = garbage.outcome(Protocol::OtlpHttp, SystemTime::UNIX_EPOCH);
        assert!(matches!(outcome, Outcome::Ambiguous(_)), "{outcome:?}");
        let page = received(200, &[("content-type", "text/html; charset=utf-8")], b"<p>sign in");
        let outcome = page.outcome(Protocol::OtlpHttp, SystemTime::UNIX_EPOCH);
        assert!(matches!(outcome, Outcome::Ambiguous(_)), "{outcome:?}");
    }

    #[test]
    fn text_of_the_backend_is_printed_in_one_short_line() {
        let text = format!("a\n\x1b[31m{}", "b".repeat(10_000));
        let Outcome::Rejected(reason) =
            received(400, &[], text.as_bytes()).outcome(Protocol::OtlpHttp, SystemTime::UNIX_EPOCH)
        else {
            panic!()
        };
        assert!(reason.starts_with("the backend responded 400 Bad Request: a\\n\\u{1b}[31mb"), "{reason}");
        assert!(reason.len() < 400 && !reason.contains(['\n', '\x1b']), "{reason}");
    }

    #[test]
    fn an_error_of_otlp_is_decoded() {
        let body = Status { message: "quota exceeded".to_owned(), details: Vec::new() }.encode_to_vec();
        let response = received(400, &[("content-type", "application/x-protobuf")], &body);
        let outcome = response.outcome(Protocol::OtlpHttp, SystemTime::UNIX_EPOCH);
        let expected = "the backend responded 400 Bad Request: quota exceeded".to_owned();
        assert_eq!(outcome, Outcome::Rejected(expected));
    }
}
