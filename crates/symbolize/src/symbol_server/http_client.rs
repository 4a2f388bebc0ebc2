//! The HTTP client for symbol servers, with limits on time and redirects.

use std::time::Duration;

use ureq::{
    Agent,
    http::{HeaderMap, StatusCode, header},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::transport::{Response, Transport, TransportError};

/// Time limit of name resolution, and of the TCP and TLS handshakes.
const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Time limit of the response header. A debuginfod server may have to unpack a package first.
const RESPONSE_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Symbol servers redirect to a file store, which may redirect again.
const MAX_REDIRECTS: u32 = 5;

/// Environment variable with a file of root certificates, which replace those of Mozilla. OpenSSL uses it too.
const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// Header of debuginfod with the size of the file, also when the response is compressed.
const DEBUGINFOD_SIZE_HEADER: &str = "x-debuginfod-size";

/// Requests files by HTTP and HTTPS.
#[derive(Debug)]
pub(super) struct HttpClient {
    agent: Agent,
}

impl HttpClient {
    pub(super) fn new() -> Self {
        let roots = custom_certificates().unwrap_or(RootCerts::WebPki);
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .timeout_connect(Some(CONNECT_TIME_LIMIT))
            .timeout_resolve(Some(CONNECT_TIME_LIMIT))
            .timeout_recv_response(Some(RESPONSE_TIME_LIMIT))
            .max_redirects(MAX_REDIRECTS)
            .http_status_as_error(false)
            .user_agent(concat!("profiler/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into() }
    }
}

impl Transport for HttpClient {
    fn get(&self, url: &str, time_limit: Duration) -> Result<Response, TransportError> {
        // A redirect from HTTPS to HTTP is an error.
        let is_https = url.starts_with("https://");
        let request =
            self.agent.get(url).config().https_only(is_https).timeout_global(Some(time_limit)).build();
        let response = request.call().map_err(|error| TransportError::Failed(error.to_string()))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(TransportError::NotFound),
            status => {
                return Err(TransportError::Failed(format!("the response has status {}", status.as_u16())));
            }
        }
        let length_bytes = length_bytes(response.headers());
        Ok(Response { length_bytes, body: Box::new(response.into_body().into_reader()) })
    }
}

/// The size of the file. `Content-Length` is the size of the compressed body when there is a `Content-Encoding`.
fn length_bytes(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse().ok();
    let is_compressed = headers.contains_key(header::CONTENT_ENCODING);
    let content_length = if is_compressed { None } else { number(header::CONTENT_LENGTH.as_str()) };
    content_length.or_else(|| number(DEBUGINFOD_SIZE_HEADER))
}

fn custom_certificates() -> Option<RootCerts> {
    let path = std::env::var_os(CERTIFICATES_VARIABLE)?;
    let certificates: Vec<_> = match std::fs::read(&path) {
        Ok(text) => parse_pem(&text)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect(),
        Err(error) => {
            log::warn!("failed to read the certificates of {CERTIFICATES_VARIABLE}: {error}");
            return None;
        }
    };
    Some(RootCerts::from(certificates))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// The client's result for a response.
    fn get(response: &str) -> Result<(Option<u64>, io::Result<Vec<u8>>), TransportError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(response.as_bytes()).unwrap();
            });
            let response = HttpClient::new().get(&url, Duration::from_secs(30))?;
            let mut bytes = Vec::new();
            let mut body = response.body;
            Ok((response.length_bytes, body.read_to_end(&mut bytes).map(|_| bytes)))
        })
    }

    #[test]
    fn a_response_has_the_size_of_the_file() {
        let (length, body) = get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nELF").unwrap();
        assert_eq!((length, body.unwrap()), (Some(3), b"ELF".to_vec()));
        let uncompressed = "HTTP/1.1 200 OK\r\nConnection: close\r\nX-DEBUGINFOD-SIZE: 4\r\n\r\nELF!";
        assert_eq!(get(uncompressed).unwrap().0, Some(4));
    }

    #[test]
    fn a_truncated_body_is_an_error() {
        let (_, body) = get("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nELF").unwrap();
        assert!(body.is_err());
    }

    #[test]
    fn a_missing_file_is_distinguished_from_a_failure() {
        assert_eq!(get("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").err(), Some(TransportError::NotFound));
        for response in ["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "no HTTP at all\r\n\r\n", ""] {
            assert!(matches!(get(response), Err(TransportError::Failed(_))), "{response}");
        }
    }
}
