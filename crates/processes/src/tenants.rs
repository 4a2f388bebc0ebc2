//! Tenants, and how they share a limit of the session.

use std::collections::HashMap;

use crate::{Process, root_directory::RootId};

/// The container whose files give names to a module, by its root directory. `None` is the host.
pub type Tenant = Option<RootId>;

/// The tenant of a process.
pub fn tenant_of(process: &Process) -> Tenant {
    process.identity.as_ref()?.root.as_ref()?.id()
}

/// A limit of the session, and what the tenants have spent of it.
///
/// A tenant may spend as much as it leaves for the others: one tenant at most half.
#[derive(Debug)]
pub struct TenantShares {
    limit: usize,
    spent: usize,
    /// Tenants that have spent nothing are absent.
    spent_by_tenant: HashMap<Tenant, usize>,
}

impl TenantShares {
    /// Creates a limit. Nothing is spent.
    pub fn new(limit: usize) -> Self {
        Self { limit, spent: 0, spent_by_tenant: HashMap::new() }
    }

    /// What a tenant may still spend.
    pub fn left(&self, tenant: Tenant) -> usize {
        let by_tenant = self.spent_by_tenant.get(&tenant).copied().unwrap_or(0);
        self.limit.saturating_sub(self.spent).saturating_sub(by_tenant) / 2
    }

    /// Subtracts an amount from what a tenant may spend.
    pub fn spend(&mut self, tenant: Tenant, amount: usize) {
        self.set_spent(tenant, |spent| spent.saturating_add(amount));
    }

    /// Gives an amount back that a tenant has spent.
    pub fn refund(&mut self, tenant: Tenant, amount: usize) {
        self.set_spent(tenant, |spent| spent.saturating_sub(amount));
    }

    fn set_spent(&mut self, tenant: Tenant, change: impl FnOnce(usize) -> usize) {
        let before = self.spent_by_tenant.remove(&tenant).unwrap_or(0);
        let after = change(before);
        self.spent = self.spent.saturating_sub(before).saturating_add(after);
        if after > 0 {
            self.spent_by_tenant.insert(tenant, after);
        }
    }
}

/// Tenants for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::Tenant;
    use crate::root_directory::RootId;

    /// Two tenants, with a root directory each.
    pub fn two_tenants() -> [Tenant; 2] {
        [1, 2].map(|inode| Some(RootId { mount: 1, inode }))
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::two_tenants, *};

    #[test]
    fn one_tenant_leaves_half_for_the_others() {
        let [hostile, honest] = two_tenants();
        let mut shares = TenantShares::new(64);
        let spend_all = |shares: &mut TenantShares, tenant| {
            let mut count = 0;
            while shares.left(tenant) > 0 {
                shares.spend(tenant, 1);
                count += 1;
            }
            count
        };
        assert_eq!(spend_all(&mut shares, hostile), 32);
        assert_eq!(spend_all(&mut shares, honest), 16);
        assert_eq!((shares.left(hostile), shares.left(None)), (0, 8));
    }

    #[test]
    fn what_a_tenant_gives_back_can_be_spent_again() {
        let [first, second] = two_tenants();
        let mut shares = TenantShares::new(100);
        shares.spend(first, 50);
        shares.spend(second, 20);
        shares.refund(first, 50);
        assert_eq!((shares.left(first), shares.left(second)), (40, 30));
        shares.refund(second, 1_000);
        assert_eq!(shares.left(second), 50, "no more is given back than was spent");
        assert!(shares.spent_by_tenant.is_empty());
    }

    #[test]
    fn a_limit_that_is_exceeded_leaves_nothing() {
        let mut shares = TenantShares::new(100);
        shares.spend(None, 300);
        assert_eq!(shares.left(None), 0);
        shares.spend(None, usize::MAX);
        assert_eq!(shares.left(two_tenants()[0]), 0);
    }
}
