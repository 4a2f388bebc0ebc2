//! A command to a runtime, and its answer, which may be a long time coming.

use profiler_dotnet_symbols::eventpipe::ipc::{self, Reply};
use std::{io, time::Instant};

use super::socket::{Connection, Endpoint, Patience, Received};

/// A command that was sent on a connection of its own.
#[derive(Debug)]
pub(super) struct Question {
    connection: Connection,
    /// What has arrived of the reply, and no byte of what may follow it.
    received: Vec<u8>,
}

impl Question {
    /// Sends a command.
    pub(super) fn ask(endpoint: &Endpoint, message: &[u8], until: Instant) -> io::Result<Self> {
        let connection = endpoint.connect(until)?;
        connection.send(message, until)?;
        Ok(Self { connection, received: Vec::new() })
    }

    /// The reply, `None` when it is not there by then, or by when somebody calls for. It is given once.
    pub(super) fn reply(
        &mut self,
        mut until: Instant,
        mut patience: Option<&Patience>,
    ) -> io::Result<Option<Reply>> {
        loop {
            let missing = ipc::missing_bytes(&self.received).map_err(no_reply)?;
            if missing == 0 {
                let received = std::mem::take(&mut self.received);
                return ipc::reply(&received).map(Some).map_err(no_reply);
            }
            let mut bytes = vec![0; missing];
            match self.connection.receive(&mut bytes, until, patience) {
                Ok(Received::Bytes(count)) => {
                    self.received.extend_from_slice(bytes.get(..count).unwrap_or_default());
                }
                Ok(Received::Called) => {
                    let ends = patience.take().and_then(Patience::ends);
                    until = ends.map_or(until, |ends| ends.min(until));
                }
                Ok(Received::End) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// What follows the reply comes through it.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }
}

/// An answer that no runtime gives.
pub(super) fn no_reply(_: ipc::NoReply) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is none of a .NET runtime")
}
