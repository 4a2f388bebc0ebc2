//! A capability that a thread has in its permitted set, and uses for one operation (capabilities(7)).

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Restores the effective set of the thread when it is dropped.
#[must_use]
pub(super) struct RaisedCapability {
    before: Option<CapabilitySets>,
}

impl RaisedCapability {
    /// `CAP_DAC_OVERRIDE`, unless the thread uses it already or does not have it.
    pub(super) fn dac_override() -> Self {
        let raise = || {
            let before = capabilities(None).ok()?;
            let raised = before.permitted & CapabilitySet::DAC_OVERRIDE;
            if before.effective.contains(raised) {
                return None;
            }
            set_capabilities(None, CapabilitySets { effective: before.effective | raised, ..before }).ok()?;
            Some(before)
        };
        Self { before: raise() }
    }
}

impl Drop for RaisedCapability {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = set_capabilities(None, before)
        {
            log::error!("a capability cannot be lowered again: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_effective_only_while_it_is_raised() {
        let thread = std::thread::spawn(|| {
            let all = capabilities(None).unwrap();
            let lowered = CapabilitySets { effective: CapabilitySet::empty(), ..all };
            set_capabilities(None, lowered).unwrap();
            let raised = RaisedCapability::dac_override();
            let expected = all.permitted & CapabilitySet::DAC_OVERRIDE;
            assert_eq!(capabilities(None).unwrap().effective, expected);
            drop(raised);
            assert_eq!(capabilities(None).unwrap().effective, CapabilitySet::empty());
        });
        thread.join().unwrap();
    }
}
