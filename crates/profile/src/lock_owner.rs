//! Owners of locks, as they were read in the memory of a process while others waited.

use crate::{ProcessId, Profile, ThreadId};

/// A lock at a time: the thread that held it, and how many threads waited for it.
///
/// The locks of a process are read about once a second. Between two readings, a lock can have had other owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// The thread that held the lock, of the process of the lock.
    pub owner: ThreadId,
    /// Identifies the lock among those of its process while a thread holds it or waits for it. The field `LockID` of .NET's events
    /// about lock contention has the same number. Of a mutex of the GNU C library, it is the address.
    pub lock: u64,
    /// `Thread.ManagedThreadId` of the owner of a .NET lock, which begins at 1. 0 for a mutex.
    pub managed_thread_id: u32,
    /// The number of threads that waited for the lock, at least one. Those that spin are not among them.
    pub waiters: u32,
}

impl LockOwner {
    /// The process of the lock.
    #[must_use]
    pub fn process(&self, profile: &Profile) -> ProcessId {
        profile.thread(self.owner).process
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Header, Incident, ProfileBuilder, ProfileCopy};

    /// A profile with a lock at each of these times, each of another process.
    fn profile(times_ns: &[u64], started_monotonic_ns: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        builder.event(Event::at_frequency("wall", 49));
        for (pid, time_ns) in (1..).zip(times_ns) {
            // The owner has no samples.
            let process = builder.process(pid, "shop");
            let owner = builder.thread(process, pid + 10, "worker");
            let (lock, waiters) = (0x7f00_0000_1000, 3);
            builder.add_lock_owner(LockOwner {
                time_ns: *time_ns,
                owner,
                lock,
                managed_thread_id: 4,
                waiters,
            });
        }
        let incident = Incident { since_ns: 150, time_ns: 150, ..Incident::default() };
        let header = Header {
            started_monotonic_ns,
            duration_ns: 1_000,
            incident: Some(incident),
            ..Header::default()
        };
        builder.finish(header)
    }

    /// Time, process and owner of the locks.
    fn locks(profile: &Profile) -> Vec<(u64, u32, u32)> {
        let locks = profile.lock_owners().iter();
        locks
            .map(|lock| {
                let owner = profile.thread(lock.owner);
                assert_eq!((lock.lock, lock.managed_thread_id, lock.waiters), (0x7f00_0000_1000, 4, 3));
                assert_eq!(profile.string(owner.comm), "worker");
                (lock.time_ns, profile.process(lock.process(profile)).pid, owner.tid)
            })
            .collect()
    }

    #[test]
    fn owners_are_in_time_order_and_in_each_view() {
        let profile = profile(&[200, 100], 0);
        let both = [(100, 2, 12), (200, 1, 11)];
        assert_eq!(locks(&profile), both);
        for event in profile.event_ids() {
            assert_eq!(locks(&profile.single_event(event)), both);
        }
        let mut copy = ProfileCopy::of(&profile);
        copy.runtime_events();
        assert_eq!(locks(&copy.finish(profile.header().clone())), both);
        assert_eq!(locks(&profile.since_incident().unwrap()), [(50, 1, 11)]);
    }

    #[test]
    fn owners_of_later_intervals_have_later_times() {
        let joined = Profile::joined(&[profile(&[100], 5_000), profile(&[200], 6_000)]);
        assert_eq!(locks(&joined), [(100, 1, 11), (1_200, 1, 11)]);
        assert_eq!(joined.processes().len(), 1);
    }

    #[cfg(feature = "filters")]
    #[test]
    fn owners_are_selected_by_process_and_time() {
        use std::time::Duration;

        use crate::Shape;

        let profile = profile(&[100, 200], 0);
        let shaped = |shape: &Shape| locks(&profile.shaped(shape));
        let choice = |text: &str| Some(text.parse().unwrap());
        assert_eq!(shaped(&Shape { process: choice("2"), ..Shape::default() }), [(200, 2, 12)]);
        let middle = Some(Duration::from_nanos(150));
        assert_eq!(shaped(&Shape { from: middle, ..Shape::default() }), [(200, 2, 12)]);
        assert_eq!(shaped(&Shape { to: middle, ..Shape::default() }), [(100, 1, 11)]);
        let of_waiter = Shape { thread: choice("77"), ..Shape::default() };
        assert_eq!(shaped(&of_waiter).len(), 2, "the thread that waits is chosen, and not the owner");
    }
}
