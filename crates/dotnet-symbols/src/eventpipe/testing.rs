//! Builds EventPipe streams and payloads by hand, for tests.

/// Builds one nettrace stream.
#[derive(Debug)]
pub struct TestStream(pub Vec<u8>);

/// The metadata id of `MethodLoadVerbose` in a test stream.
pub const METHOD_LOADED: u8 = 1;
/// The metadata id of `MethodDCEndVerbose` in a test stream.
pub const METHOD_IN_RUNDOWN: u8 = 2;
/// The metadata id of `ModuleDCEnd` in a test stream.
pub const MODULE_IN_RUNDOWN: u8 = 3;
/// The metadata id of `MethodUnloadVerbose` in a test stream.
pub const METHOD_UNLOADED: u8 = 4;
/// The metadata id of `MethodJittingStarted` in a test stream.
pub const COMPILATION_STARTED: u8 = 5;
/// The metadata id of `AssemblyLoad` in a test stream.
pub const ASSEMBLY_LOADED: u8 = 6;

impl TestStream {
    /// Begins a stream with the metadata of all kinds of events. Its clock counts nanoseconds from `begin_ns`.
    pub fn new(begin_ns: u64) -> Self {
        let mut stream = Self(b"Nettrace\x14\0\0\0!FastSerialization.1".to_vec());
        stream.begin_object("Trace");
        stream.0.extend([0; 16]);
        stream.0.extend([begin_ns, 1_000_000_000].map(u64::to_le_bytes).concat());
        stream.0.extend([0; 16]);
        stream.0.push(6);
        let rundown = "Microsoft-Windows-DotNETRuntimeRundown";
        let kinds = [
            metadata(METHOD_LOADED, "Microsoft-Windows-DotNETRuntime", 143),
            metadata(METHOD_IN_RUNDOWN, rundown, 144),
            metadata(MODULE_IN_RUNDOWN, rundown, 154),
            metadata(METHOD_UNLOADED, "Microsoft-Windows-DotNETRuntime", 144),
            metadata(COMPILATION_STARTED, "Microsoft-Windows-DotNETRuntime", 145),
            metadata(ASSEMBLY_LOADED, "Microsoft-Windows-DotNETRuntime", 154),
        ];
        let events = kinds.iter().map(|payload| event(0, None, 0, payload)).collect::<Vec<_>>().concat();
        stream.block("MetadataBlock", &[BLOCK_HEADER, &events].concat())
    }

    /// Adds a block of events: metadata id, sequence number in its thread, time in nanoseconds, payload.
    #[must_use]
    pub fn events(self, events: &[(u8, u8, u8, Vec<u8>)]) -> Self {
        let events = events
            .iter()
            .map(|(kind, number, time_ns, payload)| event(*kind, Some(*number), *time_ns, payload));
        let content = [BLOCK_HEADER, &events.collect::<Vec<_>>().concat()].concat();
        self.block("EventBlock", &content)
    }

    /// Adds the metadata of another kind of event, with the definitions of its fields.
    #[must_use]
    pub fn kind(self, number: u8, provider: &str, id: u32, fields: &[Vec<u8>]) -> Self {
        let payload = metadata_payload(number.into(), provider, id, "", fields);
        self.block("MetadataBlock", &[BLOCK_HEADER, &event(0, None, 0, &payload)].concat())
    }

    /// Adds one event.
    #[must_use]
    pub fn event(self, event: &TestEvent) -> Self {
        /// With a metadata id, a sequence number and its thread, a stack, an activity, and a payload size.
        const FLAGS: u8 = 1 | 2 | 8 | 16 | 128;
        let TestEvent { kind, thread, number, stack, time_ns, activity, payload } = event;
        let mut bytes = [BLOCK_HEADER, &[FLAGS, *kind]].concat();
        // The decoder adds one to the sequence number. The processor is 0.
        for value in [u64::from(*number) - 1, *thread, 0, u64::from(*stack), *time_ns] {
            append_leb128(&mut bytes, value);
        }
        bytes.extend(activity.to_le_bytes());
        append_leb128(&mut bytes, payload.len() as u64);
        bytes.extend(payload);
        self.block("EventBlock", &bytes)
    }

    /// Adds a sequence point: the last event of the only thread has this sequence number.
    #[must_use]
    pub fn sequence_point(self, number: u32) -> Self {
        self.sequence_point_at(0, number)
    }

    /// The same at a time.
    #[must_use]
    pub fn sequence_point_at(self, time_ns: u64, number: u32) -> Self {
        let numbers = [THREAD.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()].concat();
        let content = [&time_ns.to_le_bytes()[..], &[1, 0, 0, 0], &numbers].concat();
        self.block("SPBlock", &content)
    }

    /// Ends the stream and returns its bytes.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push(1);
        self.0
    }

    /// Adds a block with this content.
    #[must_use]
    pub fn block(mut self, name: &str, content: &[u8]) -> Self {
        self.begin_object(name);
        self.0.extend((content.len() as u32).to_le_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(content);
        self.0.push(6);
        self
    }

    fn begin_object(&mut self, name: &str) {
        self.0.extend([5, 5, 1, 2, 0, 0, 0, 2, 0, 0, 0]);
        self.0.extend((name.len() as u32).to_le_bytes());
        self.0.extend(name.as_bytes());
        self.0.push(6);
    }
}

/// An event of a test stream.
#[derive(Clone, Debug, Default)]
pub struct TestEvent {
    /// Its metadata id.
    pub kind: u8,
    /// The thread that wrote it.
    pub thread: u64,
    /// Its sequence number in its thread, from 1 on.
    pub number: u8,
    /// The number of its stack.
    pub stack: u32,
    /// Its time.
    pub time_ns: u64,
    /// The activity of its thread.
    pub activity: u128,
    /// Its fields.
    pub payload: Vec<u8>,
}

/// The id of the only thread of a test stream.
pub const THREAD: u64 = 7;

/// Header size, the flag for compressed event headers, and no timestamps.
const BLOCK_HEADER: &[u8] = &[20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// An event with a compressed header. The sequence number is a difference to the event before it in the block, so each
/// block has one event.
fn event(kind: u8, number: Option<u8>, time_ns: u8, payload: &[u8]) -> Vec<u8> {
    let mut event = vec![1 | 128 | if number.is_some() { 2 } else { 0 }, kind];
    if let Some(number) = number {
        // The decoder adds one for each event.
        event.extend([number - 1, THREAD as u8, 0]);
    }
    event.push(time_ns);
    assert!(payload.len() < 1 << 14, "the payload size is encoded in two bytes");
    event.extend([payload.len() as u8 | 0x80, (payload.len() >> 7) as u8]);
    event.extend(payload);
    event
}

fn append_leb128(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn metadata(number: u8, provider: &str, id: u32) -> Vec<u8> {
    metadata_payload(number.into(), provider, id, "", &[])
}

/// The metadata of a kind of event, with the definitions of its fields.
pub fn metadata_payload(number: u32, provider: &str, id: u32, name: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    let ids = [&number.to_le_bytes()[..], &text(provider), &id.to_le_bytes(), &text(name)].concat();
    // Keywords, version and level.
    [&ids[..], &[0; 16], &field_list(fields)].concat()
}

/// The definition of a field of a type without fields.
pub fn simple_field(type_code: u32, name: &str) -> Vec<u8> {
    [&type_code.to_le_bytes()[..], &text(name)].concat()
}

/// The definition of a field whose type has fields.
pub fn object_field(fields: &[Vec<u8>], name: &str) -> Vec<u8> {
    [&1_u32.to_le_bytes()[..], &field_list(fields), &text(name)].concat()
}

fn field_list(fields: &[Vec<u8>]) -> Vec<u8> {
    [&(fields.len() as u32).to_le_bytes()[..], &fields.concat()].concat()
}

/// The content of a block of stacks.
pub fn stack_block(first: u32, stacks: &[&[u64]]) -> Vec<u8> {
    let mut content = [first, stacks.len() as u32].map(u32::to_le_bytes).concat();
    for stack in stacks {
        content.extend((size_of_val(*stack) as u32).to_le_bytes());
        content.extend(stack.iter().flat_map(|address| address.to_le_bytes()));
    }
    content
}

/// A string with its terminating zero.
pub fn text(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// Method flags: tier 3, jitted.
const QUICK_JITTED: u32 = 3 << 7 | 8;

/// The payload of an event about a method: class, method name and signature.
pub fn method_payload(module_id: u64, start: u64, size_bytes: u32, names: [&str; 3]) -> Vec<u8> {
    let ids = [99, module_id, start].map(u64::to_le_bytes).concat();
    let rest = [size_bytes, 0, QUICK_JITTED].map(u32::to_le_bytes).concat();
    [ids, rest, names.map(text).concat(), vec![0, 0]].concat()
}

/// As [`method_payload`], of a method without metadata.
pub fn dynamic_method_payload(start: u64, size_bytes: u32, name: &str) -> Vec<u8> {
    const FLAGS_OFFSET: usize = 32;
    let mut payload = method_payload(0, start, size_bytes, ["dynamicClass", name, "void  ()"]);
    payload[FLAGS_OFFSET] |= 1;
    payload
}

/// The payload of an event about a compilation: class, method name and signature.
pub fn compilation_payload(module_id: u64, names: [&str; 3]) -> Vec<u8> {
    [[99, module_id].map(u64::to_le_bytes).concat(), vec![0; 8], names.map(text).concat(), vec![0, 0]]
        .concat()
}

/// The payload of an event about a module.
pub fn module_payload(module_id: u64, path: &str) -> Vec<u8> {
    [[module_id, 5].map(u64::to_le_bytes).concat(), vec![0; 8], text(path), text("")].concat()
}

/// The payload of an event about an assembly.
pub fn assembly_payload(assembly_id: u64, is_collectible: bool) -> Vec<u8> {
    let flags = if is_collectible { 8_u32 } else { 0 };
    [[assembly_id, 1, 0].map(u64::to_le_bytes).concat(), flags.to_le_bytes().to_vec(), text("name")].concat()
}
