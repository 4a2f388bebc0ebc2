//! Known, hostile and large profiles for the tests of the interactive page.

use profiler::{
    ElfAddress, Profile,
    profile::{
        Certainty, Event, Finding, FindingFacts, FindingKind, Frame, FrameId, FrameKind, Header,
        KubernetesNames, ProfileBuilder, Proof, Reason, RuntimeEvent, RuntimeEventKind, Sample, Sampling,
        Selection, SourceLocation, StackEnd, SymbolSource, Symbolization, ThreadId, ThreadState,
    },
};

pub(super) const NS_PER_MS: u64 = 1_000_000;

pub(super) fn frame(builder: &mut ProfileBuilder, name: &str, kind: FrameKind, module: &str) -> FrameId {
    let (name, module) = (builder.string(name), Some(builder.module(module, &[])));
    let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
    builder.frame(Frame { name, kind, module, address: ElfAddress(0), location: None, symbolization })
}

pub(super) fn builder() -> ProfileBuilder {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 100));
    builder
}

pub(super) fn header(duration_ms: u64) -> Header {
    Header {
        target: "pid 7 (app)".to_owned(),
        duration_ns: duration_ms * NS_PER_MS,
        started_unix_ns: 1_700_000_000_000_000_000,
        started_monotonic_ns: 5,
        cpus: 2,
        ..Header::default()
    }
}

/// Three seconds with a sample every 10 ms: one of work, one of recursive work, one of reads in another thread.
pub(super) fn known() -> Profile {
    let mut builder = builder();
    let main = frame(&mut builder, "main", FrameKind::Native, "/app/run");
    let work = frame(&mut builder, "App!Demo.Program.Work(int32)", FrameKind::Precompiled, "/app/App.dll");
    let walk = frame(&mut builder, "tree::walk<int>(Node*)", FrameKind::Native, "/app/libtree.so");
    let io = frame(&mut builder, "io", FrameKind::Inlined, "/app/run");
    let read = frame(&mut builder, "ksys_read", FrameKind::Kernel, "[kernel]");
    let (name, file) =
        (builder.string("App!Demo.Program.Hot(class System.String)"), builder.string("/src/Hot.cs"));
    let hot = builder.frame(Frame {
        name,
        kind: FrameKind::Jit,
        module: None,
        address: ElfAddress(0),
        location: Some(SourceLocation { file, line: 12 }),
        symbolization: Symbolization::Symbol(SymbolSource::RuntimeEvents),
    });
    let (name, module) = (builder.string("[libfoo.so+0x1234]"), Some(builder.module("/lib/libfoo.so", &[])));
    let unnamed = builder.frame(Frame {
        name,
        kind: FrameKind::Native,
        module,
        address: ElfAddress(0x1234),
        location: None,
        symbolization: Symbolization::Address(Reason::NoSymbols),
    });
    let process = builder.process(7, "app");
    builder.set_container(process, "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29");
    let [namespace, pod, container] = ["shop", "web-0", "app"].map(|name| builder.string(name));
    let names = KubernetesNames { namespace, pod, container: Some(container) };
    builder.set_kubernetes_names(process, names);
    let threads = [builder.thread(process, 7, "app"), builder.thread(process, 8, "worker;1")];
    for index in 0..300 {
        let (thread, frames) = match index {
            0..100 => (threads[0], vec![hot, work, main]),
            100..200 => (threads[0], vec![hot, walk, walk, work, main]),
            200..299 => (threads[1], vec![read, io, main]),
            _ => (threads[1], vec![unnamed, main]),
        };
        let stack = builder.stack(frames, StackEnd::Root);
        builder.sample(index * 10 * NS_PER_MS, 0, thread, stack, 1);
    }
    builder.finish(header(3_000))
}

/// Names with markup, scripts, control characters and extreme lengths.
pub(super) fn hostile() -> Profile {
    let long = "x".repeat(100_000);
    let names = [
        "<img src=x onerror=\"document.title='broken'\">",
        "</script><script>document.title='broken'</script>",
        "<!--<script>",
        "' onclick='document.title=1",
        "abc\u{202e}def\u{2066}ghi\u{200f}\u{5d0}\u{5d1}",
        "line\u{2028}break\r\n\u{1b}[31m\0",
        "__proto__",
        "constructor",
        "\u{1f525} naïve \u{6f22}\u{5b57}",
        "",
        "   ",
        &long,
    ];
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency(names[1], 100));
    for (index, name) in names.iter().enumerate() {
        let frame = frame(&mut builder, name, FrameKind::Jit, name);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(7, name);
        let thread = builder.thread(process, 7, name);
        builder.sample(index as u64 * 100 * NS_PER_MS, 0, thread, stack, (index as u64 + 1) << 33);
    }
    builder.finish(Header { target: names[0].to_owned(), ..header(1_000) })
}

/// Ticks of a function, and the time for which the same thread waited in another.
pub(super) fn two_events(ticks: u64) -> Profile {
    let mut builder = builder();
    let sampling = Sampling::Durations { min_ns: NS_PER_MS };
    let event = builder.event(Event { name: "off-cpu".to_owned(), sampling });
    let process = builder.process(7, "app");
    let thread = builder.thread(process, 7, "app");
    let [work, wait] = ["work", "wait"].map(|name| {
        let frame = frame(&mut builder, name, FrameKind::Native, "/app/run");
        builder.stack(vec![frame], StackEnd::Root)
    });
    for tick in 0..ticks {
        builder.sample(tick * 10 * NS_PER_MS, 0, thread, work, 1);
    }
    let (time_ns, state, value) = (200 * NS_PER_MS, Some(ThreadState::Blocked), 1_500 * NS_PER_MS);
    builder.add_sample(Sample { time_ns, cpu: 0, thread, stack: wait, event, state, value });
    builder.finish(header(2_000))
}

/// A profile of wall-clock samples of two threads: 100 ticks of 20 ms in a second, with each state but `stopped`.
pub(super) fn lanes() -> Profile {
    wall_clock(&["main", "worker"], &RUNS, 1_000)
}

/// A profile of wall-clock samples of a thousand threads for ten minutes, each with 300 runs.
pub(super) fn many_lanes() -> Profile {
    let states = [ThreadState::Blocked, ThreadState::OnCpu, ThreadState::Runnable];
    let names = vec!["worker"; 1_000];
    let runs: Vec<_> = (0..300)
        .flat_map(|at| (0..1_000).map(move |thread| (at, thread)))
        .map(|(at, thread)| {
            let functions = ["work", "wait", "read", "lock"];
            (
                thread,
                at * 100,
                100,
                states[(at as usize + thread) % 3],
                functions[(at as usize * 7 + thread) % 4],
            )
        })
        .collect();
    wall_clock(&names, &runs, 600_000)
}

/// The runs of [`lanes`]: thread, first tick, ticks, state and function below `main`.
pub(super) const RUNS: [Run; 4] = [
    (0, 0, 10, ThreadState::OnCpu, "work"),
    (0, 10, 40, ThreadState::Blocked, "wait"),
    (1, 0, 30, ThreadState::Runnable, "wait"),
    (1, 30, 20, ThreadState::Disk, "wait"),
];

type Run = (usize, u64, u64, ThreadState, &'static str);

fn wall_clock(names: &[&str], runs: &[Run], duration_ms: u64) -> Profile {
    wall_clock_builder(names, runs).0.finish(header(duration_ms))
}

/// A profile of wall-clock samples at 50 Hz, and its threads.
pub(super) fn wall_clock_builder(names: &[&str], runs: &[Run]) -> (ProfileBuilder, Vec<ThreadId>) {
    const TICK_NS: u64 = 20 * NS_PER_MS;
    let mut builder = ProfileBuilder::default();
    let event = builder.event(Event::at_frequency("wall", 50));
    let process = builder.process(7, "app");
    let threads: Vec<_> = (7..).zip(names).map(|(tid, name)| builder.thread(process, tid, name)).collect();
    let main = frame(&mut builder, "main", FrameKind::Native, "/app/run");
    for &(thread, tick, value, state, function) in runs {
        let leaf = frame(&mut builder, function, FrameKind::Native, "/app/run");
        let stack = builder.stack(vec![leaf, main], StackEnd::Root);
        let (time_ns, thread) = (tick * TICK_NS, threads[thread]);
        builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state: Some(state), value });
    }
    (builder, threads)
}

/// The text of the findings of [`with_findings`], with markup and a character that reverses text.
const FINDING: &str = "3 of 4 workers block in <b>\u{202e}A.B</b>: make A.B asynchronous";

/// CPU time and waits of two threads, and three findings: on the waits of the second thread in the last of two seconds, on runtime
/// events, and one without facts.
pub(super) fn with_findings() -> Profile {
    let mut builder = builder();
    let wall = builder.event(Event::at_frequency("wall", 50));
    let process = builder.process(7, "app");
    let threads = [7, 8].map(|tid| builder.thread(process, tid, "worker"));
    let [work, wait] =
        [("work", "Shop.Cart.Get(int)"), ("wait", "Shop.Cart.Get(int)")].map(|(leaf, method)| {
            let frames = [leaf, method].map(|name| frame(&mut builder, name, FrameKind::Native, "/app/run"));
            builder.stack(frames.to_vec(), StackEnd::Root)
        });
    for tick in 0..100 {
        let (time_ns, state) = (tick * 20 * NS_PER_MS, Some(ThreadState::Blocked));
        builder.sample(time_ns, 0, threads[0], work, 1);
        for thread in threads {
            let stack = if thread == threads[1] && tick >= 50 { wait } else { work };
            builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event: wall, state, value: 1 });
        }
    }
    let name = builder.string("Provider/Contention");
    for kind in [RuntimeEventKind::Contention, RuntimeEventKind::Exception] {
        builder.add_runtime_event(RuntimeEvent {
            time_ns: 0,
            duration_ns: NS_PER_MS,
            process,
            thread: Some(threads[0]),
            kind,
            name,
            stack: None,
            fields: Box::default(),
        });
    }
    let mut profile = builder.finish(header(2_000));
    let (evidence, remedy) = FINDING.split_once(": ").unwrap();
    let of_samples = Finding {
        kind: FindingKind::PoolStarvation,
        evidence: evidence.to_owned(),
        remedy: remedy.to_owned(),
        event: Some(wall),
        value: 50,
        facts: FindingFacts {
            certainty: Certainty::Likely(Proof::PoolAdjustments),
            selection: Selection {
                begin_ns: 1_000 * NS_PER_MS,
                end_ns: 2_000 * NS_PER_MS,
                threads: vec![8],
                runtime_events: None,
                search: Some("Shop.Cart.Get(int)".to_owned()),
            },
            ..FindingFacts::default()
        },
    };
    let of_events = Finding {
        kind: FindingKind::LockContention,
        event: None,
        facts: FindingFacts {
            certainty: Certainty::Proven,
            selection: Selection {
                end_ns: 2_000 * NS_PER_MS,
                threads: vec![7],
                runtime_events: Some(RuntimeEventKind::Contention),
                ..Selection::default()
            },
            ..FindingFacts::default()
        },
        ..of_samples.clone()
    };
    let without_facts = Finding { facts: FindingFacts::default(), ..of_samples.clone() };
    profile.set_findings(vec![of_samples, of_events, without_facts]);
    profile
}

/// A profile without samples.
pub(super) fn empty() -> Profile {
    ProfileBuilder::default().finish(Header::default())
}

/// A profile of call paths such as `main;work` with their counts, in one process, all at the same time.
pub(super) fn counted(stacks: &[(&str, u64)]) -> Profile {
    let mut builder = builder();
    let process = builder.process(7, "app");
    let thread = builder.thread(process, 7, "app");
    for (path, count) in stacks {
        let mut frames: Vec<_> =
            path.split(';').map(|name| frame(&mut builder, name, FrameKind::Native, "/app/run")).collect();
        frames.reverse();
        let stack = builder.stack(frames, StackEnd::Root);
        builder.sample(0, 0, thread, stack, *count);
    }
    builder.finish(header(10_000))
}

/// A million samples of 50,000 stacks with about 40 frames each, in eight threads. Profiles with different `seed`
/// have equal frames near the root and different ones near the leaf.
pub(super) fn large(seed: u64) -> Profile {
    const STACKS: u64 = 50_000;
    let mut builder = builder();
    let kinds = [FrameKind::Jit, FrameKind::Native, FrameKind::Precompiled, FrameKind::Kernel];
    let functions: Vec<FrameId> = (0..10_000)
        .map(|number| {
            let name =
                format!("App!Company.Product.Area{}.Service{number}.Handle(class Request)", number % 50);
            frame(&mut builder, &name, kinds[number % kinds.len()], &format!("/app/Area{}.dll", number % 50))
        })
        .collect();
    let mut random = Random(seed);
    let mut below = |from: usize, to: usize| from + random.next() as usize % (to - from);
    let stacks: Vec<_> = (0..STACKS as usize)
        .map(|number| {
            // FoldedStacks share their frames near the root and differ near the leaf.
            let mut frames: Vec<FrameId> = (0..8).map(|level| functions[level * 10 + number % 3]).collect();
            frames.extend((0..24).map(|level| functions[100 + level * 40 + (number >> (level / 6)) % 40]));
            frames.extend((0..below(4, 12)).map(|_| functions[below(1_100, 10_000)]));
            builder.stack(frames.into_iter().rev().collect(), StackEnd::Root)
        })
        .collect();
    let process = builder.process(7, "app");
    let threads: Vec<_> =
        (0..8).map(|tid| builder.thread(process, 7 + tid, &format!("worker {tid}"))).collect();
    for index in 0..1_000_000 {
        let stack = stacks[below(0, stacks.len())];
        builder.sample(index * 60_000, 0, threads[below(0, threads.len())], stack, 1);
    }
    builder.finish(header(60_000))
}

/// A pseudo-random generator with a fixed seed (Vigna's SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
