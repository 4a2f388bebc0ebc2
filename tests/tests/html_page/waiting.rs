//! Profiles with wakers and with incidents for the tests of the interactive page.

use profiler::{
    ElfAddress, Profile,
    profile::{
        Event, Frame, FrameId, FrameKind, Header, Incident, ProfileBuilder, Sample, Sampling, StackEnd,
        StackId, SymbolSource, Symbolization, ThreadState,
    },
};

use super::profiles::{NS_PER_MS, builder, header, wall_clock_builder};

/// A lock that `owner_loop` holds: the stack of its waker, from the leaf to the root.
const UNLOCKS: &str = "--;^try_to_wake_up;^futex_wake;pthread_mutex_unlock;holds_lock;owner_loop;~owner";

/// A timer, as the kernel wakes from its interrupt.
const TIMER: &str = "--;^try_to_wake_up;^hrtimer_wakeup;^asm_sysvec_apic_timer_interrupt;~[interrupt]";

/// Waits of 1.2 s: for a lock until its owner or a timer ends them, for a disk, and of the function that holds the lock.
pub(super) fn with_wakers() -> Profile {
    let mut builder = ProfileBuilder::default();
    let sampling = Sampling::Durations { min_ns: NS_PER_MS };
    let event = builder.event(Event { name: "off-cpu".to_owned(), sampling });
    let process = builder.process(7, "app");
    let threads = [builder.thread(process, 7, "app"), builder.thread(process, 8, "worker")];
    let lock = "main;serve;pthread_mutex_lock;^futex_do_wait";
    let waits = [
        (0, 0, 600, ThreadState::Blocked, format!("{lock};{UNLOCKS}")),
        (0, 700, 300, ThreadState::Blocked, format!("{lock};{TIMER}")),
        (1, 0, 100, ThreadState::Disk, format!("main;read_all;^io_schedule;{UNLOCKS}")),
        (1, 500, 200, ThreadState::Blocked, "main;holds_lock;nanosleep;^hrtimer_nanosleep".to_owned()),
    ];
    for (thread, start_ms, length_ms, state, path) in waits {
        let (time_ns, value, thread) = (start_ms * NS_PER_MS, length_ms * NS_PER_MS, threads[thread]);
        let stack = stack(&mut builder, &path);
        builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event, state: Some(state), value });
    }
    builder.finish(header(1_200))
}

/// One second of ten threads: six wait for a lock in two ways, two for a socket, one for a CPU, and one works.
pub(super) fn waits() -> Profile {
    let mut builder = ProfileBuilder::default();
    let event = builder.event(Event::at_frequency("wall", 100));
    let process = builder.process(7, "app");
    let lock = "main;serve;pthread_mutex_lock;^futex_wait;^futex_do_wait";
    let blocked = ThreadState::Blocked;
    let paths = [
        (4, blocked, lock),
        (2, blocked, "main;serve;pthread_mutex_lock;^futex_wait;^schedule"),
        (2, blocked, "main;fetch;recv;^tcp_recvmsg;^schedule"),
        (1, ThreadState::Runnable, "main;work"),
        (1, ThreadState::OnCpu, "main;work"),
    ];
    let threads = paths.iter().flat_map(|path| std::iter::repeat_n(path, path.0));
    for (tid, (_, state, path)) in (7..).zip(threads) {
        let (thread, stack) = (builder.thread(process, tid, "app"), stack(&mut builder, path));
        let state = Some(*state);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 100 });
    }
    builder.finish(header(1_000))
}

/// A stack from its path, root first: `^` begins the name of a kernel function, `~` that of a label.
fn stack(builder: &mut ProfileBuilder, path: &str) -> StackId {
    let frames: Vec<_> = path.rsplit(';').map(|name| frame(builder, name)).collect();
    builder.stack(frames, StackEnd::Root)
}

fn frame(builder: &mut ProfileBuilder, name: &str) -> FrameId {
    let (kind, name) = match (name, name.strip_prefix('^'), name.strip_prefix('~')) {
        ("--", ..) => (FrameKind::Label, name),
        (_, Some(name), _) => (FrameKind::Kernel, name),
        (_, _, Some(name)) => (FrameKind::Label, name),
        _ => (FrameKind::Native, name),
    };
    let name = builder.string(name);
    builder.frame(Frame {
        name,
        kind,
        module: None,
        address: ElfAddress(0),
        location: None,
        symbolization: Symbolization::Symbol(SymbolSource::Kallsyms),
    })
}

/// The header of a profile of 10 s that was kept for an incident at 8 s.
fn header_of_incident(since_ms: u64) -> Header {
    let incident = Incident {
        since_ns: since_ms * NS_PER_MS,
        time_ns: 8_000 * NS_PER_MS,
        condition: "cpu < 60% for 2s".to_owned(),
        values: "cpu 50 %".to_owned(),
    };
    Header { incident: Some(incident), ..header(10_000) }
}

/// 100 samples a second for 6 s, then 50 a second: fewer of `parse`, more of `lock`, and as many of `log` but for noise.
pub(super) fn with_incident() -> Profile {
    incident_since(6_000)
}

/// The same for a condition that held from the start.
pub(super) fn with_incident_from_the_start() -> Profile {
    incident_since(0)
}

fn incident_since(since_ms: u64) -> Profile {
    let mut builder = builder();
    let process = builder.process(7, "app");
    let thread = builder.thread(process, 7, "app");
    let paths = ["main;serve;parse", "main;serve;lock;futex_wait", "main;serve;log"];
    let stacks = paths.map(|path| stack(&mut builder, path));
    let parts = [(0, 10, [480, 60, 60]), (6_000, 20, [40, 130, 30])];
    for (start_ms, period_ms, counts) in parts {
        let sampled = stacks.iter().zip(counts).flat_map(|(stack, count)| std::iter::repeat_n(*stack, count));
        for (index, stack) in (0..).zip(sampled) {
            builder.sample((start_ms + index * period_ms) * NS_PER_MS, 0, thread, stack, 1);
        }
    }
    builder.finish(header_of_incident(since_ms))
}

/// Twenty threads that work and wait by turns for 6 s, and then wait for a lock.
pub(super) fn with_incident_of_waits() -> Profile {
    const THREADS: usize = 20;
    let turns = [(ThreadState::OnCpu, "work"), (ThreadState::Blocked, "wait")];
    let before = (0..30_usize).flat_map(|turn| (0..THREADS).map(move |thread| (turn, thread)));
    let mut runs: Vec<_> = before
        .map(|(turn, thread)| {
            let (state, function) = turns[turn % 2];
            (thread, turn as u64 * 10, 10, state, function)
        })
        .collect();
    runs.extend((0..THREADS).map(|thread| (thread, 300, 200, ThreadState::Blocked, "lock")));
    wall_clock_builder(&["worker"; THREADS], &runs).0.finish(header_of_incident(6_000))
}
