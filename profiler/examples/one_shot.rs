//! Samples a process once and writes folded stacks: `one_shot PID SECONDS > folded`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints what it found")]

use std::{env, error::Error, io, time::Duration};

use profiler::{Format, Profiler, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let pid = arguments.next().ok_or("usage: one_shot PID SECONDS")?.parse()?;
    let seconds = arguments.next().map_or(Ok(5.0), |seconds| seconds.parse())?;

    let profile = Profiler::builder()
        .target(Target::Pid(pid))
        .frequency_hz(99)
        .build()?
        .start()?
        .run_for(Duration::from_secs_f64(seconds))?;

    eprintln!("{} samples, {} lost", profile.total_value(), profile.first_ledger().lost_total());
    Format::Folded.write(&profile, io::stdout().lock())?;
    Ok(())
}
