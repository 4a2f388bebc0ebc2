//! Finds the processes from whose forks a process descends: it has their memory, with their JIT code.

use std::{sync::Arc, time::Duration};

use profiler_addresses::MonotonicTime;

use crate::{
    AddressSpace, Identity, Mapping, Pid, ProcFs, Process, ProcessKey, ProcessTable, Status,
    process_reader::read_identity, status,
};

/// Generations of forks per process. Prefork servers have two or three.
const MAX_GENERATIONS: usize = 8;

/// Tolerance of comparisons with a start time, which is known in clock ticks.
const TICK: Duration = Duration::from_millis(10);

/// A fork that the session saw.
#[derive(Clone, Debug)]
pub(crate) struct SeenFork {
    /// The process that forked.
    key: ProcessKey,
    pid: Pid,
    /// Its own fork or exec; zero when the session did not see it.
    since: MonotonicTime,
    /// Its attributes, if they were known at the fork.
    identity: Option<Arc<Identity>>,
    /// Time of the fork.
    forked: MonotonicTime,
}

/// A process from whose fork another one descends, without an exec in between.
#[derive(Debug)]
pub struct Ancestor {
    /// Its key in the table; it may be retired. `None` for a process that was never in the table.
    pub key: Option<ProcessKey>,
    /// Process id in the profiler's PID namespace.
    pub pid: Pid,
    /// Its attributes.
    pub identity: Arc<Identity>,
    /// The time of the fork: the descendant has none of its later code. One that the session did not see is known in
    /// clock ticks: this is the first time at which it can have been.
    pub forked_after: MonotonicTime,
    /// The last time at which the fork can have been.
    pub forked: MonotonicTime,
    /// Its executable mappings, where the session did not see the fork.
    mappings: Option<AddressSpace>,
}

impl Ancestor {
    /// Whether a mapping of the descendant can be that of this process.
    pub fn can_share(&self, mapping: &Mapping) -> bool {
        let Some(mappings) = &self.mappings else { return true };
        let same = mappings.find(mapping.start, MonotonicTime::MAX);
        same.is_some_and(|same| {
            same.start == mapping.start && same.end == mapping.end && same.backing == mapping.backing
        })
    }
}

impl Process {
    /// The forks from which a child of this process descends that is forked at a time.
    pub(crate) fn forks_of_child(&self, forked: MonotonicTime) -> Vec<SeenFork> {
        let own = SeenFork {
            key: self.key,
            pid: self.pid,
            since: self.since,
            identity: self.identity.clone(),
            forked,
        };
        let older = self.forks.iter().take(MAX_GENERATIONS - 1).cloned();
        std::iter::once(own).chain(older).collect()
    }

    /// Whether an address had the same kind of code at a time as now.
    pub fn had_code_at(&self, mapping: &Mapping, time: MonotonicTime) -> bool {
        let before = self.space.find(mapping.start, time);
        before.is_some_and(|before| before.backing == mapping.backing)
    }
}

impl ProcessTable {
    /// The processes from whose forks a process descends with its memory, the parent first. They have its root directory and
    /// are in its container.
    pub fn ancestors(&self, process: &Process) -> Vec<Ancestor> {
        let mut ancestors = Vec::new();
        for fork in &process.forks {
            let Some(identity) = self.identity_of(fork, process) else { return ancestors };
            if !process.identity.as_ref().is_none_or(|own| self.proc().are_of_one_tenant(own, &identity)) {
                return ancestors;
            }
            ancestors.push(Ancestor {
                key: Some(fork.key),
                pid: fork.pid,
                identity,
                forked_after: fork.forked,
                forked: fork.forked,
                mappings: None,
            });
        }
        // What the session did not see begins at the oldest process that it saw.
        let oldest = ancestors.last().map(|oldest| (oldest.pid, Arc::clone(&oldest.identity)));
        let since = process.forks.last().map_or(process.since, |fork| fork.since);
        let mut descendant = oldest.or_else(|| Some((process.pid, process.identity.clone()?)));
        while ancestors.len() < MAX_GENERATIONS
            && since == MonotonicTime::ZERO
            && let Some((pid, identity)) = descendant.take()
            && let Some(parent) = parent_in_proc(self.proc(), pid, &identity)
        {
            descendant = Some((parent.pid, Arc::clone(&parent.identity)));
            ancestors.push(parent);
        }
        ancestors
    }

    /// The attributes of a process that forked; those that its descendant shares where it ended before they were read.
    fn identity_of(&self, fork: &SeenFork, descendant: &Process) -> Option<Arc<Identity>> {
        let known = self.get(fork.key).and_then(|process| process.identity.clone());
        known.or_else(|| fork.identity.clone()).or_else(|| {
            let read = read_identity(self.proc(), fork.pid);
            // A later process can have the PID, and a zombie has no root directory.
            let is_later = |identity: &Identity| {
                monotonic_time_of(identity.started_unix_ns) > fork.forked.saturating_add(TICK)
            };
            let read = read.filter(|identity| {
                !self.proc().is_live() || (identity.root.is_some() && !is_later(identity))
            });
            let shared = || inherited_identity(fork, descendant.identity.as_deref()?);
            read.or_else(shared).map(Arc::new)
        })
    }
}

/// The attributes of a process that has ended, by those of a descendant. The process ids are known without a PID namespace only.
fn inherited_identity(fork: &SeenFork, descendant: &Identity) -> Option<Identity> {
    let has_no_namespace = descendant.status.innermost_pid == descendant.status.pid.0;
    (has_no_namespace && fork.since > MonotonicTime::ZERO).then(|| Identity {
        status: Status { pid: fork.pid, innermost_pid: fork.pid.0, ..descendant.status.clone() },
        start_ticks: 0,
        started_unix_ns: unix_ns_of(fork.since),
        executable: descendant.executable.clone(),
        program: None,
        environment: descendant.environment.clone(),
        service_name: None,
        unit: None,
        container: descendant.container.clone(),
        kubernetes: None,
        root: descendant.root.clone(),
    })
}

/// The parent of a process, if it forked it and the process has not executed a program since: the stacks of both begin at the same
/// random address.
fn parent_in_proc(proc: &ProcFs, pid: Pid, identity: &Identity) -> Option<Ancestor> {
    let stat = |pid| String::from_utf8(proc.read(pid, "stat").ok()?).ok();
    let own = stat(pid)?;
    let parent_pid = status::parse_parent(&own)?;
    let parent = read_identity(proc, parent_pid)?;
    let stack = status::parse_stack_start(&own).filter(|start| *start != 0)?;
    let is_parent = status::parse_start_ticks(&own) == Some(identity.start_ticks)
        && parent.start_ticks <= identity.start_ticks
        && parent.executable == identity.executable
        && status::parse_stack_start(&stat(parent_pid)?) == Some(stack)
        && proc.are_of_one_tenant(identity, &parent);
    let mappings = proc.read(parent_pid, "maps").ok().filter(|_| is_parent)?;
    // The times of a capture are those of another boot.
    let forked_after =
        if proc.is_live() { monotonic_time_of(identity.started_unix_ns) } else { MonotonicTime::MAX };
    Some(Ancestor {
        key: None,
        pid: parent_pid,
        identity: Arc::new(parent),
        forked_after,
        forked: forked_after.saturating_add(TICK),
        mappings: Some(AddressSpace::from_snapshot(crate::maps::parse_executable(&mappings))),
    })
}

impl ProcFs {
    /// Whether two processes have the same files and limits. A capture has a root directory for each process.
    fn are_of_one_tenant(&self, one: &Identity, other: &Identity) -> bool {
        let root = |identity: &Identity| identity.root.as_ref().and_then(|root| root.id());
        (!self.is_live() || root(one) == root(other)) && one.container == other.container
    }
}

/// The monotonic time of a time since 1970-01-01 UTC, as if the machine had never been suspended since.
fn monotonic_time_of(unix_ns: u64) -> MonotonicTime {
    let (now, now_unix_ns) = status::now();
    let age = Duration::from_nanos(now_unix_ns.saturating_sub(unix_ns));
    now.saturating_sub(age).max(MonotonicTime(1))
}

fn unix_ns_of(time: MonotonicTime) -> u64 {
    let (now, now_unix_ns) = status::now();
    now_unix_ns.saturating_sub(now.nanoseconds_since(time))
}
