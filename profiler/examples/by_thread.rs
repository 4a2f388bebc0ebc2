//! Counts the samples of each thread of a process, then samples the busiest thread alone: `by_thread PID`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints what it found")]

use std::{collections::HashMap, env, error::Error, io, time::Duration};

use profiler::{Format, Profiler, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = env::args().nth(1).ok_or("usage: by_thread PID")?.parse()?;
    let second = Duration::from_secs(1);
    let process = Profiler::builder().target(Target::Pid(pid)).build()?.start()?.run_for(second)?;

    let mut threads = HashMap::<(u32, &str), u64>::new();
    for sample in process.sample_views() {
        let thread = sample.thread();
        *threads.entry((thread.tid(), thread.name())).or_default() += sample.value();
    }
    let mut threads: Vec<_> = threads.into_iter().collect();
    threads.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for ((tid, name), count) in &threads {
        eprintln!("{count:>6} samples in thread {tid} {name:?}");
    }

    let Some(((busiest, _), _)) = threads.first() else { return Ok(()) };
    let profile = Profiler::builder().target(Target::Tid(*busiest)).build()?.start()?.run_for(second)?;
    Format::Folded.write(&profile, io::stdout().lock())?;
    Ok(())
}
