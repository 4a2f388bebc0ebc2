//! Encodes commands of the .NET diagnostics protocol and decodes the replies (dotnet/diagnostics,
//! documentation/design-docs/ipc-protocol.md).
//!
//! A connection carries one command. The reply to a `CollectTracing` command has the id of the session, and the events
//! follow on the same connection. A session is stopped through another connection.

use profiler_binary_reader::{ByteCursor, ParseError};

use super::utf16::read_counted;

const HEADER_BYTES: usize = 20;
const MAGIC: &[u8; 14] = b"DOTNET_IPC_V1\0";

/// Command sets.
const EVENT_PIPE: u8 = 2;
const PROCESS: u8 = 4;
const SERVER: u8 = 0xff;

/// Commands of the set `EVENT_PIPE`.
const STOP_TRACING: u8 = 1;

/// Commands of the set `PROCESS`.
const PROCESS_INFO_2: u8 = 4;
const ENABLE_PERF_MAP: u8 = 5;
const DISABLE_PERF_MAP: u8 = 6;

/// The command of the set `SERVER` that reports success.
const REPLY_OK: u8 = 0;

/// The type of `EnablePerfMap` that writes a perf map and no jitdump.
const PERF_MAP: u32 = 3;

/// The serialization format of a session.
const NETTRACE: u32 = 1;

/// The type of a session of `CollectTracing5` whose events follow on the connection.
const STREAMING: u32 = 0;

/// The version of the command that opens an EventPipe session. Newer versions have more options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectCommand {
    /// .NET 10 and later: with the events of a provider that are sent.
    CollectTracing5,
    /// .NET 9 and later: with keywords that select the events of the rundown.
    CollectTracing4,
    /// .NET 9 and later: with an option to omit the stacks of events. .NET 8.0.4 does not know it.
    CollectTracing3,
    /// Late versions of .NET Core 3.1, and later: with an option to omit the rundown.
    CollectTracing2,
    /// All versions: always with a rundown.
    CollectTracing,
}

impl CollectCommand {
    /// All versions, newest first.
    pub const NEWEST_FIRST: &[Self] = &[
        Self::CollectTracing5,
        Self::CollectTracing4,
        Self::CollectTracing3,
        Self::CollectTracing2,
        Self::CollectTracing,
    ];

    /// Whether .NET Core 3.1 can know this version. .NET 8 knows no newer one.
    pub fn is_of_old_runtimes(self) -> bool {
        matches!(self, Self::CollectTracing2 | Self::CollectTracing)
    }

    fn number(self) -> u8 {
        match self {
            Self::CollectTracing5 => 6,
            Self::CollectTracing4 => 5,
            Self::CollectTracing3 => 4,
            Self::CollectTracing2 => 3,
            Self::CollectTracing => 2,
        }
    }
}

/// The configuration of an EventPipe session.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig<'a> {
    /// Memory of the target process that the runtime may fill with unread events.
    pub buffer_mib: u32,
    /// Keywords of the rundown at the end of the session. 0 is a session without a rundown.
    pub rundown_keywords: u64,
    /// Whether the runtime captures the stack of the thread with each event. Before .NET 9 it always does.
    pub collects_stacks: bool,
    /// The providers, at least one.
    pub providers: &'a [ProviderConfig<'a>],
}

/// The configuration of a provider in a session.
#[derive(Clone, Copy, Debug)]
pub struct ProviderConfig<'a> {
    /// Its name.
    pub name: &'a str,
    /// Keywords that select its events.
    pub keywords: u64,
    /// Its verbosity, from 1 (critical) to 5 (verbose).
    pub level: u32,
    /// Arguments of the provider, `NAME=VALUE`, separated by semicolons.
    pub filter: &'a str,
    /// The numbers of the only events that are sent, of those that keywords and level select; all of these where it is empty.
    /// Before .NET 10 all of these are sent.
    pub events: &'a [u32],
}

impl SessionConfig<'_> {
    /// Encodes the command that opens the session.
    pub fn encode(&self, command: CollectCommand) -> Vec<u8> {
        let (has_rundown, has_stacks) =
            (u8::from(self.rundown_keywords != 0), u8::from(self.collects_stacks));
        let has_event_filters = command == CollectCommand::CollectTracing5;
        let mut payload = Vec::new();
        if has_event_filters {
            payload.extend(STREAMING.to_le_bytes());
        }
        payload.extend([self.buffer_mib, NETTRACE].map(u32::to_le_bytes).concat());
        match command {
            CollectCommand::CollectTracing5 | CollectCommand::CollectTracing4 => {
                payload.extend(self.rundown_keywords.to_le_bytes());
                payload.push(has_stacks);
            }
            CollectCommand::CollectTracing3 => payload.extend([has_rundown, has_stacks]),
            CollectCommand::CollectTracing2 => payload.push(has_rundown),
            CollectCommand::CollectTracing => {}
        }
        payload.extend(u32::try_from(self.providers.len()).unwrap_or(0).to_le_bytes());
        for provider in self.providers {
            payload.extend(provider.keywords.to_le_bytes());
            payload.extend(provider.level.to_le_bytes());
            append_string(&mut payload, provider.name);
            append_string(&mut payload, provider.filter);
            if has_event_filters {
                append_event_filter(&mut payload, provider.events);
            }
        }
        encode_message(EVENT_PIPE, command.number(), &payload)
    }
}

/// Appends an `event_filter`: those that are enabled, or that none is disabled.
fn append_event_filter(payload: &mut Vec<u8>, events: &[u32]) {
    payload.push(u8::from(!events.is_empty()));
    payload.extend(u32::try_from(events.len()).unwrap_or(0).to_le_bytes());
    payload.extend(events.iter().flat_map(|event| event.to_le_bytes()));
}

/// Encodes the command that stops a session.
pub fn stop_tracing_command(session_id: u64) -> Vec<u8> {
    encode_message(EVENT_PIPE, STOP_TRACING, &session_id.to_le_bytes())
}

/// Encodes the command `ProcessInfo2`. Its reply has the version of the runtime (.NET 6 and later).
pub fn process_info_command() -> Vec<u8> {
    encode_message(PROCESS, PROCESS_INFO_2, &[])
}

/// Encodes the command that makes the runtime write a perf map (.NET 8 and later).
pub fn enable_perf_map_command() -> Vec<u8> {
    encode_message(PROCESS, ENABLE_PERF_MAP, &PERF_MAP.to_le_bytes())
}

/// Encodes the command that makes the runtime complete and close its perf map.
pub fn disable_perf_map_command() -> Vec<u8> {
    encode_message(PROCESS, DISABLE_PERF_MAP, &[])
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command succeeded, with this payload.
    Success(Vec<u8>),
    /// The runtime does not know the command, or failed to execute it.
    Error,
}

/// How many bytes have to follow `received` until the header of a reply or the whole reply is complete. 0 is a complete
/// reply.
///
/// # Errors
/// [`ParseError::Malformed`] when the bytes are no reply.
pub fn missing_reply_bytes(received: &[u8]) -> Result<usize, ParseError> {
    if received.len() < HEADER_BYTES {
        return Ok(HEADER_BYTES - received.len());
    }
    let mut bytes = ByteCursor::new(received, 0);
    if bytes.take(MAGIC.len())? != MAGIC {
        return Err(ParseError::Malformed);
    }
    let size = usize::from(bytes.u16()?);
    if size < HEADER_BYTES { Err(ParseError::Malformed) } else { Ok(size.saturating_sub(received.len())) }
}

/// Decodes a complete reply.
///
/// # Errors
/// [`ParseError::Malformed`] when the bytes are no reply.
pub fn decode_reply(received: &[u8]) -> Result<Reply, ParseError> {
    let mut bytes = ByteCursor::new(received, MAGIC.len() + size_of::<u16>());
    let (set, result, _reserved) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
    match (set, result) {
        (SERVER, REPLY_OK) => Ok(Reply::Success(bytes.remaining().to_vec())),
        (SERVER, _) => Ok(Reply::Error),
        _ => Err(ParseError::Malformed),
    }
}

/// Decodes the session id in the reply to a [`CollectCommand`].
///
/// # Errors
/// [`ParseError::Malformed`] when the payload is too short.
pub fn decode_session_id(payload: &[u8]) -> Result<u64, ParseError> {
    ByteCursor::new(payload, 0).u64()
}

/// Decodes the version of the runtime in the reply to [`process_info_command`], such as `9.0.1+c8acea22`.
///
/// # Errors
/// [`ParseError::Malformed`] when the payload is too short.
pub fn decode_runtime_version(payload: &[u8]) -> Result<String, ParseError> {
    const COOKIE_BYTES: usize = 16;
    let mut bytes = ByteCursor::new(payload, 0);
    let _pid = bytes.u64()?;
    bytes.take(COOKIE_BYTES)?;
    let mut text = || read_counted(&mut bytes);
    let (_command_line, _system, _architecture, _assembly) = (text()?, text()?, text()?, text()?);
    text()
}

fn encode_message(set: u8, command: u8, payload: &[u8]) -> Vec<u8> {
    let size = u16::try_from(HEADER_BYTES + payload.len()).unwrap_or(u16::MAX);
    let mut message = MAGIC.to_vec();
    message.extend(size.to_le_bytes());
    message.extend([set, command, 0, 0]);
    message.extend(payload);
    message
}

/// Appends a UTF-16 string after the number of its code units, which includes the terminating zero. The empty string is
/// the number 0 alone.
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

    const SESSION: SessionConfig<'_> = SessionConfig {
        buffer_mib: 64,
        rundown_keywords: 0x138,
        collects_stacks: false,
        providers: &[ProviderConfig { name: "ab", keywords: 0x38, level: 5, filter: "", events: &[] }],
    };

    #[test]
    fn each_version_of_the_collect_command_has_its_own_options() {
        let providers = [
            &[1, 0, 0, 0, 0x38, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0][..],
            b"a\0b\0\0\0",
            &[0, 0, 0, 0],
        ]
        .concat();
        for (version, command, options) in [
            (CollectCommand::CollectTracing, 2, &[][..]),
            (CollectCommand::CollectTracing2, 3, &[1]),
            (CollectCommand::CollectTracing3, 4, &[1, 0]),
            (CollectCommand::CollectTracing4, 5, &[0x38, 1, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let payload = [&[64, 0, 0, 0, 1, 0, 0, 0], options, &providers].concat();
            let size = 20 + payload.len() as u8;
            let expected = [b"DOTNET_IPC_V1\0", &[size, 0, 2, command, 0, 0][..], &payload].concat();
            assert_eq!(SESSION.encode(version), expected);
        }
    }

    #[test]
    fn a_session_has_several_providers_and_stacks_on_request() {
        let providers = [
            ProviderConfig { name: "a", keywords: 1, level: 4, filter: "", events: &[] },
            ProviderConfig { name: "b", keywords: 2, level: 2, filter: "c=1", events: &[80] },
        ];
        let config = SessionConfig { collects_stacks: true, providers: &providers, ..SESSION };
        let message = config.encode(CollectCommand::CollectTracing4);
        let options = HEADER_BYTES + 8;
        assert_eq!(message[options..options + 9], [0x38, 1, 0, 0, 0, 0, 0, 0, 1]);
        let expected = [
            &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0][..],
            b"a\0\0\0\0\0\0\0",
            &[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0],
            b"b\0\0\0\x04\0\0\0c\0=\x001\0\0\0",
        ];
        assert_eq!(message[options + 9..], expected.concat());
        assert_eq!(config.encode(CollectCommand::CollectTracing3)[options..options + 2], [1, 1]);
    }

    #[test]
    fn the_newest_command_has_the_events_of_each_provider() {
        let provider = |events| ProviderConfig { name: "", keywords: 1, level: 4, filter: "", events };
        let providers = [provider(&[]), provider(&[1, 80])];
        let config = SessionConfig { providers: &providers, ..SESSION };
        let selection = [1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let expected = [
            &[0, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0, 0x38, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0][..],
            &selection,
            &[0, 0, 0, 0, 0],
            &selection,
            &[1, 2, 0, 0, 0, 1, 0, 0, 0, 80, 0, 0, 0],
        ];
        let message = config.encode(CollectCommand::CollectTracing5);
        assert_eq!(message[HEADER_BYTES..], expected.concat());
        assert_eq!(message[HEADER_BYTES - 4..HEADER_BYTES], [2, 6, 0, 0]);
    }

    #[test]
    fn the_stop_command_has_the_session_id() {
        assert_eq!(stop_tracing_command(7), b"DOTNET_IPC_V1\0\x1c\0\x02\x01\0\0\x07\0\0\0\0\0\0\0");
    }

    #[test]
    fn a_perf_map_can_be_enabled_and_disabled() {
        assert_eq!(enable_perf_map_command(), b"DOTNET_IPC_V1\0\x18\0\x04\x05\0\0\x03\0\0\0");
        assert_eq!(disable_perf_map_command(), b"DOTNET_IPC_V1\0\x14\0\x04\x06\0\0");
    }

    #[test]
    fn a_reply_has_the_session_id_or_an_error() {
        let ok = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
        let Ok(Reply::Success(payload)) = decode_reply(ok) else { panic!("it is a reply") };
        assert_eq!(decode_session_id(&payload), Ok(7));
        assert_eq!(decode_session_id(&payload[1..]), Err(ParseError::Malformed));
        let unknown_command = b"DOTNET_IPC_V1\0\x18\0\xff\xff\0\0\x85\x13\x13\x80";
        assert_eq!(decode_reply(unknown_command), Ok(Reply::Error));
    }

    #[test]
    fn the_header_of_a_reply_states_its_length() {
        let ok = b"DOTNET_IPC_V1\0\x1c\0\xff\0\0\0\x07\0\0\0\0\0\0\0";
        for (received, missing) in [(0, 20), (7, 13), (19, 1), (20, 8), (25, 3), (28, 0)] {
            assert_eq!(missing_reply_bytes(&ok[..received]), Ok(missing));
        }
    }

    #[test]
    fn the_process_info_has_the_version_of_the_runtime() {
        let mut body = vec![7; 24];
        for text in ["dotnet app.dll", "linux", "x64", "app", "9.0.1+c8acea22"] {
            append_string(&mut body, text);
        }
        assert_eq!(decode_runtime_version(&body), Ok("9.0.1+c8acea22".to_owned()));
        for length in 0..body.len() {
            assert_eq!(decode_runtime_version(&body[..length]), Err(ParseError::Malformed));
        }
        let endless = [&body[..24], &[0xff; 8]].concat();
        assert_eq!(decode_runtime_version(&endless), Err(ParseError::Malformed));
    }

    #[test]
    fn garbage_is_malformed() {
        assert_eq!(missing_reply_bytes(&[b'x'; HEADER_BYTES]), Err(ParseError::Malformed));
        assert_eq!(missing_reply_bytes(b"DOTNET_IPC_V1\0\x13\0\xff\0\0\0"), Err(ParseError::Malformed));
        assert_eq!(decode_reply(b"DOTNET_IPC_V1\0\x14\0\x02\0\0\0"), Err(ParseError::Malformed));
        assert_eq!(decode_reply(&[]), Err(ParseError::Malformed));
    }
}
