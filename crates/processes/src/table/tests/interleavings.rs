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
            0 => SidebandEventKind::Fork { parent: pid(random) },
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
fn contents(table: &mut ProcessTable) -> Vec<(String, Result<u64, LookupError>, Option<u64>)> {
    let mut contents = Vec::new();
    for pid in 10..15 {
        for time_ns in (0..LAST_NS).step_by(3) {
            let key = sampled(table, pid, time_ns, "sampled");
            let process = table.get(key).unwrap();
            let (comm, until_ns) = (process.comm.clone(), process.until_ns);
            contents.push((comm, inode(table, key, time_ns), until_ns));
        }
    }
    contents
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
        let mut queue = TimeOrdered::new(|event: &SidebandEvent| event.time_ns);
        let mut positions = [0; CPUS as usize];
        let mut drain = |cpu: u64, now_ns: u64| {
            let position = &mut positions[cpu as usize];
            let written = events.iter().filter(|(on, event)| *on == cpu && event.time_ns < now_ns);
            let new: Vec<_> = written.skip(*position).map(|(_, event)| event.clone()).collect();
            *position += new.len();
            new
        };
        let mut now_ns = 0;
        while now_ns < LAST_NS {
            now_ns += 1 + random_below(&mut random, 60);
            let watermark_ns = now_ns;
            let first = random_below(&mut random, CPUS);
            for cpu in (0..CPUS).map(|number| (first + number) % CPUS) {
                // While one ring is drained, the other CPUs go on writing.
                now_ns += random_below(&mut random, 30);
                queue.push(drain(cpu, now_ns));
            }
            queue.release_before(watermark_ns).into_iter().for_each(|event| drained.apply(event));
        }
        (0..CPUS).for_each(|cpu| queue.push(drain(cpu, u64::MAX)));
        queue.release_before(u64::MAX).into_iter().for_each(|event| drained.apply(event));
        assert_eq!(queue.late(), 0);
        assert!(contents(&mut drained) == contents(&mut expected), "seed {seed}");
    }
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
                    SidebandEventKind::Fork { parent }
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

#[test]
fn a_delayed_reader_never_takes_a_later_program_for_an_earlier_one() {
    let (mut known, mut samples) = (0, 0);
    for seed in 0..30 {
        let mut random = seed;
        let directory = tempfile::tempdir().unwrap();
        let history = History::random(&mut random);
        let mut table = table(directory.path(), ProcessFilter::All);
        let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
        table.reader = ProcessReader::with_clock(proc, || NOW_NS.get());
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
            while let Some(event) = events.next_if(|event| event.time_ns < watermark_ns) {
                table.apply(event);
            }
            table.advance(watermark_ns);
            let new = (next_sample_ns..watermark_ns.min(LAST_NS)).step_by(7).map(|time_ns| {
                next_sample_ns = time_ns + 7;
                (10 + u32::try_from(random_below(&mut random, 5)).unwrap(), time_ns)
            });
            let due: Vec<_> = std::mem::take(&mut early).into_iter().chain(new).collect();
            for (pid, time_ns) in
                due.into_iter().filter(|(pid, time_ns)| history.program(*pid, *time_ns).is_some())
            {
                match table.process_of_sample(pid, pid, time_ns, "") {
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

#[test]
fn samples_do_not_wait_for_ever_while_events_are_lost_all_the_time() {
    const ROUND_NS: u64 = COMPARISON_INTERVAL_NS / 10;
    let directory = tempfile::tempdir().unwrap();
    write_process(directory.path(), 7, "app", 5);
    let mut table = table(directory.path(), ProcessFilter::All);
    let proc = Arc::new(ProcFs::from_capture(directory.path().to_owned()));
    table.reader = ProcessReader::with_clock(proc, || NOW_NS.get());
    let mut waiting = Vec::new();
    for watermark_ns in (ROUND_NS..=30 * ROUND_NS).step_by(ROUND_NS as usize) {
        NOW_NS.set(watermark_ns + ROUND_NS / 2);
        table.lose_events();
        table.advance(watermark_ns);
        waiting.push(watermark_ns - 1);
        waiting
            .retain(|time_ns| table.process_of_sample(7, 7, *time_ns, "") == ProcessOfSample::AfterWatermark);
        assert!(waiting.len() <= 1, "{waiting:?} at {watermark_ns}");
    }
    assert_eq!(table.losses, 3);
}
