//! The URL of a backend.

use http::uri::{Authority, PathAndQuery, Scheme, Uri};

use crate::delivery::{DeliveryError, Destination};

/// The path of OTLP by HTTP (OTLP specification, "OTLP/HTTP Request"; `v1development` while the signal is in development).
const OTLP_PATH: &str = "/v1development/profiles";

/// The method of OTLP by gRPC (`opentelemetry/proto/collector/profiles/v1development/profiles_service.proto`).
const OTLP_METHOD: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The method of Pyroscope's push interface (`push/v1/push.proto`), by Connect.
const PYROSCOPE_METHOD: &str = "/push.v1.PusherService/Push";

/// What is spoken to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    OtlpHttp,
    OtlpGrpc,
    Pyroscope,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) protocol: Protocol,
    pub(super) is_tls: bool,
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of the header `Host`.
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
}

impl Endpoint {
    pub(super) fn new(destination: &Destination) -> Result<Self, DeliveryError> {
        let (protocol, url) = match destination {
            Destination::OtlpHttp { url } => (Protocol::OtlpHttp, url),
            Destination::OtlpGrpc { url } => (Protocol::OtlpGrpc, url),
            Destination::Pyroscope { url } => (Protocol::Pyroscope, url),
        };
        Self::parse(protocol, url)
            .map_err(|reason| DeliveryError::InvalidUrl { url: without_user(url), reason })
    }

    /// An error says what is wrong with the URL.
    fn parse(protocol: Protocol, url: &str) -> Result<Self, String> {
        let uri = url.parse::<Uri>().map_err(|error| error.to_string())?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err("it must begin with `http://` or `https://`".to_owned()),
        };
        let authority = uri.authority().ok_or("it has no host")?.clone();
        if authority.as_str().contains('@') {
            return Err("it has a user: send a header `Authorization` instead".to_owned());
        }
        let host = authority.host();
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        let has_port = authority.as_str().len() > host.len();
        if has_port && authority.port_u16().is_none() {
            return Err("its port is not a number below 65536".to_owned());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = path(protocol, &uri)?.parse::<PathAndQuery>().map_err(|error| error.to_string())?;
        Ok(Self { protocol, is_tls, host, port, authority, path })
    }
}

/// The path of requests to a URL.
fn path(protocol: Protocol, uri: &Uri) -> Result<String, String> {
    let base = uri.path().trim_end_matches('/');
    match protocol {
        Protocol::OtlpHttp if base.is_empty() && uri.query().is_none() => Ok(OTLP_PATH.to_owned()),
        Protocol::OtlpHttp => Ok(uri.path_and_query().map(ToString::to_string).unwrap_or_default()),
        _ if uri.query().is_some() => Err("it has a query: remove it".to_owned()),
        Protocol::OtlpGrpc if base.is_empty() => Ok(OTLP_METHOD.to_owned()),
        Protocol::OtlpGrpc => Err("it has a path, which gRPC does not use: remove it".to_owned()),
        Protocol::Pyroscope => Ok(format!("{}{PYROSCOPE_METHOD}", base.trim_end_matches(PYROSCOPE_METHOD))),
    }
}

/// The URL without a password, for an error.
fn without_user(url: &str) -> String {
    let Some((before, host)) = url.rsplit_once('@') else { return url.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
    format!("{}...@{host}", scheme.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(protocol: Protocol, url: &str) -> String {
        match Endpoint::parse(protocol, url) {
            Ok(endpoint) => format!(
                "{} {} {} {} {}",
                endpoint.is_tls, endpoint.host, endpoint.port, endpoint.authority, endpoint.path
            ),
            Err(reason) => reason,
        }
    }

    #[test]
    fn the_path_of_otlp_is_appended_to_a_url_without_a_path() {
        let expected = "false collector 4318 collector:4318 /v1development/profiles";
        for url in ["http://collector:4318", "http://collector:4318/"] {
            assert_eq!(parse(Protocol::OtlpHttp, url), expected);
        }
        for (url, path) in [
            ("https://a.example/otlp/v1development/profiles", "/otlp/v1development/profiles"),
            ("https://a.example/api/org/v1/profiles?x=y", "/api/org/v1/profiles?x=y"),
            ("https://a.example/api/", "/api/"),
        ] {
            assert_eq!(parse(Protocol::OtlpHttp, url), format!("true a.example 443 a.example {path}"));
        }
    }

    #[test]
    fn grpc_has_one_path() {
        let expected = format!("false ::1 4317 [::1]:4317 {OTLP_METHOD}");
        assert_eq!(parse(Protocol::OtlpGrpc, "http://[::1]:4317"), expected);
        assert!(parse(Protocol::OtlpGrpc, "http://a/path").contains("remove it"));
    }

    #[test]
    fn the_method_of_pyroscope_is_appended_once() {
        for (url, path) in [
            ("http://a:4040", "/push.v1.PusherService/Push"),
            ("http://a:4040/base/", "/base/push.v1.PusherService/Push"),
            ("http://a:4040/push.v1.PusherService/Push", "/push.v1.PusherService/Push"),
        ] {
            assert_eq!(parse(Protocol::Pyroscope, url), format!("false a 4040 a:4040 {path}"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_remedy() {
        for (url, reason) in [
            ("collector:4318", "must begin with `http://`"),
            ("collector", "must begin with `http://`"),
            ("ftp://a", "must begin with `http://`"),
            ("http://user:password@a", "header `Authorization`"),
            ("http://a:70000", "port"),
            ("", "empty"),
        ] {
            let text = parse(Protocol::OtlpHttp, url);
            assert!(text.contains(reason), "{url}: {text}");
        }
    }

    #[test]
    fn an_error_does_not_contain_a_password() {
        let url = "http://user:hunter2@a".to_owned();
        let error = Endpoint::new(&Destination::OtlpHttp { url }).unwrap_err().to_string();
        assert!(error.contains("http://...@a") && !error.contains("hunter2"), "{error}");
    }
}
