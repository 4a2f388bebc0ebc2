//! Counts the samples of each thread of a process, then samples the busiest thread alone: `by_thread PID`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints what it found")]

use std::{collections::HashMap, env, error::Error, io, time::Duration};

use profiler::{Format, Profiler, Target, WriteFormat as _, profile::ThreadId};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = env::args().nth(1).ok_or("usage: by_thread PID")?.parse()?;
    let second = Duration::from_secs(1);
    let process = Profiler::builder().target(Target::Pid(pid)).build()?.start()?.run_for(second)?;

    let mut threads = HashMap::<ThreadId, u64>::new();
    for sample in process.samples() {
        *threads.entry(sample.thread).or_default() += sample.value;
    }
    let mut threads: Vec<(ThreadId, u64)> = threads.into_iter().collect();
    threads.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (thread, count) in &threads {
        let thread = process.thread(*thread);
        eprintln!("{count:>6} samples in thread {} {:?}", thread.tid, process.string(thread.comm));
    }

    let Some((busiest, _)) = threads.first() else { return Ok(()) };
    let tid = process.thread(*busiest).tid;
    let profile = Profiler::builder().target(Target::Tid(tid)).build()?.start()?.run_for(second)?;
    profile.write(Format::Folded, io::stdout().lock())?;
    Ok(())
}
