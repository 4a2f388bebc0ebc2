//! Tests how many stacks of programs that run for a millisecond are whole: user space has to build tables meanwhile.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use profiler::{Profiler, Session, Target, profile::StackEnd};
use profiler_tests::{Workload, measure_alone};

const SAMPLES: u64 = 1_000;

/// The duration of a profile. The test takes several.
const ROUND: Duration = Duration::from_secs(2);
const MAX_ROUNDS: u32 = 30;

/// Such processes end before user space has read their mappings: the unwinder finds the tables of their files by itself.
#[test]
fn stacks_of_programs_that_run_for_a_millisecond_are_whole() {
    const WHOLE_PERCENT: f64 = 99.0;
    let Some(_lock) = measure_alone() else { return };
    // Copies, whose names no other process has.
    let folder = tempfile::tempdir().unwrap();
    let programs = ["true", "ls"].map(|name| {
        let program = folder.path().join(format!("{name}-{}", std::process::id()));
        std::fs::copy(Path::new("/bin").join(name), &program).unwrap();
        program
    });
    let script = "exec 3<&0; { read -r line <&3; kill $$ 2> /dev/null; } & echo ready $$; while :; do \"$0\"; \"$1\" / > /dev/null; done";
    let workload = Workload::run(Command::new("sh").args(["-c", script]).args(&programs));
    let mut session =
        Profiler::builder().target(Target::Everything).frequency_hz(997).build().unwrap().start().unwrap();
    let mut sample = |samples_min| {
        let (mut samples, mut whole) = (0, 0);
        // Not for a time: how long a profile takes depends on what else the machine runs.
        for _ in 0..MAX_ROUNDS {
            let round = whole_stacks(&mut session, &programs);
            samples += round.0;
            whole += round.1;
            if samples >= samples_min {
                return (samples, whole);
            }
        }
        panic!("{samples} samples in {MAX_ROUNDS} rounds");
    };
    // The tables of libc and of the programs are built at their first samples, later on a busy machine.
    for _ in 0..MAX_ROUNDS {
        let (samples, whole) = sample(SAMPLES / 10);
        if whole as f64 / samples as f64 * 100.0 > WHOLE_PERCENT {
            break;
        }
    }
    let (samples, whole) = sample(SAMPLES);
    drop(workload);
    assert!(whole as f64 / samples as f64 * 100.0 > WHOLE_PERCENT, "{whole} of {samples}");
}

/// The samples of a round of these programs, and how many of them have whole stacks.
fn whole_stacks(session: &mut Session, programs: &[PathBuf]) -> (u64, u64) {
    let profile = session.take_profile(ROUND).unwrap();
    assert!(profile.ledger().adds_up());
    let names: Vec<_> = programs.iter().map(|program| program.file_name().unwrap()).collect();
    let of_programs = profile.samples().iter().filter(|sample| {
        let comm = profile.string(profile.process(profile.thread(sample.thread).process).comm);
        names.iter().any(|name| *name == comm)
    });
    of_programs.fold((0, 0), |(samples, whole), sample| {
        let is_whole = profile.stack(sample.stack).end == StackEnd::Root;
        (samples + sample.value, whole + if is_whole { sample.value } else { 0 })
    })
}
