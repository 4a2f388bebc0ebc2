//! Messages of the .NET runtime's diagnostics protocol (dotnet/diagnostics, documentation/design-docs/ipc-protocol.md).
//!
//! A connection takes one command. The reply to one that starts tracing names the session, and the events follow on the
//! same connection; a session is stopped through another one.

use super::bytes::{Bytes, Short};

/// The bytes of a header.
const HEADER_BYTES: usize = 20;

const MAGIC: &[u8; 14] = b"DOTNET_IPC_V1\0";
const EVENT_PIPE: u8 = 2;
const PROCESS: u8 = 4;
const SERVER: u8 = 0xff;
const STOP_TRACING: u8 = 1;
const PROCESS_INFO_2: u8 = 4;
const ENABLE_PERF_MAP: u8 = 5;
const DISABLE_PERF_MAP: u8 = 6;
const REPLY_OK: u8 = 0;

/// A perf map and no jitdump.
const PERF_MAP: u32 = 3;

/// The events as they are written to a file.
const NETTRACE: u32 = 1;

/// How a runtime is asked for events. Newer commands ask it for less work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// .NET 9 and later: which events the rundown has can be said.
    CollectTracing4,
    /// .NET 8: no stacks of the events.
    CollectTracing3,
    /// Late .NET Core 3.1 and later: a rundown or none.
    CollectTracing2,
    /// All: always with a rundown.
    CollectTracing,
}

impl Dialect {
    /// The newest first.
    pub const ALL: [Self; 4] =
        [Self::CollectTracing4, Self::CollectTracing3, Self::CollectTracing2, Self::CollectTracing];

    fn command(self) -> u8 {
        match self {
            Self::CollectTracing4 => 5,
            Self::CollectTracing3 => 4,
            Self::CollectTracing2 => 3,
            Self::CollectTracing => 2,
        }
    }
}

/// The events that a session is to have.
#[derive(Clone, Copy, Debug)]
pub struct Collect {
    /// How much memory of its own the runtime may fill with events that are not read yet.
    pub buffer_mib: u32,
    /// Which events the rundown at the end has; 0 for none.
    pub rundown_keywords: u64,
    pub provider: &'static str,
    pub keywords: u64,
    pub level: u32,
}

impl Collect {
    /// The command that asks for them.
    pub fn message(&self, dialect: Dialect) -> Vec<u8> {
        const PROVIDERS: u32 = 1;
        const NO_FILTER: &str = "";
        const NO_STACKS: u8 = 0;
        let rundown = u8::from(self.rundown_keywords != 0);
        let mut payload = [self.buffer_mib, NETTRACE].map(u32::to_le_bytes).concat();
        match dialect {
            Dialect::CollectTracing4 => {
                payload.extend(self.rundown_keywords.to_le_bytes());
                payload.push(NO_STACKS);
            }
            Dialect::CollectTracing3 => payload.extend([rundown, NO_STACKS]),
            Dialect::CollectTracing2 => payload.push(rundown),
            Dialect::CollectTracing => {}
        }
        payload.extend(PROVIDERS.to_le_bytes());
        payload.extend(self.keywords.to_le_bytes());
        payload.extend(self.level.to_le_bytes());
        append_string(&mut payload, self.provider);
        append_string(&mut payload, NO_FILTER);
        message(EVENT_PIPE, dialect.command(), &payload)
    }
}

/// The command that ends a session.
pub fn stop(session: u64) -> Vec<u8> {
    message(EVENT_PIPE, STOP_TRACING, &session.to_le_bytes())
}

/// The command that asks for the runtime's version, among others (.NET 6 and later).
pub fn process_info() -> Vec<u8> {
    message(PROCESS, PROCESS_INFO_2, &[])
}

/// The command after which the runtime writes a perf map (.NET 8 and later).
pub fn enable_perf_map() -> Vec<u8> {
    message(PROCESS, ENABLE_PERF_MAP, &PERF_MAP.to_le_bytes())
}

/// The command after which it does so no more, and has closed the file.
pub fn disable_perf_map() -> Vec<u8> {
    message(PROCESS, DISABLE_PERF_MAP, &[])
}

/// What a runtime answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done, with what was asked for.
    Done(Vec<u8>),
    /// Not done: the runtime does not know the command, or does not want to.
    Refused,
}

/// What is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReply;

impl From<Short> for NoReply {
    fn from(_: Short) -> Self {
        Self
    }
}

/// How many bytes have to follow those that arrived, until a reply is whole or it is known how long it is.
pub fn missing_bytes(received: &[u8]) -> Result<usize, NoReply> {
    if received.len() < HEADER_BYTES {
        return Ok(HEADER_BYTES - received.len());
    }
    let mut bytes = Bytes(received);
    if bytes.take(MAGIC.len())? != MAGIC {
        return Err(NoReply);
    }
    let size = usize::from(bytes.u16()?);
    if size < HEADER_BYTES { Err(NoReply) } else { Ok(size.saturating_sub(received.len())) }
}

/// Reads a whole reply.
pub fn reply(received: &[u8]) -> Result<Reply, NoReply> {
    let mut bytes = Bytes(received);
    bytes.take(MAGIC.len() + size_of::<u16>())?;
    let (set, result, _reserved) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
    match (set, result) {
        (SERVER, REPLY_OK) => Ok(Reply::Done(bytes.0.to_vec())),
        (SERVER, _) => Ok(Reply::Refused),
        _ => Err(NoReply),
    }
}

/// The session that a reply to a [`Collect`] names.
pub fn session(body: &[u8]) -> Result<u64, NoReply> {
    Ok(Bytes(body).u64()?)
}

/// The version of the runtime, as a reply to [`process_info`] spells it.
pub fn version(body: &[u8]) -> Result<String, NoReply> {
    const COOKIE_BYTES: usize = 16;
    let mut bytes = Bytes(body);
    let _pid = bytes.u64()?;
    bytes.take(COOKIE_BYTES)?;
    let mut text = || bytes.counted_text();
    let (_command, _system, _architecture, _assembly) = (text()?, text()?, text()?, text()?);
    Ok(text()?)
}

fn message(set: u8, command: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(HEADER_BYTES + payload.len()).unwrap_or(u16::MAX);
    let mut message = MAGIC.to_vec();
    message.extend(size.to_le_bytes());
    message.extend([set, command, 0, 0]);
    message.extend(payload);
    message
}

/// UTF-16 behind the number of its units, the closing zero included; the empty string is the number 0 alone.
fn append_string(payload: &mut Vec<u8>, text: &str) {
    let units: Vec<u16> = match text {
        "" => Vec::new(),
        _ => text.encode_utf16().chain([0]).collect(),
    };
    payload.extend(u32::try_from(units.len()).unwrap_or(0).to_le_bytes());
    payload.extend(units.into_iter().flat_map(u16::to_le_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLLECT: Collect =
        Collect { buffer_mib: 64, rundown_keywords: 0x138, provider: "ab", keywords: 0x38, level: 5 };

    #[test]
    fn a_command_is_a_header_and_what_its_dialect_has() {
        let providers = [
            &[1, 0, 0, 0, 0x38, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0][..],
            b"a\0b\0\0\0",
            &[0, 0, 0, 0],
        ]
        .concat();
        for (dialect, command, options) in [
            (Dialect::CollectTracing, 2, &[][..]),
            (Dialect::CollectTracing2, 3, &[1]),
            (Dialect::CollectTracing3, 4, &[1, 0]),
            (Dialect::CollectTracing4, 5, &[0x38, 1, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let payload = [&[64, 0, 0, 0, 1, 0, 0, 0], options, &providers].concat();
            let size = 20 + payload.len() as u8;
            let expected = [b"DOTNET_IPC_V1\0", &[size, 0, 2, command, 0, 0][..], &payload].concat();
            assert_eq!(COLLECT.message(dialect), expected);
        }
    }

    #[test]
    fn stopping_names_the_session() {
        assert_eq!(stop(7), b"DOTNET_IPC_V1\0\x1c\0\x02\x01\0\0\x07\0\0\0\0\0\0\0");
    }

    #[test]
    fn a_perf_map_is_switched_on_and_off() {
        assert_eq!(enable_perf_map(), b"DOTNET_IPC_V1\0\x18\0\x04\x05\0\0\x03\0\0\0");
        assert_eq!(disable_perf_map(), b"DOTNET_IPC_V1\0\x14\0\x04\x06\0\0");
    }

    #[test]
    fn a_reply_names_the_session_or_refuses() {
        let ok = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
        let Ok(Reply::Done(body)) = reply(ok) else { panic!("it is a reply") };
        assert_eq!(session(&body), Ok(7));
        assert_eq!(session(&body[1..]), Err(NoReply));
        let unknown_command = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";
        assert_eq!(reply(unknown_command), Ok(Reply::Refused));
    }

    #[test]
    fn a_reply_says_how_long_it_is() {
        let ok = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
        for (received, missing) in [(0, 20), (7, 13), (19, 1), (20, 8), (25, 3), (28, 0)] {
            assert_eq!(missing_bytes(&ok[..received]), Ok(missing));
        }
    }

    #[test]
    fn a_process_names_the_version_of_its_runtime() {
        let mut body = vec![7; 24];
        for text in ["dotnet app.dll", "linux", "x64", "app", "9.0.1+c8acea22"] {
            append_string(&mut body, text);
        }
        assert_eq!(version(&body), Ok("9.0.1+c8acea22".to_owned()));
        for length in 0..body.len() {
            assert_eq!(version(&body[..length]), Err(NoReply));
        }
        let endless = [&body[..24], &[0xff; 8]].concat();
        assert_eq!(version(&endless), Err(NoReply));
    }

    #[test]
    fn garbage_is_no_reply() {
        assert_eq!(missing_bytes(&[b'x'; HEADER_BYTES]), Err(NoReply));
        assert_eq!(missing_bytes(b"DOTNET_IPC_V1\0\x13\0\xff\0\0\0"), Err(NoReply));
        assert_eq!(reply(b"DOTNET_IPC_V1\0\x14\0\x02\0\0\0"), Err(NoReply));
        assert_eq!(reply(&[]), Err(NoReply));
    }
}
