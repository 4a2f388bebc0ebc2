//! A server of HTTP/1.1 that does to each request what a test says.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// What happens to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// It is read and gets these bytes.
    Bytes(Vec<u8>),
    /// It is read and gets these bytes. The connection is closed then.
    BytesAndClose(Vec<u8>),
    /// It is read in small pieces with pauses, and gets these bytes.
    SlowBytes(Vec<u8>),
    /// It is read and gets these bytes, and body bytes without an end.
    Endless(Vec<u8>),
    /// It is read and gets no response.
    Hang,
    /// It gets these bytes before its body is read, and no more is read.
    WithoutReading(Vec<u8>),
}

/// A request as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Accepts connections until the test process ends.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

/// A stream, encrypted or not.
pub(crate) trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl Server {
    /// `script` gets the index of each request.
    pub(crate) fn start(script: impl FnMut(usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self::start_on(listener, |stream| Ok(Box::new(stream)), script)
    }

    pub(crate) fn start_on(
        listener: TcpListener,
        wrap: impl Fn(TcpStream) -> io::Result<Box<dyn ReadWrite>> + Send + Sync + 'static,
        script: impl FnMut(usize) -> Reply + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let server = Self { address, requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        let script = Arc::new(Mutex::new((0, script)));
        let wrap = Arc::new(wrap);
        thread::spawn(move || {
            for stream in listener.incoming() {
                connections.fetch_add(1, Ordering::Relaxed);
                let stream = stream.unwrap();
                let (wrap, script, requests) =
                    (Arc::clone(&wrap), Arc::clone(&script), Arc::clone(&requests));
                thread::spawn(move || {
                    let next = || {
                        let (count, script) = &mut *script.lock().unwrap();
                        *count += 1;
                        script(*count - 1)
                    };
                    // The client may close the connection at any time.
                    let _ = wrap(stream).and_then(|stream| serve(stream, next, &requests));
                });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A response with a body.
pub(crate) fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn ok() -> Reply {
    Reply::Bytes(response("200 OK", "Content-Type: application/x-protobuf\r\n", b""))
}

pub(crate) fn status(status: &str) -> Reply {
    Reply::Bytes(response(status, "", b""))
}

fn serve(
    stream: Box<dyn ReadWrite>,
    mut next: impl FnMut() -> Reply,
    requests: &Mutex<Vec<Request>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while !stream.fill_buf()?.is_empty() {
        let reply = next();
        let head = read_head(&mut stream)?;
        if let Reply::WithoutReading(bytes) = &reply {
            stream.get_mut().write_all(bytes)?;
            requests.lock().unwrap().push(Request { head, body: Vec::new() });
            // Until the test process ends.
            loop {
                thread::park();
            }
        }
        let request = Request { body: Vec::new(), head };
        let length: usize = request.header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        let is_slow = matches!(reply, Reply::SlowBytes(_));
        for piece in body.chunks_mut(if is_slow { 4096 } else { length.max(1) }) {
            stream.read_exact(piece)?;
            if is_slow {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
        requests.lock().unwrap().push(Request { body, ..request });
        match reply {
            Reply::Bytes(bytes) | Reply::SlowBytes(bytes) => stream.get_mut().write_all(&bytes)?,
            Reply::BytesAndClose(bytes) => return stream.get_mut().write_all(&bytes),
            Reply::Endless(bytes) => {
                stream.get_mut().write_all(&bytes)?;
                loop {
                    stream.get_mut().write_all(&[b'x'; 4096])?;
                }
            }
            Reply::Hang | Reply::WithoutReading(_) => {
                let mut ignored = Vec::new();
                stream.read_to_end(&mut ignored)?;
            }
        }
        stream.get_mut().flush()?;
    }
    Ok(())
}

fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}
