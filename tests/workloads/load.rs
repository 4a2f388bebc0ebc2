//! HTTP load generator: `load SECONDS PORT CONNECTIONS PATH...`. Each connection requests the paths in turns, the
//! next one after the response, so that all paths are requested equally often.
//!
//! Prints `requests N in S s, p99.9 N us, longest N us` with the latencies at the end.

mod lifetime;

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use lifetime::Lifetime;

/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

struct Connection {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream), body: Vec::new() })
    }

    fn request(&mut self, path: &str) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(format!("{path}: {status}")));
        }
        match self.content_length()? {
            Some(length) => self.read_body(length),
            None => self.read_chunks(),
        }
    }

    /// Reads the rest of the header. A response without a length is chunked.
    fn content_length(&mut self) -> io::Result<Option<usize>> {
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(length);
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
        }
    }

    fn read_chunks(&mut self) -> io::Result<()> {
        loop {
            let length = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            self.read_body(length)?;
            self.line()?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn read_body(&mut self, length: usize) -> io::Result<()> {
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the server hung up"));
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The latencies of all responses in microseconds.
fn latencies_us(port: u16, paths: &[String], first: usize, lifetime: &Lifetime) -> io::Result<Vec<u64>> {
    let mut connection = Connection::open(port)?;
    let mut latencies = Vec::new();
    for path in paths.iter().cycle().skip(first).take_while(|_| lifetime.goes_on()) {
        let asked = Instant::now();
        connection.request(path)?;
        latencies.push(asked.elapsed().as_micros() as u64);
    }
    Ok(latencies)
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(2).collect();
    let [port, connections, paths @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: load SECONDS PORT CONNECTIONS PATH..."));
    };
    let port = port.parse().map_err(io::Error::other)?;
    let connections: usize = connections.parse().map_err(io::Error::other)?;
    let (lifetime, started) = (Lifetime::begin(), Instant::now());
    let mut latencies = thread::scope(|scope| {
        let lifetime = &lifetime;
        let ask = |first| scope.spawn(move || latencies_us(port, paths, first, lifetime));
        let connections: Vec<_> = (0..connections).map(ask).collect();
        let answers = connections.into_iter().map(|connection| connection.join().expect("no thread panics"));
        answers.collect::<io::Result<Vec<_>>>()
    })?
    .concat();
    latencies.sort_unstable();
    let seconds = started.elapsed().as_secs_f64();
    let longest = latencies.last().copied().unwrap_or(0);
    let rare = latencies.get(latencies.len() * 999 / 1000).copied().unwrap_or(0);
    println!("requests {} in {seconds:.3} s, p99.9 {rare} us, longest {longest} us", latencies.len());
    Ok(())
}
