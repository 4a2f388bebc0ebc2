//! Memory for what all runtimes say together, until somebody takes it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The names of a few dozen of the largest .NET programs.
const MAX_BYTES: usize = 256 << 20;

/// What is left, shared by all who listen.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicUsize>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_BYTES)))
    }
}

/// A part of the room. Dropped, it is given back.
#[derive(Debug, Default)]
pub(super) struct Share {
    room: Room,
    taken_bytes: usize,
}

impl Share {
    pub(super) fn of(room: &Room) -> Self {
        Self { room: room.clone(), taken_bytes: 0 }
    }

    /// Takes so much more. False when that is not left.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let is_taken = self.room.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.taken_bytes += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.taken_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_takes_the_other_lacks_until_it_is_given_back() {
        let room = Room::default();
        let (mut one, mut other) = (Share::of(&room), Share::of(&room));
        assert!(one.take(MAX_BYTES - 1));
        assert!(other.take(1));
        assert!(!other.take(1));
        drop(one);
        assert!(other.take(MAX_BYTES - 1));
        assert!(!other.take(1));
    }
}
