//! Requests the list of pods from the kubelet.

use std::{fs, io::Read, path::PathBuf, time::Duration};

use ureq::{
    Agent,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::{KubeletError, KubeletOptions, pods::Pods};

/// Time limit of a request.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a list of pods. That of a node with 500 pods has some 10 MiB.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// Bytes of a file with a token. That of a service account has some kilobytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Prefixes of URLs to which a token is sent: TLS, and a proxy on the same host.
const URL_PREFIXES: [&str; 3] = ["https://", "http://127.0.0.1:", "http://localhost:"];

/// A client for a kubelet.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    url: String,
    token_file: Option<PathBuf>,
}

impl Client {
    pub(super) fn new(options: KubeletOptions) -> Result<Self, KubeletError> {
        let KubeletOptions { url, token_file, ca_file } = options;
        if !URL_PREFIXES.iter().any(|prefix| url.starts_with(prefix)) {
            return Err(KubeletError::Url { url });
        }
        let roots = ca_file.map_or(Ok(RootCerts::WebPki), |path| certificates(path).map(RootCerts::from))?;
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .timeout_global(Some(TIME_LIMIT))
            .max_redirects(0)
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let url = format!("{}/pods", url.trim_end_matches('/'));
        Ok(Self { agent: config.into(), url, token_file })
    }

    /// The pods of the node.
    pub(super) fn pods(&self) -> Result<Pods, KubeletError> {
        let failed = |error: &dyn std::fmt::Display| KubeletError::Request { reason: error.to_string() };
        let mut request = self.agent.get(&self.url);
        if let Some(token) = self.token()? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| failed(&error))?;
        if response.status() != http::StatusCode::OK {
            return Err(KubeletError::Status { status: response.status().as_u16() });
        }
        let mut list = Vec::new();
        let body = response.into_body().into_reader();
        body.take(MAX_LIST_BYTES + 1).read_to_end(&mut list).map_err(|error| failed(&error))?;
        if list.len() as u64 > MAX_LIST_BYTES {
            return Err(failed(&format_args!("the list of pods has more than {MAX_LIST_BYTES} bytes")));
        }
        Pods::parse(&list).map_err(|error| failed(&error))
    }

    /// The token. The kubelet on the node replaces the file before the token expires, so that it is read for each request.
    fn token(&self) -> Result<Option<String>, KubeletError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |source| KubeletError::File { path: path.clone(), source };
        let mut token = String::new();
        let file = fs::File::open(path).map_err(failed)?;
        file.take(MAX_TOKEN_BYTES).read_to_string(&mut token).map_err(failed)?;
        Ok(Some(token.trim().to_owned()))
    }
}

fn certificates(path: PathBuf) -> Result<Vec<Certificate<'static>>, KubeletError> {
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(source) => return Err(KubeletError::File { path, source }),
    };
    let items = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = items.collect();
    if certificates.is_empty() { Err(KubeletError::NoCertificate { path }) } else { Ok(certificates) }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener, thread};

    use super::*;

    /// The result for a response, and the request.
    fn request(response: &str) -> (Result<Pods, KubeletError>, String) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let token = tempfile::NamedTempFile::new().unwrap();
        fs::write(token.path(), "secret\n").unwrap();
        let options = KubeletOptions {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            token_file: Some(token.path().to_owned()),
            ca_file: None,
        };
        let client = Client::new(options).unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                stream.write_all(response.as_bytes()).unwrap();
                String::from_utf8(request[..length].to_vec()).unwrap()
            });
            let pods = client.pods();
            (pods, server.join().unwrap())
        })
    }

    #[test]
    fn the_list_is_requested_with_the_token() {
        let list = r#"{"items": [{"metadata": {"uid": "u", "labels": {"app": "web"}}}]}"#;
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{list}", list.len());
        let (pods, request) = request(&response);
        assert_eq!(pods.unwrap().get("u").unwrap().service.as_deref(), Some("web"));
        assert!(request.starts_with("GET /pods HTTP/1.1\r\n"), "{request}");
        assert!(request.to_ascii_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{request}");
    }

    #[test]
    fn refusals_and_other_answers_are_errors() {
        let (refused, _) = request("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("403") && message.contains("`nodes/pods`"), "{message}");
        let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        for response in [moved, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "no HTTP\r\n\r\n"] {
            assert!(request(response).0.is_err(), "{response}");
        }
    }

    #[test]
    fn files_and_urls_are_checked() {
        let options = |url: &str| KubeletOptions { url: url.to_owned(), token_file: None, ca_file: None };
        for url in ["http://10.0.0.1:10255", "http://127.0.0.1.example:1", "node:10250", ""] {
            let error = Client::new(options(url)).unwrap_err().to_string();
            assert!(error.contains("https://"), "{error}");
        }
        let url = "https://node:10250";
        let empty = tempfile::NamedTempFile::new().unwrap();
        for ca_file in [empty.path().to_owned(), "/no/such/file".into()] {
            let error =
                Client::new(KubeletOptions { ca_file: Some(ca_file.clone()), ..options(url) }).unwrap_err();
            assert!(error.to_string().contains(&*ca_file.to_string_lossy()), "{error}");
        }
        let token_file = Some("/no/such/token".into());
        let client = Client::new(KubeletOptions { token_file, ..options(url) }).unwrap();
        assert!(client.pods().unwrap_err().to_string().contains("/no/such/token"));
    }
}
