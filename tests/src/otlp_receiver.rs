//! A receiver of OTLP profiles over HTTP on the loopback device, which responds as the test decides.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::{Arc, Condvar, Mutex},
};

use crate::loopback_server::{LoopbackServer, ReceivedRequest};

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// It takes it.
    Accept,
    /// It reads it and never responds.
    Hang,
    /// It responds with this status.
    Status(u16),
}

/// A running receiver. Dropping it stops it.
#[derive(Debug)]
pub struct OtlpReceiver {
    server: LoopbackServer,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reception: Mutex<Reception>,
    requests: Mutex<Vec<ReceivedRequest>>,
    received: Condvar,
}

impl OtlpReceiver {
    /// Starts a receiver at a port that the kernel chooses.
    ///
    /// # Panics
    /// Panics if no port is available.
    #[must_use]
    pub fn start(reception: Reception) -> Self {
        Self::start_at("127.0.0.1:0", reception)
    }

    /// Starts a receiver at this address, `HOST:PORT`.
    ///
    /// # Panics
    /// Panics if the address is not available.
    #[must_use]
    pub fn start_at(address: &str, reception: Reception) -> Self {
        let shared = Arc::new(Shared {
            reception: Mutex::new(reception),
            requests: Mutex::default(),
            received: Condvar::new(),
        });
        let served = Arc::clone(&shared);
        let server = LoopbackServer::start(address, move |stream| receive(stream, &served));
        Self { server, shared }
    }

    /// The URL without a path.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Decides about the requests that follow.
    ///
    /// # Panics
    /// Panics if the receiver has panicked.
    pub fn set_reception(&self, reception: Reception) {
        *self.shared.reception.lock().expect("the receiver is well") = reception;
    }

    /// Waits for requests, and takes them out.
    ///
    /// # Panics
    /// Panics if the receiver has panicked.
    #[must_use]
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        let requests = self.shared.requests.lock().expect("the receiver is well");
        let waited = self.shared.received.wait_while(requests, |requests| requests.is_empty());
        std::mem::take(&mut waited.expect("the receiver is well"))
    }

    /// All requests so far, those that were not accepted included.
    ///
    /// # Panics
    /// Panics if the receiver has panicked.
    #[must_use]
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().expect("the receiver is well").clone()
    }
}

/// Receives the requests of one connection.
fn receive(mut stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = ReceivedRequest::read(&mut reader)? {
        shared.requests.lock().expect("the receiver is well").push(request);
        shared.received.notify_all();
        let reception = *shared.reception.lock().expect("the receiver is well");
        let status = match reception {
            Reception::Accept => "200 OK".to_owned(),
            Reception::Status(status) => format!("{status} Status"),
            Reception::Hang => return reader.read_to_end(&mut Vec::new()).map(drop),
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes())?;
    }
    Ok(())
}
