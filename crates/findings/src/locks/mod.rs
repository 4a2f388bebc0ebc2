//! Finds threads that wait for locks and for what is as scarce: threads that take turns, and those that wait until the end of the
//! measurement, with the threads that can own the lock.

mod contended;
mod crowd;
mod interpreter;
mod known_owners;
pub(crate) mod managed;
pub(crate) mod owner;
mod stuck;
pub(crate) mod stuck_threads;

use self::stuck_threads::StuckThreads;
pub(crate) use self::{
    contended::file_lock,
    known_owners::{MAX_GAP_NS, MIN_READINGS},
};
use crate::databases::GroupCommit;
use crate::found::Found;
use crate::thread_group::ThreadGroup;

/// The findings on locks, queues and deadlocks of a process, or of processes with one thread each.
pub(crate) fn findings<'a>(samples: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    // What processes wait for with each other is a lock of a server that examines it itself.
    let stuck = StuckThreads::of(samples).filter(|_| !samples.has_several_processes());
    let commit = GroupCommit::of(samples);
    let mut findings = contended::findings(samples, stuck.as_ref(), commit.as_ref());
    findings.extend(stuck.map(|stuck| stuck.finding(samples)));
    findings
}
