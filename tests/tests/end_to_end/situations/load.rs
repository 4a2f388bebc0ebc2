//! Requests to a program, a moderate number each second.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    programs::{Program, Requests},
    server::Server,
};

/// Clients that ask at the same time, and the pause of each after a request.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// A running load. Dropping it ends it.
pub(super) struct Load {
    clients: Vec<(Sender<()>, JoinHandle<()>)>,
    command: Option<Child>,
}

impl Load {
    pub(super) fn start(program: &Program, server: &Server) -> Self {
        let (mut clients, mut command) = (Vec::new(), None);
        match program.requests {
            Requests::Text(text) => clients.extend((0..CLIENTS).map(|_| Client::start(server.port, text))),
            Requests::Command(make) => {
                let mut load = make(server.folder.path(), server.port);
                let load = load.stdout(Stdio::null()).stderr(Stdio::null());
                command = Some(load.spawn().unwrap());
            }
            Requests::None => {}
        }
        Self { clients, command }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let (ends, threads): (Vec<_>, Vec<_>) = self.clients.drain(..).unzip();
        drop(ends);
        for thread in threads {
            let _ = thread.join();
        }
        if let Some(mut command) = self.command.take() {
            let _ = command.kill();
            let _ = command.wait();
        }
    }
}

struct Client {
    port: u16,
    text: &'static str,
}

impl Client {
    /// Starts a thread, which ends when the sender is dropped.
    fn start(port: u16, text: &'static str) -> (Sender<()>, JoinHandle<()>) {
        let (end, ended) = channel();
        (end, thread::spawn(move || Self { port, text }.run(&ended)))
    }

    fn run(&self, ended: &Receiver<()>) {
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            // A server that is busy can reset a connection.
            let _ = self.ask();
        }
    }

    fn ask(&self) -> io::Result<()> {
        const LONGEST: Duration = Duration::from_secs(5);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LONGEST))?;
        stream.write_all(self.text.as_bytes())?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }
}
