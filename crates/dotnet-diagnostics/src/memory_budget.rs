//! Limits the memory of undelivered method events of all EventPipe sessions together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profiler_processes::tenants::{Tenant, TenantShares};

/// The methods of several dozen of the largest .NET programs. One tenant has at most half.
const MAX_BYTES: usize = 256 << 20;

/// What the sessions of one tenant may reserve of the bytes that all sessions share.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    shares: Arc<Mutex<TenantShares>>,
    tenant: Tenant,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { shares: Arc::new(Mutex::new(TenantShares::new(MAX_BYTES))), tenant: None }
    }
}

impl MemoryBudget {
    /// What another tenant may reserve of the same bytes.
    pub fn of_tenant(&self, tenant: Tenant) -> Self {
        Self { shares: Arc::clone(&self.shares), tenant }
    }

    fn lock(&self) -> MutexGuard<'_, TenantShares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut shares = self.budget.lock();
        let is_reserved = bytes <= shares.left(self.budget.tenant);
        if is_reserved {
            shares.spend(self.budget.tenant, bytes);
            self.reserved_bytes += bytes;
        }
        is_reserved
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.lock().refund(self.budget.tenant, self.reserved_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_processes::tenants::testing::two_tenants;

    #[test]
    fn reserved_bytes_are_unavailable_until_the_reservation_is_dropped() {
        const TENANT_BYTES: usize = MAX_BYTES / 2;
        let budget = MemoryBudget::default();
        let (mut first, mut second) = (MemoryReservation::new(&budget), MemoryReservation::new(&budget));
        assert!(first.reserve(TENANT_BYTES - 1));
        assert!(second.reserve(1));
        assert!(!second.reserve(1));
        drop(first);
        assert!(second.reserve(TENANT_BYTES - 1));
        assert!(!second.reserve(1));
    }

    #[test]
    fn the_sessions_of_one_tenant_leave_memory_for_those_of_another() {
        let [hostile, honest] = two_tenants();
        let budget = MemoryBudget::default();
        let reserve_all = |tenant| {
            let mut reservation = MemoryReservation::new(&budget.of_tenant(tenant));
            while reservation.reserve(1 << 20) {}
            reservation
        };
        let of_hostile: Vec<_> = (0..64).map(|_| reserve_all(hostile)).collect();
        let hostile_bytes: usize = of_hostile.iter().map(|session| session.reserved_bytes).sum();
        assert_eq!(hostile_bytes, MAX_BYTES / 2);
        assert_eq!(reserve_all(honest).reserved_bytes, MAX_BYTES / 4);
    }
}
