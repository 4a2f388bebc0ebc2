//! The order in which events are read, and the delay of the reader, change no result.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
};

use super::*;
use crate::TimeOrdered;

/// The next number of a linear congruential generator, below `limit`.
fn random_below(state: &mut u64, limit: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % limit
}

const CPUS: u64 = 4;
const LAST_NS: u64 = 1_000;

/// Events in time order, each with its CPU: few process ids are forked, execute, map files, exit and are reused.
fn random_events(random: &mut u64) -> Vec<(u64, SidebandEvent)> {
    const PIDS: u64 = 5;
    let pid = |random: &mut u64| 10 + u32::try_from(random_below(random, PIDS)).unwrap();
    let times = (1..LAST_NS).step_by(7);
    let events = times.map(|time_ns| {
        let kind = match random_below(random, 5) {
            0 => SidebandEventKind::Fork { parent: Pid(pid(random)) },
            1 => SidebandEventKind::Execute(format!("program {time_ns}")),
            2 => SidebandEventKind::Exit,
            3 => SidebandEventKind::Rename(format!("name {time_ns}")),
            _ => SidebandEventKind::Map(mapping(time_ns)),
        };
        (random_below(random, CPUS), event(time_ns, pid(random), kind))
    });
    events.collect()
}

/// What the table has for each process id over time.
fn contents(table: &mut ProcessTable) -> Vec<(String, Result<u64, LookupError>, Option<MonotonicTime>)> {
    let mut contents = Vec::new();
    for pid in 10..15 {
        for time_ns in (0..LAST_NS).step_by(3) {
            let key = sampled(table, pid, time_ns, "sampled");
            let process = table.get(key).unwrap();
            let (comm, until) = (process.comm.clone(), process.until);
            contents.push((comm, inode(table, key, time_ns), until));
        }
    }
    contents
}

/// Applies events as a reader does that drains the CPUs one after the other, beginning with any of them.
fn apply_drained(events: &[(u64, SidebandEvent)], random: &mut u64, table: &mut ProcessTable) {
    let mut queue = TimeOrdered::new(|event: &SidebandEvent| event.time);
    let mut positions = [0; CPUS as usize];
    let mut drain = |cpu: u64, now_ns: u64| {
        let position = &mut positions[cpu as usize];
        let written = events.iter().filter(|(on, event)| *on == cpu && event.time.0 < now_ns);
        let new: Vec<_> = written.skip(*position).map(|(_, event)| event.clone()).collect();
        *position += new.len();
        new
    };
    let mut now_ns = 0;
    while now_ns < LAST_NS {
        now_ns += 1 + random_below(random, 60);
        let watermark_ns = now_ns;
        let first = random_below(random, CPUS);
        for cpu in (0..CPUS).map(|number| (first + number) % CPUS) {
            // While one ring is drained, the other CPUs go on writing.
            now_ns += random_below(random, 30);
            queue.push(drain(cpu, now_ns));
        }
        queue.release_before(MonotonicTime(watermark_ns)).into_iter().for_each(|event| table.apply(event));
    }
    (0..CPUS).for_each(|cpu| queue.push(drain(cpu, u64::MAX)));
    queue.release_before(MonotonicTime::MAX).into_iter().for_each(|event| table.apply(event));
    assert_eq!(queue.late(), 0);
}

#[test]
fn the_order_in_which_cpus_are_drained_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..40 {
        let mut random = seed;
        let events = random_events(&mut random);
        let mut expected = table(directory.path(), ProcessFilter::All);
        events.iter().for_each(|(_, event)| expected.apply(event.clone()));

        let mut drained = table(directory.path(), ProcessFilter::All);
        apply_drained(&events, &mut random, &mut drained);
        assert!(contents(&mut drained) == contents(&mut expected), "seed {seed}");
    }
}

/// A process from its fork to the exit of its last thread.
struct Lifetime {
    pid: u32,
    since: MonotonicTime,
    until: Option<MonotonicTime>,
    /// The last name of its leader.
    comm: String,
}

/// Random starts, renames and exits of threads in time order, each with its CPU, and the processes to which the threads
/// belong. The leader can exit before the others.
fn random_threads(random: &mut u64) -> (Vec<(u64, SidebandEvent)>, Vec<Lifetime>) {
    let (mut events, mut ended) = (Vec::new(), Vec::new());
    let mut living = BTreeMap::<u32, (Lifetime, Vec<u32>)>::new();
    for time_ns in (10..LAST_NS).step_by(5) {
        let pid = 10 + u32::try_from(random_below(random, 5)).unwrap();
        let cpu = random_below(random, CPUS);
        let mut push = |time_ns, tid, kind| {
            events.push((
                cpu,
                SidebandEvent { time: MonotonicTime(time_ns), pid: Pid(pid), tid: Tid(tid), kind },
            ));
        };
        let Some((lifetime, threads)) = living.get_mut(&pid) else {
            let comm = format!("process {time_ns}");
            push(time_ns, pid, SidebandEventKind::Fork { parent: Pid(3) });
            push(time_ns + 1, pid, SidebandEventKind::Rename(comm.clone()));
            living
                .insert(pid, (Lifetime { pid, since: MonotonicTime(time_ns), until: None, comm }, vec![pid]));
            continue;
        };
        match random_below(random, 3) {
            0 => {
                let tid = 100 + u32::try_from(time_ns).unwrap();
                push(time_ns, tid, SidebandEventKind::StartThread);
                threads.push(tid);
            }
            1 => {
                let (tid, comm) = (threads[0], format!("name {time_ns}"));
                if tid == pid {
                    lifetime.comm.clone_from(&comm);
                }
                push(time_ns, tid, SidebandEventKind::Rename(comm));
            }
            _ => {
                let index = random_below(random, threads.len() as u64) as usize;
                push(time_ns, threads.swap_remove(index), SidebandEventKind::Exit);
                if threads.is_empty()
                    && let Some((lifetime, _)) = living.remove(&pid)
                {
                    ended.push(Lifetime { until: Some(MonotonicTime(time_ns)), ..lifetime });
                }
            }
        }
    }
    ended.extend(living.into_values().map(|(lifetime, _)| lifetime));
    (events, ended)
}

#[test]
fn a_process_lives_until_its_last_thread_exits_in_any_order_of_the_cpus() {
    let directory = tempfile::tempdir().unwrap();
    let mut leaders_that_exit_first = 0;
    for seed in 0..40 {
        let mut random = seed;
        let (events, lifetimes) = random_threads(&mut random);
        let ends = |event: &SidebandEvent| {
            let end = (event.pid, Some(event.time));
            lifetimes.iter().any(|process| (Pid(process.pid), process.until) == end)
        };
        let exits = events.iter().filter(|(_, event)| event.kind == SidebandEventKind::Exit);
        leaders_that_exit_first +=
            exits.filter(|(_, event)| event.tid.is_leader_of(event.pid) && !ends(event)).count();
        let mut table = table(directory.path(), ProcessFilter::All);
        apply_drained(&events, &mut random, &mut table);
        for Lifetime { pid, since, until, comm } in &lifetimes {
            for time_ns in (since.0..until.map_or(LAST_NS, |until| until.0)).step_by(3) {
                let key = sampled(&mut table, *pid, time_ns, "sampled");
                let process = table.get(key).unwrap();
                assert_eq!(
                    (&process.comm, process.since, process.until),
                    (comm, *since, *until),
                    "seed {seed}: process {pid} at {time_ns}"
                );
            }
        }
    }
    assert!(leaders_that_exit_first > 40, "{leaders_that_exit_first}");
}

/// The name and the end of the process of a sample; `None` when it is not of a target.
fn target_of_sample(
    table: &mut ProcessTable,
    pid: u32,
    time_ns: u64,
) -> Option<(String, Option<MonotonicTime>)> {
    match table.process_of_sample(Pid(pid), Tid(pid), MonotonicTime(time_ns), "sampled") {
        ProcessOfSample::Known(key) => table.get(key).map(|process| (process.comm.clone(), process.until)),
        ProcessOfSample::NotATarget => None,
        ProcessOfSample::AfterWatermark => panic!("all events are applied"),
    }
}

#[test]
fn an_id_that_was_reused_is_no_target_in_any_order_of_the_cpus() {
    let directory = tempfile::tempdir().unwrap();
    let pids = HashSet::from([10, 12].map(Pid));
    let mut reused = 0;
    for seed in 0..40 {
        let mut random = seed;
        let events = random_events(&mut random);
        let reused_at = |pid: u32| {
            let is_fork = |event: &SidebandEvent| matches!(event.kind, SidebandEventKind::Fork { .. });
            let (_, fork) = events.iter().find(|(_, event)| event.pid == Pid(pid) && is_fork(event))?;
            Some(fork.time.0)
        };
        for children in [false, true] {
            let filter = || ProcessFilter::Only { pids: pids.clone(), children };
            let mut expected = table(directory.path(), filter());
            events.iter().for_each(|(_, event)| expected.apply(event.clone()));
            let mut drained = table(directory.path(), filter());
            apply_drained(&events, &mut random, &mut drained);
            for pid in 10..15 {
                for time_ns in (0..LAST_NS).step_by(3) {
                    let found = target_of_sample(&mut drained, pid, time_ns);
                    assert_eq!(found, target_of_sample(&mut expected, pid, time_ns), "seed {seed}");
                    let is_reused = reused_at(pid).is_some_and(|reused_ns| reused_ns <= time_ns);
                    let is_target = pids.contains(&Pid(pid)) && !is_reused;
                    reused += usize::from(pids.contains(&Pid(pid)) && is_reused);
                    // With children, a target can fork another one.
                    assert!(children || found.is_some() == is_target, "seed {seed}: {pid} at {time_ns}");
                }
            }
        }
    }
    assert!(reused > 1_000, "{reused}");
}

thread_local! {
    /// The time now, of readings of `/proc`.
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

/// The program of each process id over time, by the inode of its file; none while there is no process.
struct History {
    events: Vec<SidebandEvent>,
    programs: BTreeMap<(u32, u64), Option<u64>>,
}

impl History {
    fn program(&self, pid: u32, time_ns: u64) -> Option<u64> {
        self.programs.range((pid, 0)..=(pid, time_ns)).next_back().and_then(|(_, program)| *program)
    }

    /// A random history of few process ids that are reused.
    fn random(random: &mut u64) -> Self {
        let mut history = Self { events: Vec::new(), programs: BTreeMap::from([((10, 0), Some(1))]) };
        for time_ns in (10..LAST_NS).step_by(10) {
            let pid = 10 + u32::try_from(random_below(random, 5)).unwrap();
            let parent = 10 + u32::try_from(random_below(random, 5)).unwrap();
            let kind = match (history.program(pid, time_ns), history.program(parent, time_ns)) {
                (None, Some(program)) => {
                    history.programs.insert((pid, time_ns), Some(program));
                    SidebandEventKind::Fork { parent: Pid(parent) }
                }
                (Some(_), _) if random_below(random, 2) == 0 && pid != 10 => {
                    history.programs.insert((pid, time_ns), None);
                    SidebandEventKind::Exit
                }
                (Some(_), _) => {
                    history.programs.insert((pid, time_ns), Some(time_ns));
                    history.events.push(event(
                        time_ns,
                        pid,
                        SidebandEventKind::Execute("program".to_owned()),
                    ));
                    SidebandEventKind::Map(mapping(time_ns))
                }
                (None, None) => continue,
            };
            history.events.push(event(time_ns, pid, kind));
        }
        history
    }

    /// The same history with all times multiplied.
    fn slowed_down(self, factor: u64) -> Self {
        let slower =
            |event: SidebandEvent| SidebandEvent { time: MonotonicTime(event.time.0 * factor), ..event };
        let programs = self.programs.into_iter();
        Self {
            events: self.events.into_iter().map(slower).collect(),
            programs: programs.map(|((pid, time_ns), program)| ((pid, time_ns * factor), program)).collect(),
        }
    }

    /// Writes what `/proc` shows now, where it differs from what was `written`.
    fn write_proc(&self, directory: &Path, written: &mut HashMap<u32, Option<u64>>) {
        for pid in 10..15 {
            let program = self.program(pid, NOW_NS.get());
            match program {
                _ if written.insert(pid, program) == Some(program) => {}
                Some(program) => write_process(directory, pid, "program", program),
                None => {
                    let _ = fs::remove_dir_all(directory.join(pid.to_string()));
                }
            }
        }
    }
}

/// A table of all processes whose reader takes the time from [`NOW_NS`].
fn table_with_clock(directory: &Path) -> ProcessTable {
    let mut table = table(directory, ProcessFilter::All);
    let proc = Arc::new(ProcFs::from_capture(directory.to_owned()));
    table.reader = ProcessReader::with_clock(proc, || MonotonicTime(NOW_NS.get()));
    table
}

#[test]
fn a_delayed_reader_never_takes_a_later_program_for_an_earlier_one() {
    let (mut known, mut samples) = (0, 0);
    for seed in 0..30 {
        let mut random = seed;
        let directory = tempfile::tempdir().unwrap();
        let history = History::random(&mut random);
        let mut table = table_with_clock(directory.path());
        let mut events = history.events.iter().cloned().peekable();
        let mut written = HashMap::new();
        let mut early: Vec<(u32, u64)> = Vec::new();
        let (mut watermark_ns, mut next_sample_ns) = (0, 0);
        NOW_NS.set(0);
        while next_sample_ns < LAST_NS {
            watermark_ns = if watermark_ns < LAST_NS {
                watermark_ns + 1 + random_below(&mut random, 90)
            } else {
                u64::MAX
            };
            // The pipeline lags behind the events that it was given.
            NOW_NS.set(NOW_NS.get().max(watermark_ns.min(LAST_NS) + random_below(&mut random, 120)));
            history.write_proc(directory.path(), &mut written);
            while let Some(event) = events.next_if(|event| event.time.0 < watermark_ns) {
                table.apply(event);
            }
            table.advance(MonotonicTime(watermark_ns));
            let new = (next_sample_ns..watermark_ns.min(LAST_NS)).step_by(7).map(|time_ns| {
                next_sample_ns = time_ns + 7;
                (10 + u32::try_from(random_below(&mut random, 5)).unwrap(), time_ns)
            });
            let due: Vec<_> = std::mem::take(&mut early).into_iter().chain(new).collect();
            for (pid, time_ns) in
                due.into_iter().filter(|(pid, time_ns)| history.program(*pid, *time_ns).is_some())
            {
                match table.process_of_sample(Pid(pid), Tid(pid), MonotonicTime(time_ns), "") {
                    ProcessOfSample::Known(key) => {
                        let found = inode(&table, key, time_ns);
                        samples += 1;
                        known += usize::from(found.is_ok());
                        let expected = history.program(pid, time_ns).unwrap();
                        assert!(
                            found == Ok(expected) || found == Err(LookupError::ProcessGone),
                            "seed {seed}: process {pid} at {time_ns}: {found:?} instead of {expected}"
                        );
                    }
                    ProcessOfSample::AfterWatermark => early.push((pid, time_ns)),
                    ProcessOfSample::NotATarget => panic!("everything is a target"),
                }
            }
            table.retire_ended(|_| false);
        }
    }
    assert!(known * 10 > samples * 9, "{known} of {samples} samples are known");
}

/// Exec, fork and exit are among the lost events. Processes are compared with `/proc` a second later at most, and those
/// that ended are kept for a second.
#[test]
fn the_programs_of_processes_are_right_four_seconds_after_events_were_lost() {
    const FACTOR: u64 = 50_000_000;
    const END_NS: u64 = LAST_NS * FACTOR;
    const SAMPLE_NS: u64 = 100_000_000;
    const MAX_ROUND_NS: u64 = 500_000_000;
    const MAX_LAG_NS: u64 = 500_000_000;
    /// Of each 16 s, the events of one second are lost.
    const LOSS_NS: u64 = 1_000_000_000;
    const PERIOD: u64 = 16;
    const SETTLED_AFTER_NS: u64 = 4_000_000_000;
    /// The first reading of a new process can be later than the loss.
    const SETTLED_BEFORE_NS: u64 = 3_000_000_000;
    let (mut known, mut samples, mut lost) = (0, 0, 0);
    for seed in 0..30 {
        let mut random = seed;
        let directory = tempfile::tempdir().unwrap();
        let history = History::random(&mut random).slowed_down(FACTOR);
        let phase = random_below(&mut random, PERIOD);
        let is_lost = |event: &SidebandEvent| event.time.0 / LOSS_NS % PERIOD == phase;
        let losses: Vec<u64> =
            history.events.iter().filter(|event| is_lost(event)).map(|event| event.time.0).collect();
        lost += losses.len();
        let is_settled = |time_ns: u64| {
            let is_near =
                |lost: &u64| lost + SETTLED_AFTER_NS > time_ns && time_ns + SETTLED_BEFORE_NS > *lost;
            !losses.iter().any(is_near)
        };
        let mut table = table_with_clock(directory.path());
        let mut events = history.events.iter().cloned().peekable();
        let mut written = HashMap::new();
        let mut early: Vec<(u32, u64)> = Vec::new();
        let (mut watermark_ns, mut next_sample_ns) = (0, 0);
        NOW_NS.set(0);
        while next_sample_ns < END_NS {
            watermark_ns += 1 + random_below(&mut random, MAX_ROUND_NS);
            NOW_NS.set(NOW_NS.get().max(watermark_ns + random_below(&mut random, MAX_LAG_NS)));
            history.write_proc(directory.path(), &mut written);
            while let Some(event) = events.next_if(|event| event.time.0 < watermark_ns) {
                if is_lost(&event) {
                    table.lose_events();
                } else {
                    table.apply(event);
                }
            }
            table.advance(MonotonicTime(watermark_ns));
            let mut due = std::mem::take(&mut early);
            for time_ns in (next_sample_ns..watermark_ns.min(END_NS)).step_by(SAMPLE_NS as usize) {
                next_sample_ns = time_ns + SAMPLE_NS;
                due.extend((10..15).map(|pid| (pid, time_ns)));
            }
            for (pid, time_ns) in due {
                let Some(expected) = history.program(pid, time_ns) else { continue };
                match table.process_of_sample(Pid(pid), Tid(pid), MonotonicTime(time_ns), "") {
                    ProcessOfSample::Known(key) if is_settled(time_ns) => {
                        let found = inode(&table, key, time_ns);
                        samples += 1;
                        known += usize::from(found.is_ok());
                        assert!(
                            found == Ok(expected) || found == Err(LookupError::ProcessGone),
                            "seed {seed}: process {pid} at {time_ns}: {found:?} instead of {expected}"
                        );
                    }
                    ProcessOfSample::Known(_) => {}
                    ProcessOfSample::AfterWatermark => early.push((pid, time_ns)),
                    ProcessOfSample::NotATarget => panic!("everything is a target"),
                }
            }
            table.retire_ended(|_| false);
        }
    }
    assert!(lost > 100 && samples > 10_000, "{lost} events are lost, {samples} samples");
    assert!(known * 10 > samples * 9, "{known} of {samples} samples are known");
}

#[test]
fn samples_do_not_wait_for_ever_while_events_are_lost_all_the_time() {
    const ROUND_NS: u64 = COMPARISON_INTERVAL.as_nanos() as u64 / 10;
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
    table.reader = ProcessReader::with_clock(proc, || MonotonicTime(NOW_NS.get()));
    let mut waiting = Vec::new();
    for watermark_ns in (ROUND_NS..=30 * ROUND_NS).step_by(ROUND_NS as usize) {
        NOW_NS.set(watermark_ns + ROUND_NS / 2);
        table.lose_events();
        table.advance(MonotonicTime(watermark_ns));
        waiting.push(watermark_ns - 1);
        waiting.retain(|time_ns| {
            table.process_of_sample(Pid(7), Tid(7), MonotonicTime(*time_ns), "")
                == ProcessOfSample::AfterWatermark
        });
        assert!(waiting.len() <= 1, "{waiting:?} at {watermark_ns}");
    }
    assert_eq!(table.losses, 3);
}
