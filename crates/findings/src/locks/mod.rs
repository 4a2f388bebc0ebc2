//! Finds threads that wait for locks and for what is as scarce: threads that take turns, and those that wait until the end of the
//! measurement, with the threads that can own the lock.

mod crowd;
mod owner;
mod stuck;
mod text;

use self::stuck::StuckThreads;
use crate::found::Found;
use crate::process::ProcessSamples;

/// The findings on locks, queues and deadlocks of a process.
pub(crate) fn findings<'a>(samples: &ProcessSamples<'a>) -> Vec<Found<'a>> {
    let stuck = StuckThreads::of(samples);
    let mut findings = crowd::findings(samples, stuck.as_ref());
    findings.extend(stuck.map(|stuck| stuck.finding(samples)));
    findings
}
