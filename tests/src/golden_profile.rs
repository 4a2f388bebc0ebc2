//! Builds the profile of the golden files, which contains every kind of value that a profile can have.

use profiler::{
    ElfAddress, Profile,
    profile::{
        Cost, Event, EventField, EventId, FieldValue, FoundBy, Frame, FrameId, FrameKind, Header, Incident,
        KubernetesNames, Ledger, Loss, ModuleId, ProfileBuilder, Reason, RuntimeEvent, RuntimeEventKind,
        SourceLocation, StackEnd, SymbolSource, Symbolization, ThreadId,
    },
};

/// Names with markup, control characters and separators.
const ODD_NAMES: [&str; 6] = [
    "a;b\n\u{1b}[31m<script>alert(\"&\")</script>\u{202e}",
    "'\"><b onclick=x> 5/6 [0] 1.0: x:",
    "]]> {{profile}} \\ %s \0",
    "\u{fffd}\u{fffd} was not UTF-8",
    "\u{200f}\u{5d0}\u{5d1} \u{6f22}\u{5b57} \u{1f525}",
    "",
];

const SOURCES: [SymbolSource; 10] = [
    SymbolSource::Kallsyms,
    SymbolSource::SymbolTable,
    SymbolSource::DynamicSymbols,
    SymbolSource::MiniDebugInfo,
    SymbolSource::DebugFile,
    SymbolSource::Dwarf,
    SymbolSource::PerfMap,
    SymbolSource::JitDump,
    SymbolSource::ReadyToRun,
    SymbolSource::RuntimeEvents,
];

const UNWIND_METHODS: [FoundBy; 7] = [
    FoundBy::Sample,
    FoundBy::Kernel,
    FoundBy::Cfi,
    FoundBy::FramePointer,
    FoundBy::EpilogueScan,
    FoundBy::SignalFrame,
    FoundBy::NotRecorded,
];

const EARLY_END_REASONS: [StackEnd; 7] = [
    StackEnd::DepthLimit,
    StackEnd::Unknown,
    StackEnd::NoMapping,
    StackEnd::UnreadableStack,
    StackEnd::UnsupportedRule,
    StackEnd::BrokenFramePointer,
    StackEnd::Backwards,
];

const INTERVAL_NS: u64 = 10_000_000;

/// Every kind of frame, symbol source, reason for an unsymbolized frame, unwind method, end of a stack, loss and runtime
/// event; modules with and without a build id; several processes and threads. Counts are those of the golden files times
/// `factor`.
#[must_use]
pub fn golden_profile(factor: u64) -> Profile {
    let (mut golden, threads) = Golden::sampled(factor);
    golden.add_runtime_events(threads);
    golden.add_kubernetes_names(threads[0]);
    let mut profile = golden.finish();
    profile.set_incident(Incident {
        since_ns: 400_000_000,
        time_ns: 500_000_000,
        condition: "cpu < 20% for 100ms".to_owned(),
        values: format!("cpu 3.1 % {}", ODD_NAMES[0]),
    });
    profile
}

/// The golden profile as recordings up to version 2 have it: without runtime events and without names in Kubernetes.
#[must_use]
pub fn golden_profile_without_runtime_events() -> Profile {
    Golden::sampled(1).0.finish()
}

struct Golden {
    builder: ProfileBuilder,
    factor: u64,
    time_ns: u64,
}

impl Golden {
    /// The samples, losses, and two of the threads.
    fn sampled(factor: u64) -> (Self, [ThreadId; 2]) {
        let mut golden = Self { builder: ProfileBuilder::default(), factor, time_ns: 0 };
        golden.builder.event(Event::at_frequency("cpu-clock", 100));
        let threads = golden.sample_all();
        golden.lose(factor);
        (golden, threads)
    }

    fn finish(self) -> Profile {
        self.builder.finish(Header {
            target: "pid 7 (app)".to_owned(),
            duration_ns: 1_500_000_000,
            started_unix_ns: 1_700_000_000_000_000_000,
            started_monotonic_ns: 5_000_000_000,
            cpus: 2,
            ..Header::default()
        })
    }

    fn sample_all(&mut self) -> [ThreadId; 2] {
        let app = self.builder.process(7, "app");
        self.builder.set_container(app, "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29");
        let other = self.builder.process(8, ODD_NAMES[0]);
        let main_thread = self.builder.thread(app, 7, "app");
        let worker = self.builder.thread(app, 9, "wor\nker 1/2");
        let other_thread = self.builder.thread(other, 8, ODD_NAMES[0]);

        let run = self.builder.module("/app/run", &[0xab, 0x01]);
        let assembly = self.builder.module("/app/App.dll", &[]);
        let kernel = self.builder.module("[kernel]", &[0xcd; 20]);
        let main = self.frame("main", FrameKind::Native, Some(run), 0);
        let outer = self.frame("outer", FrameKind::Native, Some(run), 7);
        let inlined = self.frame("inlined", FrameKind::Inlined, Some(run), 12);
        let generic = "std::vector<int, std::allocator<int>>::push_back(int&&)";
        let generic = self.frame(generic, FrameKind::Native, Some(run), 0);
        let ready = self.frame("App!Demo.Program.Main()", FrameKind::Precompiled, Some(assembly), 0);
        let hot = self.frame("App!Demo.Program.Hot(int64, string)", FrameKind::Jit, None, 0);
        let read = self.frame("ksys_read", FrameKind::Kernel, Some(kernel), 0);

        self.sample(main_thread, &[hot, ready, main], StackEnd::Root, 40);
        self.sample(main_thread, &[generic, outer, main], StackEnd::Root, 5);
        self.sample(worker, &[read, main], StackEnd::Root, 20);
        self.sample(worker, &[inlined, outer, main], StackEnd::Root, 1);
        self.sample(other_thread, &[hot, ready, main], StackEnd::Root, 3);
        self.sample(worker, &[inlined, outer, main], StackEnd::Root, 1);
        self.sample(main_thread, &[], StackEnd::Empty, 1);
        for name in ODD_NAMES {
            let module = self.builder.module(name, &[1, 2, 3]);
            let frame = self.frame(name, FrameKind::Jit, Some(module), 3);
            self.sample(main_thread, &[frame, main], StackEnd::Root, 1);
        }
        self.sample_symbolizations(main_thread);
        for end in EARLY_END_REASONS {
            self.sample(other_thread, &[outer], end, 1);
        }
        [main_thread, worker]
    }

    /// Names the pod and the container of a thread's process.
    fn add_kubernetes_names(&mut self, thread: ThreadId) {
        let process = self.builder.process_of(thread);
        let [namespace, pod, container] = ["shop", "web-0", "app"].map(|name| self.builder.string(name));
        let container = Some(container);
        self.builder.set_kubernetes_names(process, KubernetesNames { namespace, pod, container });
    }

    /// An event of each kind, with and without thread, duration and stack, and with every kind of field.
    fn add_runtime_events(&mut self, [main_thread, worker]: [ThreadId; 2]) {
        const INTERVAL_NS: u64 = 100_000_000;
        let process = self.builder.process_of(main_thread);
        let throw = self.frame("App!Demo.Program.Throw()", FrameKind::Jit, None, 0);
        let throws = self.builder.stack(vec![throw], StackEnd::Root);
        let texts = ODD_NAMES.map(|text| FieldValue::Text(self.builder.string(text)));
        let numbers = [
            FieldValue::Unsigned(u64::MAX),
            FieldValue::Signed(i64::MIN),
            FieldValue::Real(0.1),
            FieldValue::Real(f64::NEG_INFINITY),
        ];
        for (index, &kind) in RuntimeEventKind::ALL.iter().enumerate() {
            let name = self.builder.string(&format!("Provider/{kind:?}"));
            let values =
                [texts[index % texts.len()], numbers[index % numbers.len()], FieldValue::Unsigned(3)];
            let names = ["Reason", "Depth", ODD_NAMES[index % ODD_NAMES.len()]];
            let fields = names.into_iter().zip(values);
            let fields = fields.map(|(name, value)| EventField { name: self.builder.string(name), value });
            let fields = fields.collect();
            self.builder.add_runtime_event(RuntimeEvent {
                time_ns: index as u64 * INTERVAL_NS,
                duration_ns: if index % 2 == 0 { INTERVAL_NS / 4 } else { 0 },
                process,
                thread: [Some(main_thread), Some(worker), None][index % 3],
                kind,
                name,
                stack: (kind == RuntimeEventKind::Exception).then_some(throws),
                fields,
            });
        }
    }

    fn sample_symbolizations(&mut self, thread: ThreadId) {
        let named = SOURCES.map(|source| {
            let name = format!("named by {source}");
            self.frame_named(&name, FrameKind::Native, None, 0, Symbolization::Symbol(source))
        });
        let library = self.builder.module("/usr/lib/libfoo.so", &[0xef; 20]);
        // The kept recordings are older than these.
        let later = [
            Reason::NotResponding,
            Reason::TooManyOpenFiles,
            Reason::OutOfTime,
            Reason::JitCodeUnloaded,
            Reason::NoJavaMap,
            Reason::NoDotnetMap,
            Reason::NoMonoMap,
            Reason::NoErlangMap,
            Reason::NoNodeMap,
            Reason::NoPhpMap,
            Reason::NoRubyMap,
            Reason::NoLuaJitMap,
            Reason::JitCodeReplaced,
        ];
        let reasons = Reason::ALL.iter().filter(|reason| !later.contains(reason));
        let unnamed = reasons.map(|&reason| {
            let name = format!("[libfoo.so+{:#x}]", reason as u32 * 16);
            self.frame_named(&name, FrameKind::Native, Some(library), 0, Symbolization::Address(reason))
        });
        let unnamed: Vec<_> = unnamed.collect();
        self.sample(thread, &named, StackEnd::Root, 1);
        self.sample(thread, &unnamed, StackEnd::Root, 1);
    }

    fn frame(&mut self, name: &str, kind: FrameKind, module: Option<ModuleId>, line: u32) -> FrameId {
        let source = match kind {
            FrameKind::Kernel => SymbolSource::Kallsyms,
            FrameKind::Jit => SymbolSource::RuntimeEvents,
            FrameKind::Precompiled => SymbolSource::ReadyToRun,
            FrameKind::Inlined => SymbolSource::Dwarf,
            _ => SymbolSource::SymbolTable,
        };
        self.frame_named(name, kind, module, line, Symbolization::Symbol(source))
    }

    /// Has a line of the source that is not 0, and an address of its own.
    fn frame_named(
        &mut self,
        name: &str,
        kind: FrameKind,
        module: Option<ModuleId>,
        line: u32,
        symbolization: Symbolization,
    ) -> FrameId {
        let (name, file) = (self.builder.string(name), self.builder.string("/src/a.rs"));
        let location = (line > 0).then_some(SourceLocation { file, line });
        let address = ElfAddress(0x1000 + 0x10 * name.index() as u64);
        self.builder.frame(Frame { name, kind, module, address, location, symbolization })
    }

    fn sample(&mut self, thread: ThreadId, frames: &[FrameId], end: StackEnd, count: u64) {
        let walked = frames.iter().copied().zip(UNWIND_METHODS.into_iter().cycle());
        let stack = self.builder.unwound_stack(walked, end);
        self.builder.sample(self.time_ns, 1, thread, stack, count * self.factor);
        self.time_ns += INTERVAL_NS;
    }

    fn lose(&mut self, factor: u64) {
        let losses = [Loss::RingBufferFull, Loss::NoThreadId, Loss::MissingStack, Loss::Undecodable];
        self.builder.event_ledger_mut(EventId::FIRST).lost =
            losses.into_iter().zip((1..).map(|count| count * factor)).collect();
        *self.builder.ledger_mut() = Ledger {
            events: std::mem::take(&mut self.builder.ledger_mut().events),
            lost_process_events: 2,
            lost_children: 3,
            malformed_jit_entries: 4,
            dropped_runtime_events: 5,
            cost: Cost {
                bpf_run_time_ns: 1_000_000,
                user_cpu_ns: 20_000_000,
                system_cpu_ns: 30_000_000,
                peak_memory_bytes: 12_000_000,
            },
            ..Ledger::default()
        };
    }
}
