//! Profiles for tests: from folded stacks, and random ones with every kind of entry.

use crate::{
    Attribute, Certainty, Cost, Event, EventField, FieldValue, Finding, FindingFacts, FindingKind, FoundBy,
    Frame, FrameId, FrameKind, GcMode, Header, KubernetesNames, LockOwner, Loss, ManagedThread,
    OmittedEvents, Partner, Place, PollReading, ProcessId, Profile, ProfileBuilder, Proof, Reason,
    RuntimeEvent, RuntimeEventKind, Sample, Sampling, Selection, Share, SourceLocation, StackEnd, StackId,
    SymbolSource, Symbolization, ThreadId, ThreadState, Whole,
};
use profiler_addresses::ElfAddress;

/// A profile of folded stacks, `comm;root;leaf`, and their counts. Process and thread have id 1, functions an address
/// for each place in a stack, and samples are 10 ms apart.
pub fn folded(stacks: &[(&str, u64)]) -> Profile {
    const INTERVAL_NS: u64 = 10_000_000;
    let mut builder = ProfileBuilder::default();
    for (time, (line, count)) in (0_u64..).zip(stacks) {
        let (comm, names) = line.split_once(';').unwrap_or((line, ""));
        let names = names.split(';').filter(|name| !name.is_empty());
        let mut frames: Vec<_> =
            (0..).zip(names).map(|(address, name)| function(&mut builder, name, address)).collect();
        frames.reverse();
        let stack = builder.stack(frames, StackEnd::Root);
        let comm = builder.string(comm);
        let process = builder.process_named(1, comm);
        let thread = builder.thread_named(process, 1, comm);
        builder.sample(time * INTERVAL_NS, 0, thread, stack, *count);
    }
    builder.finish(Header::default())
}

/// An interval of one second of a session, from second `number` on, with one sample of function `f{number}`. The profiler has
/// used 10 ms of CPU time a second.
pub fn second(number: u64) -> Profile {
    const NS_PER_S: u64 = 1_000_000_000;
    let mut builder = ProfileBuilder::default();
    let frame = function(&mut builder, &format!("f{number}"), 1);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(7, "p");
    let thread = builder.thread(process, 7, "p");
    builder.sample(1, 0, thread, stack, 1);
    builder.ledger_mut().cost = Cost { user_cpu_ns: number * NS_PER_S / 100, ..Cost::default() };
    builder.finish(Header {
        started_monotonic_ns: number * NS_PER_S,
        duration_ns: NS_PER_S,
        ..Header::default()
    })
}

/// A profile with one finding.
pub fn with_finding() -> Profile {
    let mut profile = folded(&[("p;main", 1)]);
    profile.set_findings(vec![Finding {
        kind: FindingKind::PoolStarvation,
        evidence: "3 of 4 pool workers block".to_owned(),
        remedy: "make A.B asynchronous".to_owned(),
        event: Some(crate::EventId::FIRST),
        value: 1,
        facts: FindingFacts {
            processes: vec![1],
            threads: Some(3),
            share: Some(Share { percent: 75.0, of: Whole::PoolWorkers }),
            place: Some(Place { method: "A.B".to_owned(), location: Some(("/src/a.cs".to_owned(), 5)) }),
            certainty: Certainty::Likely(Proof::PoolAdjustments),
            selection: Selection {
                end_ns: 10_000_000,
                threads: vec![1],
                search: Some("A.B".to_owned()),
                ..Selection::default()
            },
            ..FindingFacts::default()
        },
    }]);
    profile
}

/// The text of the finding of [`with_finding`].
pub const FINDING: &str = "3 of 4 pool workers block: make A.B asynchronous";

/// A native function of no module.
pub fn function(builder: &mut ProfileBuilder, name: &str, address: u64) -> FrameId {
    let name = builder.string(name);
    let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
    builder.frame(Frame {
        name,
        kind: FrameKind::Native,
        module: None,
        address: ElfAddress(address),
        location: None,
        symbolization,
    })
}

/// A random profile, equal for equal seeds.
pub fn random(seed: u64) -> Profile {
    const NAMES: [&str; 8] = ["main", "work", "a;b", "", "\u{1b}[31m", "f<T>", "h\u{e9}", "a\nb"];
    let mut draw = Draw(seed);
    let mut builder = ProfileBuilder::default();
    let modules: Vec<_> = (0..1 + draw.below(4))
        .map(|index| builder.module(&format!("/lib/{index}.so"), &vec![index as u8; 4 * index as usize]))
        .collect();
    let frames: Vec<_> = (0..1 + draw.below(40))
        .map(|_| {
            let (name, file) = (builder.string(draw.of(&NAMES)), builder.string("/src/a.rs"));
            let (line, module) = (draw.below(9) as u32, draw.of(&modules));
            builder.frame(Frame {
                name,
                kind: draw.of(&[FrameKind::Kernel, FrameKind::Native, FrameKind::Jit, FrameKind::Inlined]),
                module: draw.of(&[None, Some(module)]),
                address: ElfAddress(draw.below(u64::MAX)),
                location: draw.of(&[None, Some(SourceLocation { file, line })]),
                symbolization: match draw.below(3) {
                    0 => Symbolization::Address(draw.of(Reason::ALL)),
                    1 => Symbolization::Symbol(SymbolSource::Dwarf),
                    _ => Symbolization::Symbol(SymbolSource::RuntimeEvents),
                },
            })
        })
        .collect();
    let stacks: Vec<_> = (0..1 + draw.below(60))
        .map(|_| {
            let found_by = [FoundBy::Sample, FoundBy::Cfi, FoundBy::FramePointer, FoundBy::NotRecorded];
            let frames: Vec<_> =
                (0..draw.below(12)).map(|_| (draw.of(&frames), draw.of(&found_by))).collect();
            builder.unwound_stack(frames, draw.of(&[StackEnd::Root, StackEnd::DepthLimit, StackEnd::Empty]))
        })
        .collect();
    let threads: Vec<_> = (0..1 + draw.below(8))
        .map(|_| {
            let process = builder.process(draw.below(1 << 22) as u32, draw.of(&NAMES));
            if draw.below(2) == 1 {
                builder.set_container(process, draw.of(&NAMES));
                let [namespace, pod, container] = [(); 3].map(|()| builder.string(draw.of(&NAMES)));
                let container = (draw.below(2) == 1).then_some(container);
                builder.set_kubernetes_names(process, KubernetesNames { namespace, pod, container });
            }
            builder.thread(process, draw.below(1 << 22) as u32, draw.of(&NAMES))
        })
        .collect();
    let cpu_clock = builder.event(Event::at_frequency("cpu-clock", 99));
    for _ in 0..draw.below(400) {
        let (time_ns, cpu) = (draw.below(10_000_000_000), draw.below(64) as u32);
        builder.sample(time_ns, cpu, draw.of(&threads), draw.of(&stacks), 1 + draw.below(3) * (1 << 33));
    }
    builder.event_ledger_mut(cpu_clock).lost.insert(Loss::RingBufferFull, draw.below(1 << 40));
    add_waits(&mut builder, &mut draw, &threads, &stacks);
    add_runtime_events(&mut builder, &mut draw, &threads, &stacks);
    add_lock_owners(&mut builder, &mut draw, &threads);
    add_poll_readings(&mut builder, &mut draw, &threads);
    add_managed_threads(&mut builder, &mut draw, &threads);
    add_omitted_events(&mut builder, &mut draw, &threads);
    let mut profile = builder.finish(Header { target: "pid 1 (a)".to_owned(), ..Header::default() });
    add_findings(&mut profile, &mut draw);
    profile
}

/// A sample and a runtime event of a process in a container of a pod. The name of the pod has a separator of stacks.
pub fn in_pod() -> Profile {
    let mut builder = ProfileBuilder::default();
    let process = builder.process(7, "app");
    builder.set_container(process, "4f1c3ab99a0e6b7a");
    let [namespace, pod, container] = ["shop", "web;0", "app"].map(|name| builder.string(name));
    let names = KubernetesNames { namespace, pod, container: Some(container) };
    builder.set_kubernetes_names(process, names);
    let [name, value] = ["k8s.pod.uid", "0d4b8f4e-52f1"].map(|text| builder.string(text));
    builder.set_attribute(process, Attribute { name, value });
    let thread = builder.thread(process, 7, "app");
    let frame = function(&mut builder, "main", 0);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    builder.event(Event::at_frequency("cpu-clock", 99));
    builder.sample(0, 0, thread, stack, 1);
    let name = builder.string("Provider/GCStart");
    builder.add_runtime_event(RuntimeEvent {
        time_ns: 0,
        duration_ns: 0,
        process,
        thread: None,
        kind: RuntimeEventKind::GarbageCollection,
        name,
        stack: None,
        fields: Box::default(),
    });
    builder.finish(Header::default())
}

/// Adds up to two findings, and idle samples of each event.
fn add_findings(profile: &mut Profile, draw: &mut Draw) {
    let events: Vec<_> = profile.event_ids().collect();
    let findings = (0..draw.below(3)).map(|_| Finding {
        kind: draw.of(FindingKind::ALL),
        evidence: "1 of 2 threads".to_owned(),
        remedy: "h\u{e9}".to_owned(),
        event: Some(draw.of(&events)).filter(|_| draw.below(3) > 0),
        value: draw.below(u64::MAX),
        facts: facts(draw),
    });
    profile.set_findings(findings.collect());
    for event in events {
        profile.set_idle_samples(event, draw.below(1 << 33));
    }
}

/// Facts in which each optional field can be absent.
fn facts(draw: &mut Draw) -> FindingFacts {
    let mut ids = Vec::new();
    ids.resize_with(draw.below(3) as usize, || draw.below(1 << 22) as u32);
    let percent = draw.below(800) as f64 / 8.0;
    let location = Some(("/src/h\u{e9}.cs".to_owned(), draw.below(1 << 20) as u32));
    let place = Place { method: "A.B".to_owned(), location: location.filter(|_| draw.below(2) == 0) };
    FindingFacts {
        processes: ids.clone(),
        threads: draw.of(&[None, Some(4)]),
        threads_at_a_time: draw.of(&[None, Some(1.5)]),
        share: draw.of(&[None, Some(Share { percent, of: Whole::CpuTime })]),
        place: Some(place).filter(|_| draw.below(2) == 0),
        cause_thread: draw.of(&[None, Some(7)]),
        partner: draw
            .of(&[None, Some("h\u{e9}")])
            .map(|name| Partner { name: name.to_owned(), process: draw.of(&[None, Some(1 << 20)]) }),
        since_ns: draw.of(&[None, Some(1 << 40)]),
        certainty: draw.of(&[Certainty::Proven, Certainty::Likely(Proof::LockOwner)]),
        selection: Selection {
            begin_ns: draw.below(1 << 40),
            end_ns: draw.below(1 << 40),
            threads: ids,
            runtime_events: draw.of(&[None, Some(RuntimeEventKind::Contention)]),
            search: draw.of(&[None, Some("A.B")]).map(str::to_owned),
        },
    }
}

/// Adds samples of other events, in every second profile.
fn add_waits(builder: &mut ProfileBuilder, draw: &mut Draw, threads: &[ThreadId], stacks: &[StackId]) {
    if draw.below(2) == 0 {
        return;
    }
    let sampling = Sampling::Durations { min_ns: 1_000 };
    let occurrences = Sampling::Occurrences { period: 10 };
    let events = [
        builder.event(Event { name: "page-faults".to_owned(), sampling: occurrences }),
        builder.event(Event::at_frequency("wall", 49)),
        builder.event(Event { name: "off-cpu".to_owned(), sampling }),
        builder.event(Event { name: "syscall-time".to_owned(), sampling: Sampling::Times { period: 10 } }),
    ];
    for _ in 0..draw.below(100) {
        builder.add_sample(Sample {
            time_ns: draw.below(10_000_000_000),
            cpu: draw.below(64) as u32,
            thread: draw.of(threads),
            stack: draw.of(stacks),
            event: draw.of(&events),
            state: Some(draw.of(ThreadState::ALL)),
            value: 1 + draw.below(1 << 33),
        });
    }
}

/// Adds runtime events, in every second profile.
fn add_runtime_events(
    builder: &mut ProfileBuilder,
    draw: &mut Draw,
    threads: &[ThreadId],
    stacks: &[StackId],
) {
    if draw.below(2) == 0 {
        return;
    }
    let texts = ["Provider/GCStart", "a\nb", "h\u{e9}"].map(|text| builder.string(text));
    for _ in 0..draw.below(100) {
        let thread = draw.of(threads);
        let value = |draw: &mut Draw| match draw.below(4) {
            0 => FieldValue::Unsigned(draw.below(u64::MAX)),
            1 => FieldValue::Signed(-1 - draw.below(1 << 40).cast_signed()),
            2 => FieldValue::Real(draw.below(1 << 20) as f64 / 8.0),
            _ => FieldValue::Text(draw.of(&texts)),
        };
        let fields = (0..draw.below(4)).map(|_| EventField { name: draw.of(&texts), value: value(draw) });
        let fields = fields.collect();
        let process = builder.process_of(thread);
        builder.add_runtime_event(RuntimeEvent {
            time_ns: draw.below(10_000_000_000),
            duration_ns: draw.below(2) * draw.below(1 << 30),
            process,
            thread: draw.of(&[None, Some(thread)]),
            kind: draw.of(RuntimeEventKind::ALL),
            name: draw.of(&texts),
            stack: Some(draw.of(stacks)).filter(|_| draw.below(2) == 0),
            fields,
        });
    }
}

/// An event of a process at its start, without a duration, a thread, a stack and fields.
pub fn runtime_event(
    builder: &mut ProfileBuilder,
    process: ProcessId,
    kind: RuntimeEventKind,
) -> RuntimeEvent {
    RuntimeEvent {
        time_ns: 0,
        duration_ns: 0,
        process,
        thread: None,
        kind,
        name: builder.string("Provider/Event"),
        stack: None,
        fields: Box::default(),
    }
}

/// Adds runtime events that are counted alone, in every second profile.
fn add_omitted_events(builder: &mut ProfileBuilder, draw: &mut Draw, threads: &[ThreadId]) {
    if draw.below(2) == 0 {
        return;
    }
    for _ in 0..draw.below(20) {
        let process = builder.process_of(draw.of(threads));
        builder.add_omitted_events(OmittedEvents {
            time_ns: draw.below(10_000_000_000),
            process,
            kind: draw.of(RuntimeEventKind::ALL),
            count: draw.below(1 << 40),
            duration_ns: draw.below(1 << 40),
            longest_ns: draw.below(1 << 30),
            is_lower_bound: draw.below(2) == 0,
        });
    }
}

/// Adds owners of locks, in every second profile.
fn add_lock_owners(builder: &mut ProfileBuilder, draw: &mut Draw, threads: &[ThreadId]) {
    if draw.below(2) == 0 {
        return;
    }
    for _ in 0..draw.below(20) {
        builder.add_lock_owner(LockOwner {
            time_ns: draw.below(10_000_000_000),
            owner: draw.of(threads),
            lock: draw.below(1 << 47),
            managed_thread_id: draw.below(1 << 16) as u32,
            waiters: 1 + draw.below(1 << 26) as u32,
        });
    }
}

/// Adds what threads wait for, in every second profile.
fn add_poll_readings(builder: &mut ProfileBuilder, draw: &mut Draw, threads: &[ThreadId]) {
    if draw.below(2) == 0 {
        return;
    }
    for _ in 0..draw.below(20) {
        builder.add_poll_reading(PollReading {
            time_ns: draw.below(10_000_000_000),
            thread: draw.of(threads),
            awaits_connections: draw.below(2) == 0,
        });
    }
}

/// Adds readings of managed threads, in every second profile.
fn add_managed_threads(builder: &mut ProfileBuilder, draw: &mut Draw, threads: &[ThreadId]) {
    if draw.below(2) == 0 {
        return;
    }
    for _ in 0..draw.below(20) {
        let texts = ["h\u{e9} 1", "System.FormatException"].map(|text| Some(builder.string(text)));
        let [name, exception] = texts.map(|text| draw.of(&[None, text]));
        builder.add_managed_thread(ManagedThread {
            time_ns: draw.below(10_000_000_000),
            thread: draw.of(threads),
            managed_id: draw.below(1 << 16) as u32,
            name,
            exception,
            gc_mode: draw.of(GcMode::ALL),
        });
    }
}

/// Bytes that hardly compress.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut draw = Draw(1);
    (0..bytes).map(|_| draw.below(256) as u8).collect()
}

/// A linear congruential generator (Knuth, "The Art of Computer Programming", volume 2, section 3.3.4: MMIX).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) % limit
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
