//! A server on the loopback device, and the HTTP requests that it reads.

use std::{
    io::{self, BufRead, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use flate2::read::GzDecoder;

/// A running server. Each connection has a thread. Dropping it stops the listener.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    has_ended: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl LoopbackServer {
    /// Starts a server at `HOST:PORT`; the kernel chooses port 0. A connection ends with `serve`, whose error is ignored,
    /// because a client may close the connection early.
    ///
    /// # Panics
    /// Panics if the address is not available.
    pub fn start(
        address: &str,
        serve: impl Fn(&TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        let address = listener.local_addr().expect("it has one");
        let has_ended = Arc::new(AtomicBool::new(false));
        let (ending, serve) = (Arc::clone(&has_ended), Arc::new(serve));
        let listener = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ending.load(Ordering::Acquire) {
                    return;
                }
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || drop(serve(&stream)));
            }
        });
        Self { address, has_ended, listener: Some(listener) }
    }

    /// The URL without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method: `GET`.
    pub method: String,
    /// The path of the URL, with its parameters.
    pub path: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body, uncompressed.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// Reads the next request of a connection; `None` at its end.
    ///
    /// # Errors
    /// The connection ends within the request, or the body is not compressed as its header says.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { method, path, headers, body: Vec::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if request.header("content-encoding") == Some("gzip") {
            GzDecoder::new(&*body).read_to_end(&mut request.body)?;
        } else {
            request.body = body;
        }
        Ok(Some(request))
    }

    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
