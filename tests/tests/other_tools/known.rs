//! A known profile with every kind of frame, two threads, two runtime events, and hostile names.

use profiler::{
    ElfAddress, Profile,
    profile::{
        Event, EventField, FieldValue, Frame, FrameId, FrameKind, Header, ProfileBuilder, RuntimeEvent,
        RuntimeEventKind, SourceLocation, StackEnd, StackId, SymbolSource, Symbolization, ThreadId,
    },
};

/// A count beyond 32 bits.
pub(crate) const MANY: u64 = (1 << 32) + 1;

/// A profile with every kind of frame, two threads, two runtime events, and hostile names.
pub(crate) fn known() -> Profile {
    let mut builder = ProfileBuilder::default();
    let mut frame = |name: &str, kind, module: Option<&str>, line: u32| -> FrameId {
        let build_id = |path: &str| if path == "/app/run" { &[0xab, 0x01][..] } else { &[] };
        let module = module.map(|path| builder.module(path, build_id(path)));
        let (name, file) = (builder.string(name), builder.string("/src/a.rs"));
        let location = (line > 0).then_some(SourceLocation { file, line });
        let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
        builder.frame(Frame {
            name,
            kind,
            module,
            address: ElfAddress(0x1f00 + u64::from(line)),
            location,
            symbolization,
        })
    };
    let main = frame("main", FrameKind::Native, Some("/app/run"), 0);
    let outer = frame("outer", FrameKind::Native, Some("/app/run"), 7);
    let inlined = frame("inlined", FrameKind::Inlined, Some("/app/run"), 7);
    let read = frame("ksys_read", FrameKind::Kernel, Some("[kernel]"), 0);
    let jit = frame("App!Demo.Program.Hot(class System.String)", FrameKind::Jit, None, 0);
    let ready = frame("App!Demo.Program.Main()", FrameKind::Precompiled, Some("/app/App.dll"), 0);
    let odd = frame("a;b\n\u{1b}[31m<script>\"'\u{202e} 5/6 [0] 1.0: x:", FrameKind::Jit, None, 0);
    builder.event(Event::at_frequency("cpu-clock", 100));
    let process = builder.process(7, "app");
    let threads = [builder.thread(process, 7, "app"), builder.thread(process, 8, "wor\nker 1/2")];
    for (time, (thread, frames, count)) in [
        (0, vec![inlined, outer, main], 1),
        (1, vec![read, main], MANY),
        (0, vec![jit, ready, main], 2),
        (0, vec![odd, main], 1),
        (0, vec![inlined, outer, main], 1),
    ]
    .into_iter()
    .enumerate()
    {
        let stack = builder.stack(frames, StackEnd::Root);
        builder.sample(time as u64 * 10_000_000, 0, threads[thread], stack, count);
    }
    let thrown = builder.stack(vec![jit, main], StackEnd::Root);
    add_runtime_events(&mut builder, threads, thrown);
    builder.finish(Header {
        target: "pid 7 (app)".to_owned(),
        duration_ns: 50_000_000,
        started_unix_ns: 1_700_000_000_000_000_000,
        started_monotonic_ns: 5_000_000_000,
        cpus: 2,
        ..Header::default()
    })
}

/// Adds a garbage collection of the second thread, and an exception of the first one.
fn add_runtime_events(builder: &mut ProfileBuilder, threads: [ThreadId; 2], thrown: StackId) {
    const NS_PER_MS: u64 = 1_000_000;
    let reason = FieldValue::Text(builder.string("AllocSmall"));
    let message = FieldValue::Text(builder.string("<b>\u{202e}\"'&"));
    let mut field = |name: &str, value| EventField { name: builder.string(name), value };
    let of_collection = [field("Depth", FieldValue::Unsigned(2)), field("Reason", reason)];
    let of_exception = [field("type", message), field("Address", FieldValue::Unsigned(u64::MAX))];
    let collection = RuntimeEvent {
        time_ns: 15 * NS_PER_MS,
        duration_ns: 2 * NS_PER_MS,
        process: builder.process_of(threads[1]),
        thread: Some(threads[1]),
        kind: RuntimeEventKind::GarbageCollection,
        name: builder.string("Provider/GCStart"),
        stack: None,
        fields: of_collection.into(),
    };
    let exception = RuntimeEvent {
        time_ns: 20 * NS_PER_MS,
        duration_ns: 0,
        thread: Some(threads[0]),
        kind: RuntimeEventKind::Exception,
        name: builder.string("Network"),
        stack: Some(thrown),
        fields: of_exception.into(),
        ..collection.clone()
    };
    builder.add_runtime_event(exception);
    builder.add_runtime_event(collection);
}
