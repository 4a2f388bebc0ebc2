//! Groups the processes of a profile: those of a service have findings together.
//!
//! A server starts a process for each worker or connection, and a build one for each file. A cause that its processes share, as a slow
//! service or a disk, is looked for in all of their threads. One that a process has alone, as a lock in its memory, is looked for
//! in each process; those with one thread share the locks for which they wait. The CPUs and their quota are those of a cgroup.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use profiler_profile::{EventId, FindingKind, ProcessId, Profile, Thread};

use crate::{
    Waits, barrier, busy, child_processes, cpu, finalizer, found::Found, locks, marks::Marks, pool,
    service_key::ServiceKey, thread_group::ThreadGroup, waiting,
};

/// The processes of a service that have one thread each, or another process of it.
struct Part<'a> {
    service: ServiceKey<'a>,
    threads: ThreadGroup<'a>,
}

/// The findings on the threads of all processes by the samples of an event.
pub(crate) fn findings<'a>(
    profile: &'a Profile,
    waits: &Waits,
    marks: &'a Marks,
    event: EventId,
) -> Vec<Found<'a>> {
    let parts = parts(profile, waits, marks, event);
    let mut found = Vec::new();
    for of_cgroup in parts.chunk_by(|one, other| one.service.cgroup == other.service.cgroup) {
        found.extend(waiting::of_cgroup(&joined(of_cgroup)));
        for of_service in of_cgroup.chunk_by(|one, other| one.service == other.service) {
            found.extend(of_service.iter().flat_map(|part| own_findings(&part.threads)));
            found.extend(shared_findings_of(of_service));
        }
    }
    found
}

/// The parts of all services, those of one service beside each other.
fn parts<'a>(profile: &'a Profile, waits: &Waits, marks: &'a Marks, event: EventId) -> Vec<Part<'a>> {
    let mut processes = BTreeMap::<ProcessId, Vec<_>>::new();
    for sample in profile.samples_of(event) {
        let process = profile.thread(sample.thread).process;
        processes.entry(process).or_default().push((sample, waits.cause(sample)));
    }
    let with_several = processes_with_several_threads(profile);
    let mut parts = BTreeMap::<_, Part<'a>>::new();
    for (process, of_process) in processes {
        let service = ServiceKey::of(profile, process);
        let alone = Some(process).filter(|process| with_several.contains(process));
        let part = parts.entry((service, alone)).or_insert_with(|| {
            let (processes, samples, has_one_thread_each) = (Vec::new(), Vec::new(), alone.is_none());
            let threads =
                ThreadGroup { profile, marks, event, process, processes, has_one_thread_each, samples };
            Part { service, threads }
        });
        part.threads.processes.push(process);
        part.threads.samples.extend(of_process);
    }
    parts.into_values().collect()
}

fn processes_with_several_threads(profile: &Profile) -> BTreeSet<ProcessId> {
    let mut first_threads = HashMap::<ProcessId, u32>::new();
    let is_another =
        |thread: &&Thread| *first_threads.entry(thread.process).or_insert(thread.tid) != thread.tid;
    profile.threads().filter(is_another).map(|thread| thread.process).collect()
}

fn joined<'p, 'a>(parts: &'p [Part<'a>]) -> Cow<'p, ThreadGroup<'a>> {
    match parts {
        [part] => Cow::Borrowed(&part.threads),
        parts => Cow::Owned(ThreadGroup::joined(&parts.iter().map(|part| &part.threads).collect::<Vec<_>>())),
    }
}

/// The findings on what a process, or processes with one thread each, have for themselves.
fn own_findings<'a>(threads: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    let mut found = locks::findings(threads);
    found.extend(pool::starvation(threads));
    found.extend(waiting::gc_suspension(threads));
    found.extend(finalizer::blocked(threads));
    found.extend(busy::finding(threads));
    found.extend(barrier::skew(threads).filter(|_| !threads.has_several_processes()));
    found
}

/// The findings on what the processes of a service share. Those of a part are left out where the whole has the same.
fn shared_findings_of<'a>(parts: &[Part<'a>]) -> Vec<Found<'a>> {
    let mut found = shared_findings(&joined(parts));
    let kinds: BTreeSet<FindingKind> = found.iter().map(|found| found.finding.kind).collect();
    if parts.len() > 1 {
        let of_parts = parts.iter().flat_map(|part| shared_findings(&part.threads));
        found.extend(of_parts.filter(|found| !kinds.contains(&found.finding.kind)));
    }
    found
}

fn shared_findings<'a>(threads: &ThreadGroup<'a>) -> Vec<Found<'a>> {
    let mut found = waiting::shared_findings(threads);
    found.extend(locks::file_lock(threads));
    found.extend(cpu::findings(threads));
    found.extend(child_processes::slow(threads));
    found
}
