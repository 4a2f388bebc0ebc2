//! The deadline of all operations that a thread waits for.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

thread_local! {
    static DEADLINE: RefCell<Option<Deadline>> = const { RefCell::new(None) };
}

/// The wait for each operation after the deadline: a thread that is behind because the machine is busy still ends its
/// work.
const WAIT_AFTER_DEADLINE: Duration = Duration::from_millis(20);

/// The time that all blocked operations together may take after the deadline.
const MAX_OVERTIME: Duration = Duration::from_millis(500);

/// A deadline of the operations of one thread, which any thread can set.
#[derive(Clone, Debug, Default)]
pub struct Deadline(Arc<Mutex<DeadlineState>>);

#[derive(Debug, Default)]
struct DeadlineState {
    deadline: Option<Instant>,
    /// What blocked operations have taken after the deadline.
    overtime: Duration,
}

impl Deadline {
    /// That of the calling thread.
    pub fn of_this_thread() -> Self {
        DEADLINE.with_borrow_mut(|deadline| deadline.get_or_insert_default().clone())
    }

    /// Makes this the deadline of the calling thread.
    pub fn use_in_this_thread(&self) {
        DEADLINE.set(Some(self.clone()));
    }

    /// Sets the deadline of the operations that begin from now on. After it, an operation that does not block still ends.
    pub fn set(&self, deadline: Instant) {
        self.replace(Some(deadline));
    }

    /// Removes the deadline.
    pub fn clear(&self) {
        self.replace(None);
    }

    fn replace(&self, deadline: Option<Instant>) {
        *self.lock() = DeadlineState { deadline, overtime: Duration::ZERO };
    }

    /// The time that the next operation may take.
    fn left(&self, now: Instant) -> Duration {
        let state = self.lock();
        let Some(deadline) = state.deadline else { return Duration::MAX };
        let left = deadline.saturating_duration_since(now);
        if state.overtime < MAX_OVERTIME { left.max(WAIT_AFTER_DEADLINE) } else { left }
    }

    fn add_blocked(&self, waited: Duration, now: Instant) {
        let mut state = self.lock();
        if state.deadline.is_some_and(|deadline| deadline <= now) {
            state.overtime += waited;
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeadlineState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that this thread may still wait.
pub(crate) fn left_for_this_thread(now: Instant) -> Duration {
    DEADLINE.with_borrow(|deadline| deadline.as_ref().map_or(Duration::MAX, |deadline| deadline.left(now)))
}

/// Adds the time for which this thread has waited for an operation that did not end.
pub(crate) fn add_blocked(waited: Duration, now: Instant) {
    DEADLINE.with_borrow(|deadline| deadline.iter().for_each(|deadline| deadline.add_blocked(waited, now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_holds_for_one_thread_and_is_set_by_any() {
        let now = Instant::now();
        let deadline = Deadline::default();
        assert_eq!(left_for_this_thread(now), Duration::MAX);
        deadline.use_in_this_thread();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                deadline.set(now + Duration::from_secs(2));
                assert_eq!(left_for_this_thread(now), Duration::MAX);
            });
        });
        assert_eq!(left_for_this_thread(now), Duration::from_secs(2));
        let later = now + Duration::from_secs(3);
        assert_eq!(left_for_this_thread(later), WAIT_AFTER_DEADLINE);
        add_blocked(MAX_OVERTIME, now);
        assert_eq!(left_for_this_thread(later), WAIT_AFTER_DEADLINE, "it was blocked before the deadline");
        add_blocked(MAX_OVERTIME, later);
        assert_eq!(left_for_this_thread(later), Duration::ZERO);
        Deadline::of_this_thread().clear();
        assert_eq!(left_for_this_thread(now), Duration::MAX);
    }
}
