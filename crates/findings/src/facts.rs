//! The facts of findings.

use profiler_profile::{Share, Whole};

/// The time after which first evidence is the begin of a problem. Before, it can be the begin of the measurement.
const FIRST_SIGHT_NS: u64 = 1_000_000_000;

/// When a problem began, if its first evidence is not that of a measurement that began later.
pub(crate) fn since(begin_ns: u64) -> Option<u64> {
    Some(begin_ns).filter(|begin_ns| *begin_ns > FIRST_SIGHT_NS)
}

/// A share of a whole.
pub(crate) fn share(percent: f64, of: Whole) -> Option<Share> {
    Some(Share { percent, of })
}
