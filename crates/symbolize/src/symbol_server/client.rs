//! The HTTP client: one request after the other, with a limit on everything.

use std::time::Duration;

use ureq::{
    Agent,
    http::{HeaderMap, StatusCode, header},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::http::{Refusal, Reply, Transport};

/// To find the server and to agree with it on a key.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Until the answer begins. A debuginfod may have to unpack a package first.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Symbol servers lead to a store, which may lead to another.
const MAX_REDIRECTS: u32 = 5;

/// A file of certificates to trust in place of Mozilla's, as for other programs: for a network that has its own.
const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// What a debuginfod says of the length when it packs the answer as it sends it.
const DEBUGINFOD_SIZE: &str = "x-debuginfod-size";

/// Asks servers over the network.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
}

impl Client {
    pub(super) fn new() -> Self {
        let roots = own_certificates().unwrap_or(RootCerts::WebPki);
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_resolve(Some(CONNECT_TIME))
            .timeout_recv_response(Some(ANSWER_TIME))
            .max_redirects(MAX_REDIRECTS)
            .http_status_as_error(false)
            .user_agent(concat!("profiler/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into() }
    }
}

impl Transport for Client {
    fn get(&self, url: &str, time_limit: Duration) -> Result<Reply, Refusal> {
        // Who asks by a safe way is not led to an unsafe one.
        let is_safe = url.starts_with("https://");
        let request =
            self.agent.get(url).config().https_only(is_safe).timeout_global(Some(time_limit)).build();
        let response = request.call().map_err(|error| Refusal::Failed(error.to_string()))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Refusal::NotThere),
            status => return Err(Refusal::Failed(format!("it answers with status {}", status.as_u16()))),
        }
        let length_bytes = length_bytes(response.headers());
        Ok(Reply { length_bytes, body: Box::new(response.into_body().into_reader()) })
    }
}

/// The length of the file, not that of what is sent when it is packed.
fn length_bytes(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse().ok();
    let is_packed = headers.contains_key(header::CONTENT_ENCODING);
    let sent = if is_packed { None } else { number(header::CONTENT_LENGTH.as_str()) };
    sent.or_else(|| number(DEBUGINFOD_SIZE))
}

fn own_certificates() -> Option<RootCerts> {
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

    /// What the client makes of one answer.
    fn get(answer: &str) -> Result<(Option<u64>, io::Result<Vec<u8>>), Refusal> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let reply = Client::new().get(&url, Duration::from_secs(30))?;
            let mut bytes = Vec::new();
            let mut body = reply.body;
            Ok((reply.length_bytes, body.read_to_end(&mut bytes).map(|_| bytes)))
        })
    }

    #[test]
    fn a_file_comes_with_its_length() {
        let (length, body) = get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nELF").unwrap();
        assert_eq!((length, body.unwrap()), (Some(3), b"ELF".to_vec()));
        let unpacked = "HTTP/1.1 200 OK\r\nConnection: close\r\nX-DEBUGINFOD-SIZE: 4\r\n\r\nELF!";
        assert_eq!(get(unpacked).unwrap().0, Some(4));
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        let (_, body) = get("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nELF").unwrap();
        assert!(body.is_err());
    }

    #[test]
    fn what_is_missing_is_told_from_what_fails() {
        assert_eq!(get("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").err(), Some(Refusal::NotThere));
        for answer in ["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "no HTTP at all\r\n\r\n", ""] {
            assert!(matches!(get(answer), Err(Refusal::Failed(_))), "{answer}");
        }
    }
}
