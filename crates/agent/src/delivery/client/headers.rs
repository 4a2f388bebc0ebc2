//! The headers of each request.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use hyper::{
    HeaderMap,
    header::{self, HeaderName, HeaderValue},
};

use super::endpoint::Protocol;
use crate::delivery::{DeliveryError, DeliveryOptions};

/// A larger file is no token.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Headers that describe the connection or the body.
const RESERVED: [HeaderName; 10] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What is sent with each message.
#[derive(Debug)]
pub(super) struct Headers {
    fixed: HeaderMap,
    token: Option<Token>,
}

/// A bearer token (RFC 6750, section 2.1) and the file that it is read from.
#[derive(Debug)]
struct Token {
    path: PathBuf,
    value: HeaderValue,
}

impl Headers {
    pub(super) fn new(protocol: Protocol, options: &DeliveryOptions) -> Result<Self, DeliveryError> {
        let mut fixed = HeaderMap::new();
        for (name, value) in &options.headers {
            let (name, value) = parse(name, value)
                .map_err(|reason| DeliveryError::InvalidHeader { name: name.clone(), reason })?;
            fixed.append(name, value);
        }
        if options.bearer_token_file.is_some() && fixed.contains_key(header::AUTHORIZATION) {
            let reason = "the bearer token is sent in it: give one of both".to_owned();
            return Err(DeliveryError::InvalidHeader { name: header::AUTHORIZATION.to_string(), reason });
        }
        let agent = concat!("profiler/", env!("CARGO_PKG_VERSION"));
        fixed.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(agent));
        add_protocol_headers(&mut fixed, protocol);
        let token = options.bearer_token_file.as_deref().map(Token::new).transpose()?;
        Ok(Self { fixed, token })
    }

    /// The headers of the next request, with the token that the file contains now.
    pub(super) fn current(&mut self) -> HeaderMap {
        let mut headers = self.fixed.clone();
        if let Some(token) = &mut self.token {
            headers.insert(header::AUTHORIZATION, token.current());
        }
        headers
    }
}

impl Token {
    fn new(path: &Path) -> Result<Self, DeliveryError> {
        let value =
            read_token(path).map_err(|source| DeliveryError::Token { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), value })
    }

    fn current(&mut self) -> HeaderValue {
        match read_token(&self.path) {
            Ok(value) => self.value = value,
            Err(error) => {
                let path = self.path.display();
                log::warn!("failed to read the bearer token from {path}, the last one is sent: {error}");
            }
        }
        self.value.clone()
    }
}

fn read_token(path: &Path) -> io::Result<HeaderValue> {
    let mut text = String::new();
    File::open(path)?.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text)?;
    let token = text.trim();
    if token.is_empty() || text.len() as u64 > MAX_TOKEN_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty or larger than 64 KiB"));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

/// An error says why the header cannot be sent.
fn parse(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name: HeaderName =
        name.parse().map_err(|_| "its name has other characters than a header".to_owned())?;
    if RESERVED.contains(&name) {
        return Err("the profiler sets it itself: remove it".to_owned());
    }
    let mut value =
        HeaderValue::from_str(value).map_err(|_| "its value has a control character".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn add_protocol_headers(headers: &mut HeaderMap, protocol: Protocol) {
    let added: &[(&'static str, &'static str)] = match protocol {
        // OTLP specification, "OTLP/HTTP Request".
        Protocol::OtlpHttp => &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")],
        // gRPC over HTTP2, "Requests".
        Protocol::OtlpGrpc => &[
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-encoding", "gzip"),
            ("grpc-accept-encoding", "identity"),
        ],
        // Connect protocol, "Unary-Request".
        Protocol::Pyroscope => &[
            ("content-type", "application/proto"),
            ("content-encoding", "gzip"),
            ("connect-protocol-version", "1"),
        ],
    };
    for (name, value) in added {
        headers.insert(*name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::delivery::Destination;

    fn options(headers: &[(&str, &str)], token: Option<&Path>) -> DeliveryOptions {
        DeliveryOptions {
            destination: Destination::OtlpHttp { url: "http://a".to_owned() },
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            bearer_token_file: token.map(Path::to_owned),
            ca_file: None,
            spool: None,
            timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_token_is_read_again_when_its_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "first\n").unwrap();
        let mut headers = Headers::new(Protocol::OtlpHttp, &options(&[], Some(&path))).unwrap();
        let mut token = || headers.current()["authorization"].to_str().unwrap().to_owned();
        assert_eq!(token(), "Bearer first");
        // Kubernetes replaces the directory that a link points to; the new file can have the same length and time.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "other").unwrap();
        assert_eq!(token(), "Bearer other");
        for unusable in ["", "a\nb"] {
            fs::write(&path, unusable).unwrap();
            assert_eq!(token(), "Bearer other");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(token(), "Bearer other");
        assert!(Headers::new(Protocol::OtlpHttp, &options(&[], Some(&path))).is_err());
    }

    #[test]
    fn headers_that_would_break_a_request_are_refused() {
        for (name, value) in
            [("Content-Length", "1"), ("Host", "a"), ("a b", "c"), ("a", "b\r\nc: d"), ("", "a")]
        {
            let error = Headers::new(Protocol::OtlpHttp, &options(&[(name, value)], None)).unwrap_err();
            assert!(matches!(error, DeliveryError::InvalidHeader { .. }), "{error}");
        }
        let two = options(&[("Authorization", "Basic x")], Some(Path::new("/dev/null")));
        assert!(Headers::new(Protocol::OtlpHttp, &two).unwrap_err().to_string().contains("one of both"));
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = options(&[("X-Scope-OrgID", "hunter2")], None);
        let headers = Headers::new(Protocol::Pyroscope, &options).unwrap();
        assert_eq!(headers.fixed["x-scope-orgid"], "hunter2");
        for text in [format!("{options:?}"), format!("{headers:?}")] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
