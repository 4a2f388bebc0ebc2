//! A symbol server on the loopback device whose responses, including faulty ones, are set by the test.

use std::{
    collections::HashMap,
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use flate2::{Compression, write::GzEncoder};

use crate::loopback_server::{LoopbackServer, ReceivedRequest};

/// The response to a path. Other paths get status 404.
#[derive(Clone, Debug)]
pub enum Response {
    /// A file.
    File(Vec<u8>),
    /// A file, compressed.
    Compressed(Vec<u8>),
    /// The first half of a file, with the length of the whole file in the header.
    Truncated(Vec<u8>),
    /// A redirect to another path of the same server.
    Redirect(String),
    /// A status.
    Status(u16),
    /// An endless body.
    Endless,
    /// The first bytes of a body, then nothing until the client closes the connection.
    Stalled,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct SymbolServer {
    server: LoopbackServer,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    responses: HashMap<String, Response>,
    requested_paths: Mutex<Vec<String>>,
}

impl SymbolServer {
    /// Starts a server.
    ///
    /// # Panics
    /// Panics if no port is available.
    #[must_use]
    pub fn start(responses: impl IntoIterator<Item = (String, Response)>) -> Self {
        let shared = Arc::new(Shared {
            responses: responses.into_iter().collect(),
            requested_paths: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let server = LoopbackServer::start("127.0.0.1:0", move |stream| respond(stream, &served));
        Self { server, shared }
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The requested paths so far.
    ///
    /// # Panics
    /// Panics if the server has panicked.
    #[must_use]
    pub fn requested_paths(&self) -> Vec<String> {
        self.shared.requested_paths.lock().expect("the server is well").clone()
    }
}

fn respond(mut stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let Some(ReceivedRequest { path, .. }) = ReceivedRequest::read(&mut BufReader::new(stream))? else {
        return Ok(());
    };
    shared.requested_paths.lock().expect("the server is well").push(path.clone());
    match shared.responses.get(&path) {
        Some(Response::File(bytes)) => send(stream, "200 OK", &[], bytes.len(), bytes),
        Some(Response::Compressed(bytes)) => {
            let compressed = compress(bytes)?;
            send(stream, "200 OK", &["Content-Encoding: gzip"], compressed.len(), &compressed)
        }
        Some(Response::Truncated(bytes)) => {
            send(stream, "200 OK", &[], bytes.len(), &bytes[..bytes.len() / 2])
        }
        Some(Response::Redirect(path)) => send(stream, "302 Found", &[&format!("Location: {path}")], 0, b""),
        Some(Response::Status(status)) => send(stream, &format!("{status} Status"), &[], 0, b""),
        Some(Response::Endless) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[0; 64 << 10])?;
            }
        }
        Some(Response::Stalled) => {
            send(stream, "200 OK", &[], 40_000_000, &[0x7f; 1_000_000])?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
        None => send(stream, "404 Not Found", &[], 0, b""),
    }
}

fn send(
    mut stream: &TcpStream,
    status: &str,
    headers: &[&str],
    length: usize,
    body: &[u8],
) -> std::io::Result<()> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}
