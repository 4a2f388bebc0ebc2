//! Adds the owners of locks that threads waited for to a profile.

use profiler_processes::Process;
use profiler_profile::{LockOwner, ManagedThread};
use profiler_symbolize::ProcessLocks;

use super::ProfileAssembler;

impl ProfileAssembler {
    /// Adds the locks of a process at a time.
    pub(in crate::session) fn add_lock_owners(&mut self, process: &Process, read: &ProcessLocks) {
        let id = self.process(process).id;
        for lock in &read.locks {
            let (tid, comm) = &lock.owner;
            let owner = self.builder.thread(id, tid.0, comm);
            self.builder.add_lock_owner(LockOwner {
                time_ns: read.time.nanoseconds_since(self.started),
                owner,
                lock: lock.lock,
                managed_thread_id: lock.managed_thread_id,
                waiters: lock.waiters,
            });
        }
        for observed in &read.managed_threads {
            let (tid, comm) = &observed.thread;
            let thread = self.builder.thread(id, tid.0, comm);
            let mut string = |text: &Option<String>| Some(self.builder.string(text.as_deref()?));
            let [name, exception] = [string(&observed.name), string(&observed.exception)];
            self.builder.add_managed_thread(ManagedThread {
                time_ns: read.time.nanoseconds_since(self.started),
                thread,
                managed_id: observed.managed_id,
                name,
                exception,
                gc_mode: observed.gc_mode,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_addresses::MonotonicTime;
    use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable, Tid};
    use profiler_profile::{GcMode, Header};
    use profiler_sampler::EventPlan;
    use profiler_symbolize::{ObservedLock, ObservedThread};

    use super::*;
    #[test]
    fn an_owner_is_a_thread_of_its_process_at_a_time_of_the_interval() {
        let mut table = ProcessTable::new(Arc::new(ProcFs::live()), ProcessFilter::All);
        let key = table.prefetch(Pid::own());
        let mut assembler = ProfileAssembler::new(&EventPlan::default(), false, MonotonicTime(1_000));
        let lock = |tid, waiters| ObservedLock {
            lock: 0x1000,
            owner: (Tid(tid), Arc::from("worker")),
            managed_thread_id: 4,
            waiters,
        };
        for (time_ns, locks) in [(1_500, vec![lock(7, 2), lock(8, 1)]), (2_500, vec![lock(7, 3)])] {
            let managed_threads = vec![ObservedThread {
                thread: (Tid(7), Arc::from("worker")),
                managed_id: 4,
                name: Some("worker of prices".to_owned()),
                exception: None,
                gc_mode: GcMode::Preemptive,
            }];
            let read = ProcessLocks { process: key, time: MonotonicTime(time_ns), locks, managed_threads };
            assembler.add_lock_owners(table.get(key).unwrap(), &read);
        }
        let profile = assembler.finish(|_| None).0.finish(Header::default());
        let found: Vec<_> = profile
            .lock_owners()
            .iter()
            .map(|lock| (lock.time_ns, profile.thread(lock.owner).tid, lock.managed_thread_id, lock.waiters))
            .collect();
        assert_eq!(found, [(500, 7, 4, 2), (500, 8, 4, 1), (1_500, 7, 4, 3)]);
        let threads = profile.managed_threads().iter().map(|reading| {
            let thread = profile.thread(reading.thread);
            (reading.time_ns, thread.tid, reading.name.map(|name| profile.string(name)))
        });
        let name = Some("worker of prices");
        assert_eq!(threads.collect::<Vec<_>>(), [(500, 7, name), (1_500, 7, name)]);
        assert_eq!((profile.processes().len(), profile.threads().len()), (1, 2));
        assert_eq!(profile.process(profile.lock_owners()[0].process(&profile)).pid, Pid::own().0);
    }
}
