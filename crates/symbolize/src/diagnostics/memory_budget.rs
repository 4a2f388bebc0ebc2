//! Limits the memory of undelivered method events of all EventPipe sessions together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The methods of several dozen of the largest .NET programs.
const MAX_BYTES: usize = 256 << 20;

/// The remaining bytes, shared by all sessions.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<AtomicUsize>);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_BYTES)))
    }
}

/// The bytes that one owner has reserved. Dropping it returns them to the budget.
#[derive(Debug, Default)]
pub(super) struct MemoryReservation {
    budget: MemoryBudget,
    reserved_bytes: usize,
}

impl MemoryReservation {
    pub(super) fn new(budget: &MemoryBudget) -> Self {
        Self { budget: budget.clone(), reserved_bytes: 0 }
    }

    /// Reserves more bytes. Returns false when the budget does not have them.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let subtract = |left: usize| left.checked_sub(bytes);
        let is_reserved = self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).is_ok();
        self.reserved_bytes += if is_reserved { bytes } else { 0 };
        is_reserved
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.reserved_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_unavailable_until_the_reservation_is_dropped() {
        let budget = MemoryBudget::default();
        let (mut first, mut second) = (MemoryReservation::new(&budget), MemoryReservation::new(&budget));
        assert!(first.reserve(MAX_BYTES - 1));
        assert!(second.reserve(1));
        assert!(!second.reserve(1));
        drop(first);
        assert!(second.reserve(MAX_BYTES - 1));
        assert!(!second.reserve(1));
    }
}
