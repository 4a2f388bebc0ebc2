//! Sends a command to a runtime, and receives the reply, which may take long.

use std::{io, time::Instant};

use profiler_binary_reader::ParseError;
use profiler_dotnet_symbols::eventpipe::ipc::{self, Reply};

use super::socket::{CancellableDeadline, Connection, Endpoint, Received};

/// A command that was sent on a connection of its own.
#[derive(Debug)]
pub(super) struct SentCommand {
    connection: Connection,
    /// The received part of the reply, and no byte of what may follow it.
    received: Vec<u8>,
}

impl SentCommand {
    /// Connects to the runtime and sends a command.
    pub(super) fn send(endpoint: &Endpoint, message: &[u8], deadline: Instant) -> io::Result<Self> {
        let connection = endpoint.connect(deadline)?;
        connection.send(message, deadline)?;
        Ok(Self { connection, received: Vec::new() })
    }

    /// Receives the reply, which is returned once. `None` is a reply that did not arrive before the deadline, or before
    /// an earlier one that was set on `cancellable` meanwhile.
    pub(super) fn receive_reply(
        &mut self,
        mut deadline: Instant,
        mut cancellable: Option<&CancellableDeadline>,
    ) -> io::Result<Option<Reply>> {
        loop {
            let missing = ipc::missing_reply_bytes(&self.received).map_err(no_reply)?;
            if missing == 0 {
                let received = std::mem::take(&mut self.received);
                return ipc::decode_reply(&received).map(Some).map_err(no_reply);
            }
            let mut bytes = vec![0; missing];
            match self.connection.receive(&mut bytes, deadline, cancellable) {
                Ok(Received::Bytes(count)) => {
                    self.received.extend_from_slice(bytes.get(..count).unwrap_or_default());
                }
                Ok(Received::Cancelled) => {
                    let earlier = cancellable.take().and_then(CancellableDeadline::get);
                    deadline = earlier.map_or(deadline, |earlier| earlier.min(deadline));
                }
                Ok(Received::End) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection, for what follows the reply.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }
}

/// The error for a reply that is not one of the diagnostics protocol.
pub(super) fn no_reply(_: ParseError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reply is not one of a .NET runtime")
}
