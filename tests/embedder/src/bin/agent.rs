//! Samples the machine or a process and has a profile of each interval, for `cargo xtask soak` and `bench`. Prints a line for each.
//!
//! `agent FREQUENCY_HZ SECONDS INTERVALS all|PID take|stream`: takes profiles, or gets them from a stream without blocking. A line
//! has words `name=number`; the losses of samples have the names of their variants, as in `RingBufferFull=3`. `whole=1` is the
//! last, whose ledger the counters of the BPF programs have to match.

use std::{
    error::Error,
    io::Write as _,
    os::fd::AsFd as _,
    task::Poll,
    time::{Duration, Instant},
};

use profiler::{Profile, Profiler, Session, Target, return_freed_memory};
use tokio::io::unix::AsyncFd;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [frequency_hz, seconds, intervals, target, how] = &arguments[..] else {
        return Err("expected: FREQUENCY_HZ SECONDS INTERVALS all|PID take|stream".into());
    };
    let target = if target == "all" { Target::Everything } else { Target::Pid(target.parse()?) };
    let (period, intervals) = (Duration::from_secs(seconds.parse()?), intervals.parse()?);
    return_freed_memory();
    let session = Profiler::builder().target(target).frequency_hz(frequency_hz.parse()?).build()?.start()?;
    match how.as_str() {
        "take" => take(session, period, intervals),
        "stream" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(stream(session, period, intervals))
        }
        _ => Err("expected: take|stream".into()),
    }
}

fn take(mut session: Session, period: Duration, intervals: u32) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    for number in 1..=intervals {
        let end = period * number;
        print(session.take_profile(end.saturating_sub(started.elapsed()))?, false)?;
    }
    print(session.stop()?, true)
}

async fn stream(session: Session, period: Duration, intervals: u32) -> Result<(), Box<dyn Error>> {
    let mut polled = session.polled_intervals(period)?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a descriptor that is owned is not closed before it is deregistered"
    )]
    let descriptor = AsyncFd::new(polled.as_fd().try_clone_to_owned()?)?;
    let mut taken = 0;
    loop {
        match polled.try_next() {
            Poll::Ready(Some(profile)) => print(profile?, polled.ended().is_some())?,
            Poll::Ready(None) => return Ok(()),
            Poll::Pending => {
                descriptor.readable().await?.clear_ready();
                continue;
            }
        }
        taken += 1;
        if taken == intervals
            && let Some(stopper) = polled.stopper()
        {
            stopper.stop();
        }
    }
}

/// Prints the account of a profile. The line is a signal to measure the process: the profile is dropped before it.
fn print(profile: Profile, is_last: bool) -> Result<(), Box<dyn Error>> {
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
