//! Divides the capacity of the BPF maps and the time of the unwinding thread among tenants.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use profiler_processes::{Pid, root_directory::RootId};

/// The tenants whose used time is remembered while none of their processes waits.
const MAX_IDLE_TENANTS: usize = 1024;

/// The owner of processes, by their root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tenant {
    Host,
    Container(RootId),
    /// The process had ended before its root directory was opened.
    Unknown,
}

/// A capacity that tenants share. The host may use what is free. Other tenants may use as much as they leave free: one at
/// most half, a second one at most a third.
#[derive(Debug)]
pub(super) struct SharedCapacity {
    free: usize,
    used: HashMap<Tenant, usize>,
}

impl SharedCapacity {
    pub(super) fn new(limit: usize) -> Self {
        Self { free: limit, used: HashMap::new() }
    }

    /// Takes a part of the capacity for a tenant. Returns whether there was enough.
    pub(super) fn take(&mut self, tenant: Tenant, amount: usize) -> bool {
        let used = self.used.get(&tenant).copied().unwrap_or(0);
        let Some(left) = self.free.checked_sub(amount) else { return false };
        if tenant != Tenant::Host && used + amount > left {
            return false;
        }
        self.free = left;
        self.used.insert(tenant, used + amount);
        true
    }

    /// The whole capacity, including the part in use.
    pub(super) fn limit(&self) -> usize {
        self.free + self.used.values().sum::<usize>()
    }

    /// Gives a part back that the tenant has taken.
    pub(super) fn give_back(&mut self, tenant: Tenant, amount: usize) {
        self.free += amount;
        if let Some(used) = self.used.get_mut(&tenant) {
            *used = used.saturating_sub(amount);
            if *used == 0 {
                self.used.remove(&tenant);
            }
        }
    }
}

/// The processes whose mappings have to be installed. The tenant that has used the least time comes first, and its
/// processes in turns.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    tenants: HashMap<Tenant, Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    pids: VecDeque<Pid>,
    used: Duration,
}

impl TurnQueue {
    /// Adds a process.
    pub(super) fn push(&mut self, tenant: Tenant, pid: Pid) {
        if self.tenants.len() > MAX_IDLE_TENANTS {
            self.tenants.retain(|_, turns| !turns.pids.is_empty());
        }
        // A tenant that was idle has no claim on the time of others.
        let waiting = self.tenants.values().filter(|turns| !turns.pids.is_empty());
        let least = waiting.map(|turns| turns.used).min().unwrap_or_default();
        let turns = self.tenants.entry(tenant).or_default();
        if turns.pids.is_empty() {
            turns.used = turns.used.max(least);
        }
        turns.pids.push_back(pid);
    }

    /// Takes the next process.
    pub(super) fn pop(&mut self) -> Option<Pid> {
        let waiting = self.tenants.values_mut().filter(|turns| !turns.pids.is_empty());
        waiting.min_by_key(|turns| turns.used)?.pids.pop_front()
    }

    /// Adds to the time that a tenant has used.
    pub(super) fn spend(&mut self, tenant: Tenant, time: Duration) {
        if let Some(turns) = self.tenants.get_mut(&tenant) {
            turns.used += time;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenants.values().all(|turns| turns.pids.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_leaves_capacity_for_others_and_the_host_need_not() {
        let mut capacity = SharedCapacity::new(90);
        assert!(!capacity.take(Tenant::Unknown, 46), "more than half");
        assert!(capacity.take(Tenant::Unknown, 45) && !capacity.take(Tenant::Unknown, 1));
        assert!(capacity.take(Tenant::Host, 45) && !capacity.take(Tenant::Host, 1));
        capacity.give_back(Tenant::Unknown, 45);
        assert!(capacity.used.len() == 1 && capacity.free == 45);
        assert!(capacity.take(Tenant::Unknown, 22));
    }

    #[test]
    fn the_limit_does_not_depend_on_what_is_in_use() {
        let mut capacity = SharedCapacity::new(90);
        assert!(capacity.take(Tenant::Host, 60) && capacity.take(Tenant::Unknown, 10));
        assert_eq!(capacity.limit(), 90);
        capacity.give_back(Tenant::Host, 60);
        assert_eq!(capacity.limit(), 90);
    }

    #[test]
    fn the_tenant_that_used_the_least_time_comes_first() {
        let mut queue = TurnQueue::default();
        for pid in 1..=3 {
            queue.push(Tenant::Unknown, Pid(pid));
        }
        assert_eq!(queue.pop(), Some(Pid(1)));
        queue.spend(Tenant::Unknown, Duration::from_secs(5));
        queue.push(Tenant::Host, Pid(9));
        queue.push(Tenant::Host, Pid(10));
        assert_eq!(queue.tenants[&Tenant::Host].used, Duration::from_secs(5), "it was idle meanwhile");
        queue.spend(Tenant::Unknown, Duration::from_secs(1));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [9, 10, 2].map(|pid| Some(Pid(pid))));
        assert!(
            !queue.is_empty() && queue.pop() == Some(Pid(3)) && queue.is_empty() && queue.pop().is_none()
        );
    }
}
