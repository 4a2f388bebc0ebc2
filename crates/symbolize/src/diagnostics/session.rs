//! One session of events with a .NET runtime: opened, read, and stopped through a second connection.

use profiler_dotnet_symbols::eventpipe::ipc::{self, Collect, Dialect, Reply};
use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    question::{Question, no_reply},
    socket::{Connection, Endpoint, Patience},
};

/// How long a runtime may take to answer a command, while nobody waits. One in a container that has used up its CPU time
/// takes seconds.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// How long it may take to send a command: nobody can end that.
const SEND_TIME: Duration = Duration::from_secs(1);

/// A session that is open on the runtime's side until it is stopped, or its connection is closed and the runtime
/// notices when it next writes.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) dialect: Dialect,
    id: u64,
}

/// Until when something may last: not longer than `limit`, nor than somebody called for.
fn limited(limit: Duration, patience: &Patience) -> Instant {
    let own = Instant::now() + limit;
    patience.ends().map_or(own, |ends| ends.min(own))
}

impl Session {
    /// Opens a session, in the newest dialect from `dialect` on that the runtime understands.
    pub(super) fn open(
        endpoint: &Endpoint,
        collect: &Collect,
        dialect: Dialect,
        patience: &Patience,
    ) -> io::Result<Self> {
        for dialect in Dialect::ALL.into_iter().skip_while(|known| *known != dialect) {
            let message = collect.message(dialect);
            let mut question = Question::ask(endpoint, &message, limited(SEND_TIME, patience))?;
            let reply = question.reply(limited(REPLY_TIME, patience), Some(patience))?;
            match reply.ok_or(io::ErrorKind::TimedOut)? {
                Reply::Done(body) => {
                    let id = ipc::session(&body).map_err(no_reply)?;
                    return Ok(Self { connection: question.into_connection(), dialect, id });
                }
                Reply::Refused => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "the runtime refuses a session"))
    }

    /// Asks the runtime to stop. What it has to say still comes, and must be read meanwhile: a runtime with a rundown
    /// answers when that is written.
    pub(super) fn ask_to_stop(&self, endpoint: &Endpoint, patience: &Patience) -> io::Result<Question> {
        Question::ask(endpoint, &ipc::stop(self.id), limited(SEND_TIME, patience))
    }
}
