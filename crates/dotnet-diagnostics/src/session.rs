//! Opens and stops an EventPipe session.

use std::{
    io,
    time::{Duration, Instant},
};

use profiler_dotnet_symbols::eventpipe::ipc::{self, CollectCommand, Reply, SessionConfig};

use super::{
    command::{SentCommand, no_reply},
    socket::{CancellableDeadline, Connection, Endpoint},
};

/// Time for a reply while no deadline is set. A runtime in a container that has used up its CPU quota takes seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for sending a command. Nothing cancels that.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A session. It is open in the runtime until it is stopped, or until the runtime finds the connection closed when it
/// writes.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) command: CollectCommand,
    id: u64,
    /// Whether the end of a rundown can block the runtime for ever. Before .NET 5, the thread that ends it waits for each thread
    /// that writes an event of it, and holds the lock that such a thread needs for a buffer (dotnet/runtime issue 51579). For
    /// the time of a rundown, each compiled method is such an event. .NET 5 is not distinguished.
    pub(super) rundown_can_block: bool,
}

/// The end of a timeout, or the cancellable deadline if that is earlier.
pub(super) fn limited(timeout: Duration, cancellable: &CancellableDeadline) -> Instant {
    let deadline = Instant::now() + timeout;
    cancellable.get().map_or(deadline, |earlier| earlier.min(deadline))
}

impl Session {
    /// Opens a session with the newest version of the command, from `newest` on, that the runtime knows.
    pub(super) fn open(
        endpoint: &Endpoint,
        config: &SessionConfig<'_>,
        newest: CollectCommand,
        cancellable: &CancellableDeadline,
    ) -> io::Result<Self> {
        let mut rundown_can_block = false;
        for command in CollectCommand::NEWEST_FIRST.iter().copied().skip_while(|known| *known != newest) {
            if command.is_of_old_runtimes() {
                rundown_can_block = is_before_net_6(endpoint, cancellable)?;
            }
            let message = config.encode(command);
            let mut sent = SentCommand::send(endpoint, &message, limited(SEND_TIMEOUT, cancellable))?;
            let reply = sent.receive_reply(limited(REPLY_TIMEOUT, cancellable), Some(cancellable))?;
            match reply.ok_or(io::ErrorKind::TimedOut)? {
                Reply::Success(payload) => {
                    let id = ipc::decode_session_id(&payload).map_err(no_reply)?;
                    return Ok(Self { connection: sent.into_connection(), command, id, rundown_can_block });
                }
                Reply::Error => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "the runtime refuses a session"))
    }

    /// Sends the command that stops the session. The rest of the stream must be read before the reply: a runtime with a
    /// rundown replies after it has written that.
    pub(super) fn send_stop(
        &self,
        endpoint: &Endpoint,
        cancellable: &CancellableDeadline,
    ) -> io::Result<SentCommand> {
        SentCommand::send(endpoint, &ipc::stop_tracing_command(self.id), limited(SEND_TIMEOUT, cancellable))
    }
}

/// Whether the runtime does not know `ProcessInfo2`, a command that changes nothing. Its reply is also awaited because .NET Core 3.1
/// crashes when it opens a session whose connection was closed meanwhile (`EventPipeFile` has no serializer then): one that
/// is stopped or very busy must not find such a command afterwards.
fn is_before_net_6(endpoint: &Endpoint, cancellable: &CancellableDeadline) -> io::Result<bool> {
    let deadline = || limited(REPLY_TIMEOUT, cancellable);
    let mut sent = SentCommand::send(endpoint, &ipc::process_info_command(), deadline())?;
    let reply = sent.receive_reply(deadline(), Some(cancellable))?;
    Ok(matches!(reply.ok_or(io::ErrorKind::TimedOut)?, Reply::Error))
}
