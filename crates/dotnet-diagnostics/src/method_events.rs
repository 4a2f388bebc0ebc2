//! Collects the methods and modules in the events of a runtime, within a memory budget.

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::{
    eventpipe::{
        code_events::{AssemblyEvent, CodeEvent, CompilationEvent, MethodEvent, ModuleEvent},
        nettrace::Event,
    },
    managed::Tier,
};

use super::{
    clock::TimeBase,
    compilations::{CompilationEdge, CompiledMethod},
    memory_budget::{MemoryBudget, MemoryReservation},
    module_names::{MODULE_BYTES, ModuleNames},
};
use profiler_binary_reader::{Name, Names};

/// Methods per report. The largest .NET programs have a hundred thousand, all tiers included.
const MAX_METHODS: usize = 1 << 18;

/// The code of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObservedMethod {
    pub(super) observed: Observed,
    /// Whether it is a method without metadata, whose code can be unloaded.
    pub(super) is_dynamic: bool,
    pub(super) start: u64,
    pub(super) size_bytes: u32,
    pub(super) module_id: u64,
    pub(super) tier: Tier,
    /// Without its module.
    pub(super) name: Name,
}

/// What an event says of the code of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// It was loaded at this time.
    Loaded { at: MonotonicTime },
    /// It existed at this time, and is not from before `from`.
    Existing { from: MonotonicTime, at: MonotonicTime },
    /// It was unloaded at this time.
    Unloaded { at: MonotonicTime },
}

/// Which events are kept, and their memory.
#[derive(Clone, Debug)]
pub(super) struct EventOptions {
    pub(super) budget: MemoryBudget,
    pub(super) keeps_compilations: bool,
}

/// The methods and modules of the events since the last report.
#[derive(Debug, Default)]
pub(super) struct MethodEvents {
    pub(super) methods: Vec<ObservedMethod>,
    pub(super) names: Names,
    pub(super) modules: ModuleNames,
    /// Events whose payload is too short.
    pub(super) malformed_events: u64,
    /// Whether methods were discarded because a limit was reached.
    pub(super) truncated: bool,
    /// Whether code was unloaded. Its addresses can be reused.
    pub(super) unloads_code: bool,
    /// The beginnings and ends of compilations, if they are kept.
    pub(super) compilations: Vec<CompilationEdge>,
    keeps_compilations: bool,
    memory: MemoryReservation,
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventTime {
    /// That of its ticks.
    OfTicks(TimeBase),
    /// This time: the clock of the stream is unknown.
    Known(MonotonicTime),
}

impl EventTime {
    fn of(self, event: &Event<'_>) -> MonotonicTime {
        match self {
            Self::OfTicks(base) => base.to_monotonic_time(event.ticks),
            Self::Known(time) => time,
        }
    }
}

impl MethodEvents {
    /// No events. Their memory is reserved from the budget.
    pub(super) fn new(options: &EventOptions) -> Self {
        let memory = MemoryReservation::new(&options.budget);
        Self { memory, keeps_compilations: options.keeps_compilations, ..Self::default() }
    }

    /// Adds an event. Events about other things are ignored. The methods of a rundown are not from before `rundown_from`.
    pub(super) fn add(&mut self, event: &Event<'_>, time: EventTime, rundown_from: Option<MonotonicTime>) {
        let at = time.of(event);
        match CodeEvent::decode(event) {
            Some(Ok(CodeEvent::Method(method))) => {
                if let Some(from) = rundown_from {
                    return self.add_method(&method, Observed::Existing { from, at });
                }
                self.add_method(&method, Observed::Loaded { at });
                self.add_compilation_edge(event, time, method.method_id, None);
            }
            Some(Ok(CodeEvent::MethodUnloaded(method))) => {
                self.unloads_code = true;
                self.add_method(&method, Observed::Unloaded { at });
            }
            Some(Ok(CodeEvent::CompilationStarted(CompilationEvent {
                method_id, module_id, name, ..
            }))) => {
                let begun = CompiledMethod { module_id, name: name.into() };
                self.add_compilation_edge(event, time, method_id, Some(begun));
            }
            Some(Ok(CodeEvent::Module(module))) => self.add_module(&module),
            Some(Ok(CodeEvent::Assembly(assembly))) => self.add_assembly(assembly),
            Some(Ok(CodeEvent::ModuleUnloaded)) => self.unloads_code = true,
            Some(Ok(_)) | None => {}
            Some(Err(_)) => self.malformed_events += 1,
        }
    }

    fn add_method(&mut self, method: &MethodEvent, observed: Observed) {
        let MethodEvent { start, size_bytes, module_id, tier, is_dynamic, ref name, .. } = *method;
        let is_within_limits =
            self.methods.len() < MAX_METHODS && self.memory.reserve(name.len() + size_of::<ObservedMethod>());
        let name = if is_within_limits { self.names.push(name.as_bytes()) } else { None };
        match name {
            Some(name) => {
                let method =
                    ObservedMethod { observed, is_dynamic, start, size_bytes, module_id, tier, name };
                self.methods.push(method);
            }
            None => self.truncated = true,
        }
    }

    /// Adds the beginning or the end of a compilation.
    fn add_compilation_edge(
        &mut self,
        event: &Event<'_>,
        time: EventTime,
        method_id: u64,
        begun: Option<CompiledMethod>,
    ) {
        let EventTime::OfTicks(base) = time else { return };
        let name_bytes = begun.as_ref().map_or(0, |method| method.name.len());
        if self.keeps_compilations && self.memory.reserve(name_bytes + size_of::<CompilationEdge>()) {
            let (time, thread) = (base.to_monotonic_time(event.ticks), event.thread);
            self.compilations.push(CompilationEdge { time, thread, method_id, begun });
        }
    }

    fn add_module(&mut self, module: &ModuleEvent) {
        let name = module.assembly_name();
        if self.memory.reserve(name.len() + MODULE_BYTES) {
            self.modules.insert(module.module_id, name);
            self.modules.set_assembly(module.module_id, module.assembly_id);
        }
    }

    fn add_assembly(&mut self, assembly: AssemblyEvent) {
        if assembly.is_collectible && self.memory.reserve(MODULE_BYTES) {
            self.modules.add_collectible(assembly.assembly_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::{RUNDOWN_PROVIDER, RUNTIME_PROVIDER},
        nettrace::EventKind,
        testing::{method_payload, module_payload},
    };

    use super::*;

    fn add(events: &mut MethodEvents, provider: &str, id: u32, payload: &[u8]) {
        let kind = EventKind { provider: provider.to_owned(), id, ..EventKind::default() };
        events.add(
            &Event { kind: &kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] },
            EventTime::Known(MonotonicTime(9)),
            None,
        );
    }

    #[test]
    fn methods_are_added_with_their_time_and_name() {
        let mut events = MethodEvents::default();
        let payload =
            method_payload(3, 0x1000, 16, ["A.B+C", "Run", "instance void  (int32,class System.String)"]);
        for (provider, id) in [(RUNTIME_PROVIDER, 143), (RUNDOWN_PROVIDER, 143), (RUNDOWN_PROVIDER, 144)] {
            add(&mut events, provider, id, &payload);
        }
        for (provider, id) in [(RUNTIME_PROVIDER, 141), ("Other", 143), (RUNDOWN_PROVIDER, 146)] {
            add(&mut events, provider, id, &payload);
        }
        assert!(!events.unloads_code);
        add(&mut events, RUNTIME_PROVIDER, 144, &payload);
        assert!(events.unloads_code);
        assert_eq!(events.methods.len(), 4);
        assert_eq!(events.methods[3].observed, Observed::Unloaded { at: MonotonicTime(9) });
        let ObservedMethod { observed, start, size_bytes, module_id, tier, name, .. } = events.methods[0];
        assert_eq!(
            (observed, start, size_bytes, module_id, tier),
            (Observed::Loaded { at: MonotonicTime(9) }, 0x1000, 16, 3, Tier::QuickJitted)
        );
        assert_eq!(events.names.get(name), "A.B+C.Run(int32,class System.String)");
    }

    #[test]
    fn modules_are_added_by_the_names_of_their_assemblies() {
        let mut events = MethodEvents::default();
        add(&mut events, RUNDOWN_PROVIDER, 154, &module_payload(1, "/app/My.App.dll"));
        add(&mut events, RUNDOWN_PROVIDER, 154, &module_payload(4, "/"));
        add(&mut events, RUNTIME_PROVIDER, 152, &module_payload(5, "C:\\x\\Late.dll"));
        let name = |id| events.modules.get(id);
        assert_eq!([1, 4, 5].map(name), [Some("My.App"), None, Some("Late")]);
    }

    #[test]
    fn names_that_exceed_the_memory_budget_are_not_kept() {
        let options = EventOptions { budget: MemoryBudget::default(), keeps_compilations: false };
        let mut other_session = MemoryReservation::new(&options.budget);
        while other_session.reserve(1 << 10) {}
        let mut events = MethodEvents::new(&options);
        let class = "x".repeat(1 << 12);
        for start in 0..100 {
            let method = method_payload(3, start, 16, [class.as_str(), "Run", "void  ()"]);
            add(&mut events, RUNTIME_PROVIDER, 143, &method);
            add(&mut events, RUNTIME_PROVIDER, 152, &module_payload(start, &class[..1 << 10]));
        }
        assert!(events.truncated && events.methods.is_empty());
        assert_eq!((events.names.memory_bytes(), events.modules.memory_bytes()), (0, 0));
    }

    #[test]
    fn truncated_payloads_are_counted() {
        let mut events = MethodEvents::default();
        let payload = method_payload(3, 0x1000, 16, ["A", "B", "void  ()"]);
        let needed_bytes = payload.len() - 2;
        for length in 0..needed_bytes {
            add(&mut events, RUNTIME_PROVIDER, 143, &payload[..length]);
        }
        assert_eq!(events.malformed_events, needed_bytes as u64);
        assert!(events.methods.is_empty());
    }
}
