//! Streams of events for tests, as a runtime writes them.

/// Builds one stream.
pub struct TestStream(pub Vec<u8>);

/// The numbers of the kinds of events in a test stream.
pub const METHOD_LOADED: u8 = 1;
pub const METHOD_IN_RUNDOWN: u8 = 2;
pub const MODULE_IN_RUNDOWN: u8 = 3;

impl TestStream {
    /// A stream with all kinds, whose clock shows nanoseconds and began at `begin_ns`.
    pub fn new(begin_ns: u64) -> Self {
        let mut stream = Self(b"Nettrace\x14\0\0\0!FastSerialization.1".to_vec());
        stream.begin("Trace");
        stream.0.extend([0; 16]);
        stream.0.extend([begin_ns, 1_000_000_000].map(u64::to_le_bytes).concat());
        stream.0.extend([0; 16]);
        stream.0.push(6);
        let rundown = "Microsoft-Windows-DotNETRuntimeRundown";
        let kinds = [
            kind(METHOD_LOADED, "Microsoft-Windows-DotNETRuntime", 143),
            kind(METHOD_IN_RUNDOWN, rundown, 144),
            kind(MODULE_IN_RUNDOWN, rundown, 154),
        ];
        let events = kinds.iter().map(|payload| event(0, None, 0, payload)).collect::<Vec<_>>().concat();
        stream.block("MetadataBlock", &[BLOCK_HEADER, &events].concat())
    }

    /// Events, each of a kind, a number of its thread, a time, and a payload.
    pub fn events(self, events: &[(u8, u8, u8, Vec<u8>)]) -> Self {
        let events = events
            .iter()
            .map(|(kind, number, after_ns, payload)| event(*kind, Some(*number), *after_ns, payload));
        let content = [BLOCK_HEADER, &events.collect::<Vec<_>>().concat()].concat();
        self.block("EventBlock", &content)
    }

    /// Says that the only thread's last event had this number.
    pub fn sequence_point(self, number: u32) -> Self {
        let content = [&[0; 8], &[1, 0, 0, 0][..], &THREAD.to_le_bytes(), &number.to_le_bytes()].concat();
        self.block("SPBlock", &content)
    }

    /// The end of the stream.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push(1);
        self.0
    }

    pub fn block(mut self, name: &str, content: &[u8]) -> Self {
        self.begin(name);
        self.0.extend((content.len() as u32).to_le_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(content);
        self.0.push(6);
        self
    }

    fn begin(&mut self, name: &str) {
        self.0.extend([5, 5, 1, 2, 0, 0, 0, 2, 0, 0, 0]);
        self.0.extend((name.len() as u32).to_le_bytes());
        self.0.extend(name.as_bytes());
        self.0.push(6);
    }
}

const THREAD: u64 = 7;

/// Its own length, compressed, no times.
const BLOCK_HEADER: &[u8] = &[20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A compressed event. Its number is that of a block of one event: the difference to 0.
fn event(kind: u8, number: Option<u8>, after_ns: u8, payload: &[u8]) -> Vec<u8> {
    let mut event = vec![1 | 128 | if number.is_some() { 2 } else { 0 }, kind];
    if let Some(number) = number {
        // The header counts one for each event by itself.
        event.extend([number - 1, THREAD as u8, 0]);
    }
    event.push(after_ns);
    assert!(payload.len() < 1 << 14, "two bytes hold the length");
    event.extend([payload.len() as u8 | 0x80, (payload.len() >> 7) as u8]);
    event.extend(payload);
    event
}

fn kind(number: u8, provider: &str, id: u32) -> Vec<u8> {
    [&u32::from(number).to_le_bytes()[..], &text(provider), &id.to_le_bytes(), &text(""), &[0; 20]].concat()
}

fn text(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// The flags of a method: of tier 3, and jitted.
const QUICKLY_JITTED: u32 = 3 << 7 | 8;

/// The payload of an event that tells of a method.
pub fn method(module: u64, start: u64, size: u32, names: [&str; 3]) -> Vec<u8> {
    let places = [99, module, start].map(u64::to_le_bytes).concat();
    let rest = [size, 0, QUICKLY_JITTED].map(u32::to_le_bytes).concat();
    [places, rest, names.map(text).concat(), vec![0, 0]].concat()
}

/// The payload of an event that tells of a module.
pub fn module(module: u64, path: &str) -> Vec<u8> {
    [[module, 5].map(u64::to_le_bytes).concat(), vec![0; 8], text(path), text("")].concat()
}
