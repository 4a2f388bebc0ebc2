//! Samples the whole machine and takes a profile of each interval, for `cargo xtask soak`. Prints a line for each.
//!
//! `agent FREQUENCY_HZ SECONDS INTERVALS`. A line has words `name=number`; the losses of samples have the names of their
//! variants, as in `RingBufferFull=3`. `whole=1` is the last, whose ledger the counters of the BPF programs have to match.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use profiler::{Profile, Profiler, Target, return_freed_memory};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [frequency_hz, seconds, intervals] = arguments[..] else {
        return Err("expected: FREQUENCY_HZ SECONDS INTERVALS".into());
    };
    return_freed_memory();
    let builder = Profiler::builder().target(Target::Everything).frequency_hz(frequency_hz);
    let mut session = builder.build()?.start()?;
    let started = Instant::now();
    for number in 1..=intervals {
        let end = Duration::from_secs(seconds) * u32::try_from(number)?;
        print(session.take_profile(end.saturating_sub(started.elapsed()))?, false)?;
    }
    print(session.stop()?, true)
}

/// Prints the account of a profile. The line is a signal to measure the process: the profile is dropped before it.
fn print(profile: Profile, is_last: bool) -> Result<(), Box<dyn std::error::Error>> {
    let ledger = profile.ledger();
    let mut line = format!(
        "whole={} exact={} samples={} stacks={} processes={} modules={} due={} missed={} lost_events={}",
        u8::from(is_last),
        u8::from(ledger.adds_up()),
        profile.total_value(),
        profile.stacks().len(),
        profile.processes().len(),
        profile.modules().len(),
        ledger.timer.due,
        ledger.timer.missed_total(),
        ledger.lost_process_events,
    );
    for (loss, count) in &profile.first_ledger().lost {
        line += &format!(" {loss:?}={count}");
    }
    drop(profile);
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
