//! The deadline of all operations that a thread waits for.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

thread_local! {
    static DEADLINE: RefCell<Option<Deadline>> = const { RefCell::new(None) };
}

/// A deadline of the operations of one thread, which any thread can set.
#[derive(Clone, Debug, Default)]
pub struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    /// That of the calling thread.
    pub fn of_this_thread() -> Self {
        DEADLINE.with_borrow_mut(|deadline| deadline.get_or_insert_default().clone())
    }

    /// Makes this the deadline of the calling thread.
    pub fn use_in_this_thread(&self) {
        DEADLINE.set(Some(self.clone()));
    }

    /// Sets the deadline of the operations that begin from now on.
    pub fn set(&self, deadline: Instant) {
        self.replace(Some(deadline));
    }

    /// Removes the deadline.
    pub fn clear(&self) {
        self.replace(None);
    }

    fn replace(&self, deadline: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that this thread may still wait.
pub(crate) fn left_for_this_thread(now: Instant) -> Duration {
    let deadline = DEADLINE.with_borrow(|deadline| deadline.as_ref().and_then(Deadline::get));
    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now))
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
        assert_eq!(left_for_this_thread(now + Duration::from_secs(3)), Duration::ZERO);
        Deadline::of_this_thread().clear();
        assert_eq!(left_for_this_thread(now), Duration::MAX);
    }
}
