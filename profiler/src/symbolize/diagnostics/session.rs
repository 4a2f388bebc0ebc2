//! One session of events with a .NET runtime: opened, read, and stopped through a second connection.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    ipc::{self, Collect, Dialect, Reply},
    socket::{Connection, Endpoint},
};

/// How long a runtime may take to answer a command. One that stops the world for a garbage collection answers later.
const REPLY_TIME: Duration = Duration::from_secs(1);

/// A session that is open on the runtime's side until it is stopped, or its connection is closed and the runtime
/// notices when it next writes.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) dialect: Dialect,
    id: u64,
}

/// How a reply is waited for: not beyond `until`, where that is before its own limit.
fn reply_by(until: Option<Instant>) -> Instant {
    let own = Instant::now() + REPLY_TIME;
    until.map_or(own, |until| until.min(own))
}

impl Session {
    /// Opens a session, in the newest dialect from `dialect` on that the runtime understands.
    pub(super) fn open(
        endpoint: &Endpoint,
        collect: &Collect,
        dialect: Dialect,
        until: Option<Instant>,
    ) -> io::Result<Self> {
        for dialect in Dialect::ALL.into_iter().skip_while(|known| *known != dialect) {
            let (connection, reply) = ask(endpoint, &collect.message(dialect), until)?;
            if let Reply::Session(id) = reply {
                return Ok(Self { connection, dialect, id });
            }
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "the runtime refuses a session"))
    }

    /// Asks the runtime to stop. What it has to say still comes, and must be read meanwhile: a runtime with a rundown
    /// answers when that is written.
    pub(super) fn ask_to_stop(&self, endpoint: &Endpoint, until: Option<Instant>) -> io::Result<Connection> {
        let until = reply_by(until);
        let connection = endpoint.connect(until)?;
        connection.send(&ipc::stop(self.id), until)?;
        Ok(connection)
    }
}

fn ask(endpoint: &Endpoint, message: &[u8], until: Option<Instant>) -> io::Result<(Connection, Reply)> {
    let until = reply_by(until);
    let connection = endpoint.connect(until)?;
    connection.send(message, until)?;
    let mut header = [0; ipc::HEADER_BYTES];
    connection.receive_exactly(&mut header, until)?;
    let mut body = vec![0; ipc::body_bytes(&header).map_err(no_reply)?];
    connection.receive_exactly(&mut body, until)?;
    Ok((connection, ipc::reply(&header, &body).map_err(no_reply)?))
}

fn no_reply(_: ipc::NoReply) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is none of a .NET runtime")
}
