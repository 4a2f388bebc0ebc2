//! Requests to a program, a moderate number each second.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    has_ended: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    command: Option<Child>,
}

impl Load {
    pub(super) fn start(program: &Program, server: &Server) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (mut clients, mut command) = (Vec::new(), None);
        match program.requests {
            Requests::Text(text) => {
                let client = || Client { port: server.port, text, has_ended: Arc::clone(&has_ended) };
                clients
                    .extend((0..CLIENTS).map(|_| client()).map(|client| thread::spawn(move || client.run())));
            }
            Requests::Command(make) => {
                let mut load = make(server.folder.path(), server.port);
                let load = load.stdout(Stdio::null()).stderr(Stdio::null());
                command = Some(load.spawn().unwrap());
            }
            Requests::None => {}
        }
        Self { has_ended, clients, command }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
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
    has_ended: Arc<AtomicBool>,
}

impl Client {
    fn run(self) {
        while !self.has_ended.load(Ordering::Relaxed) {
            // A server that is busy can reset a connection.
            let _ = self.ask();
            thread::sleep(PAUSE);
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
