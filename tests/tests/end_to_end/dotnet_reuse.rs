//! Tests the names of .NET methods of short life, whose addresses the runtime uses again.

use std::collections::BTreeMap;

use profiler::{
    DotnetNames,
    profile::{FrameKind, Profile, SymbolSource, Symbolization},
};
use profiler_tests::{Workload, measure_alone, run_beside_others, sample, sample_pid};

/// Samples of a session: about a second, most of it without a complete report of the runtime.
const SAMPLES: u64 = 900;

/// The method that ran, between two times of `CLOCK_MONOTONIC`, nanoseconds.
struct Ran {
    name: String,
    begin_ns: u64,
    end_ns: u64,
}

fn parse(line: &str) -> Option<Ran> {
    let mut fields = line.strip_prefix("ran ")?.split(' ');
    let name = fields.next()?.to_owned();
    let mut number = || fields.next()?.parse().ok();
    Some(Ran { name, begin_ns: number()?, end_ns: number()? })
}

/// Counts the frames of methods of short life: those with the name of the method that ran, with another name, and without a
/// name by the reason.
fn count_frames(profile: &Profile, ran: &[Ran], outcomes: &mut BTreeMap<String, usize>) {
    for sample in profile.samples() {
        let time_ns = profile.header().started_monotonic_ns + sample.time_ns;
        let Some(expected) = ran.iter().find(|ran| (ran.begin_ns..ran.end_ns).contains(&time_ns)) else {
            continue;
        };
        let frames = profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame));
        for frame in frames.filter(|frame| frame.kind == FrameKind::Jit) {
            let outcome = match frame.symbolization {
                Symbolization::Address(reason) => format!("{reason:?}"),
                _ => {
                    let name = profile.string(frame.name);
                    let made = ["dyn_", "col_"].iter().find_map(|prefix| name.rfind(prefix));
                    let Some(made) = made else { continue };
                    let made = name[made..].split('(').next().unwrap_or_default();
                    if made == expected.name { "right".to_owned() } else { "wrong".to_owned() }
                }
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
}

/// With [`DotnetNames::Auto`], an EventPipe session begins when a reading of the memory finds that the runtime frees code.
#[test]
fn a_method_in_memory_never_has_the_name_of_another_one_at_its_address() {
    const LEAST_FRAMES: usize = 1_000;
    const MOST_SESSIONS: usize = 12;
    let Some(_lock) = run_beside_others() else { return };
    for source in [DotnetNames::Memory, DotnetNames::Auto] {
        let mut outcomes = BTreeMap::new();
        let mut has_events = false;
        // On a busy machine, the workload runs in a small part of the samples.
        for _ in 0..MOST_SESSIONS {
            let has_names_of_source = has_events == (source == DotnetNames::Auto);
            if outcomes.values().sum::<usize>() > LEAST_FRAMES && has_names_of_source {
                break;
            }
            let workload = Workload::run(Workload::dotnet_command("9.0", "reuse").env("PERF_MAP", "0"));
            let profile = sample(sample_pid(workload.pid()).dotnet_names(source), SAMPLES);
            let output = workload.end_with_output();
            let ran: Vec<_> = output.lines().filter_map(parse).collect();
            count_frames(&profile, &ran, &mut outcomes);
            has_events |= profile.first_ledger().symbolized.contains_key(&SymbolSource::RuntimeEvents);
        }
        assert!(outcomes.values().sum::<usize>() > LEAST_FRAMES, "{source:?}: {outcomes:?}");
        assert!(!outcomes.contains_key("wrong"), "{source:?}: {outcomes:?}");
        assert_eq!(has_events, source == DotnetNames::Auto, "{source:?}: {outcomes:?}");
        eprintln!("{source:?}: {outcomes:?}");
    }
}

/// How many methods have a name depends on how soon the runtime reports them.
mod measured {
    use super::*;

    #[test]
    fn a_method_never_has_the_name_of_a_later_one_at_its_address() {
        const SESSIONS: usize = 6;
        let Some(_lock) = measure_alone() else { return };
        for version in ["3.1", "9.0"] {
            let mut outcomes = BTreeMap::new();
            for _ in 0..SESSIONS {
                let workload = Workload::run(Workload::dotnet_command(version, "reuse").env("PERF_MAP", "0"));
                // The first profile of a session: methods that exist are reported without the time of their beginning.
                let builder = sample_pid(workload.pid()).dotnet_names(DotnetNames::Events);
                let profile = sample(builder, SAMPLES);
                let output = workload.end_with_output();
                let ran: Vec<_> = output.lines().filter_map(parse).collect();
                count_frames(&profile, &ran, &mut outcomes);
            }
            let count = |outcome: &str| outcomes.get(outcome).copied().unwrap_or(0);
            assert_eq!(count("wrong"), 0, "{version}: {outcomes:?}");
            let unnamed: usize = outcomes.values().sum::<usize>() - count("right");
            assert!(count("right") > 4 * unnamed, "{version}: {outcomes:?}");
            // Without an entry: of the last methods, which the runtime had not reported when the session ended.
            let is_explained = |outcome: &String| {
                ["right", "JitCodeUnloaded", "NoJitEntry", "RuntimeStub"].contains(&&**outcome)
            };
            assert!(outcomes.keys().all(is_explained), "{version}: {outcomes:?}");
            eprintln!("{version} {outcomes:?}");
        }
    }
}
