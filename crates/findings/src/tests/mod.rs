//! Tests of causes and findings.

mod barrier;
mod busy;
mod causes;
mod child_processes;
mod connection_waits;
mod corelib;
mod cpu;
mod crowd;
mod deadlock;
mod facts;
mod held_lock;
mod idle_stacks;
mod known_owners;
mod main_loops;
mod partners;
mod pool;
mod program_place;
mod runtime;
mod runtime_helpers;
mod services;
mod shared;
mod stacks;
mod views;
mod waiting;

use profiler_addresses::ElfAddress;
use profiler_profile::{
    Event, EventId, Finding, FindingKind, Frame, FrameId, FrameKind, Header, ProcessId, Profile,
    ProfileBuilder, Reason, Sample, StackEnd, StackId, SymbolSource, Symbolization, ThreadState,
};

use crate::{analyze, checked_kinds};

const HZ: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// The frames of a worker of the pool, root first.
const POOL_ROOT: &str = "start_thread;System.Private.CoreLib!System.Threading.PortableThreadPool.WorkerThread.\
                         WorkerThreadStart();System.Private.CoreLib!System.Threading.ThreadPoolWorkQueue.Dispatch()";

/// A profile of threads that each have one stack and one state for a time, sampled at [`HZ`].
struct Threads {
    builder: ProfileBuilder,
    process: ProcessId,
    event: EventId,
    next_tid: u32,
    seconds: u64,
}

impl Threads {
    fn sampled(event: Event, seconds: u64) -> Self {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(event);
        let process = builder.process(7, "shop");
        Self { builder, process, event, next_tid: 7, seconds }
    }

    /// Wall-clock samples of ten seconds.
    fn wall() -> Self {
        Self::sampled(Event::at_frequency("wall", HZ), 10)
    }

    /// Samples on a CPU: event and state.
    fn cpu() -> Self {
        Self::sampled(Event::at_frequency("cpu-clock", HZ), 10)
    }

    /// Adds threads for the whole time.
    fn add(&mut self, count: u32, state: impl Into<Option<ThreadState>> + Copy, folded: &str) -> &mut Self {
        for _ in 0..count {
            let ticks = self.seconds * HZ;
            self.add_thread("worker", &[(0, ticks, state.into(), folded)]);
        }
        self
    }

    /// Adds threads that wait for a lock but for two ticks in which they have it.
    fn add_queue(&mut self, count: u32, folded: &str) -> &mut Self {
        for _ in 0..count {
            let parts = [
                (0, 80, Some(ThreadState::Blocked), folded),
                (8, 2, Some(ThreadState::OnCpu), "main;append"),
                (8, 18, Some(ThreadState::Blocked), folded),
            ];
            self.add_thread("worker", &parts);
        }
        self
    }

    /// Adds a thread with these parts: the second at which each begins, ticks, state, stack.
    fn add_thread(&mut self, name: &str, parts: &[(u64, u64, Option<ThreadState>, &str)]) -> &mut Self {
        let thread = self.builder.thread(self.process, self.next_tid, name);
        self.next_tid += 1;
        for (second, value, state, folded) in parts {
            let stack = stack(&mut self.builder, folded);
            let (time_ns, event) = (second * NS_PER_S, self.event);
            let sample = Sample { time_ns, cpu: 0, thread, stack, event, state: *state, value: *value };
            self.builder.add_sample(sample);
        }
        self
    }

    fn profile(&mut self) -> Profile {
        let header = Header { duration_ns: self.seconds * NS_PER_S, ..Header::default() };
        let mut profile = std::mem::take(&mut self.builder).finish(header);
        analyze(&mut profile);
        let checked = checked_kinds(&profile);
        let is_checked = |finding: &Finding| checked.contains(&finding.kind);
        assert!(profile.findings().iter().all(is_checked), "{checked:?}");
        profile
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.profile().findings().to_vec()
    }

    fn kinds(&mut self) -> Vec<FindingKind> {
        self.findings().into_iter().map(|finding| finding.kind).collect()
    }
}

/// A stack of folded frames, root first. A name with `!` is a method, one behind `jit ` JIT code without an assembly, a name with
/// `@` has its module after it, one before `_[k]` is of the kernel, `[shop+0x1]` an address without a symbol. `--` and a name with `~` are
/// labels.
fn stack(builder: &mut ProfileBuilder, folded: &str) -> StackId {
    let frames = folded.split(';').rev().map(|text| frame(builder, text)).collect();
    builder.stack(frames, StackEnd::Root)
}

fn frame(builder: &mut ProfileBuilder, text: &str) -> FrameId {
    let (name, module) = text.split_once('@').unwrap_or((text, "/app/shop"));
    let (name, kind) = match name {
        "--" => (name, FrameKind::Label),
        _ if name.starts_with('~') => (name, FrameKind::Label),
        _ if name.contains('!') => (name, FrameKind::Jit),
        _ if module == "[kernel]" => (name, FrameKind::Kernel),
        _ => match (name.strip_prefix("jit "), name.strip_suffix("_[k]")) {
            (Some(name), _) => (name, FrameKind::Jit),
            (_, Some(name)) => (name, FrameKind::Kernel),
            _ => (name, FrameKind::Native),
        },
    };
    let module = (kind == FrameKind::Native).then(|| builder.module(module, &[]));
    let symbolization = match name.starts_with('[') && name.contains("+0x") {
        true => Symbolization::Address(Reason::NoSymbols),
        false => Symbolization::Symbol(SymbolSource::SymbolTable),
    };
    let name = builder.string(name);
    builder.frame(Frame { name, kind, module, address: ElfAddress(0), location: None, symbolization })
}

#[test]
fn a_finding_names_the_process_where_there_are_several() {
    let mut threads = Threads::wall();
    threads.builder.process(8, "other");
    threads.add_queue(4, "main;append;pthread_mutex_lock");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.starts_with("process 7 (shop): 3.9 of 4 threads"), "{finding}");
}

#[test]
fn the_findings_of_most_time_are_first() {
    let mut threads = Threads::wall();
    threads.add_queue(4, "main;append;pthread_mutex_lock");
    threads.add(6, ThreadState::Disk, "main;flush;fsync");
    assert_eq!(threads.kinds(), [FindingKind::Disk, FindingKind::LockConvoy]);
}
