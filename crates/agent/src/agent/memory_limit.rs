//! The limit of the agent's own memory: what is kept for later samples is evicted first, then the frequency is lowered.

use super::memory_use::{MemoryMeter, MemoryUse};

/// The most resident memory by default, bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// The share of the limit of the agent's cgroup that the agent may use, percent.
const CGROUP_PERCENT: u64 = 80;

/// Below this share of the limit, percent, the frequency is raised again.
const CALM_PERCENT: u64 = 75;

/// The windows for which memory stays so low before the frequency is raised.
const CALM_WINDOWS: u32 = 10;

/// The part of the limit of a cgroup that stays free of what is charged to it: its share, percent, and the most, bytes. What grows
/// between two measurements must fit.
const CGROUP_RESERVE_PERCENT: u64 = 10;
const MAX_CGROUP_RESERVE_BYTES: u64 = 4 << 20;

/// The most memory that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryBounds {
    /// Of resident memory, bytes.
    resident_bytes: u64,
    /// Of what is charged to the cgroup, bytes.
    charged_bytes: u64,
}

impl MemoryBounds {
    /// The bounds of a process that may have this resident memory, in a cgroup with this limit, bytes.
    fn new(max_bytes: u64, limit_bytes: Option<u64>) -> Self {
        let of_cgroup = limit_bytes.map_or(max_bytes, |bytes| bytes / 100 * CGROUP_PERCENT);
        let reserve =
            |limit_bytes: u64| (limit_bytes / 100 * CGROUP_RESERVE_PERCENT).min(MAX_CGROUP_RESERVE_BYTES);
        let charged_bytes = limit_bytes.map_or(u64::MAX, |bytes| bytes - reserve(bytes));
        Self { resident_bytes: of_cgroup.min(max_bytes), charged_bytes }
    }

    /// Whether more memory is in use.
    pub(super) fn are_exceeded_by(&self, used: MemoryUse) -> bool {
        used.resident_bytes > self.resident_bytes || used.charged_bytes > self.charged_bytes
    }

    /// Whether so much less memory is in use that the frequency can be higher.
    fn are_far_from(&self, used: MemoryUse) -> bool {
        used.resident_bytes < self.resident_bytes / 100 * CALM_PERCENT && !self.are_exceeded_by(used)
    }
}

/// The limit, and what was done for it.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    bounds: MemoryBounds,
    requested_hz: u64,
    frequency_hz: u64,
    /// Whether memory exceeded the limit at the end of the last window.
    was_exceeded: bool,
    calm_windows: u32,
}

/// What the memory limit does at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAction {
    /// Evicts what is kept for later samples.
    Evict,
    /// Evicts it, and lowers the frequency.
    Lower,
    /// Raises the frequency.
    Raise,
}

impl MemoryLimit {
    /// The limit of this process, which may have this resident memory, bytes, and samples at a frequency, hertz.
    pub(super) fn new(meter: &MemoryMeter, max_bytes: u64, requested_hz: u64) -> Self {
        Self::with_bounds(MemoryBounds::new(max_bytes, meter.cgroup_limit_bytes()), requested_hz)
    }

    fn with_bounds(bounds: MemoryBounds, requested_hz: u64) -> Self {
        Self { bounds, requested_hz, frequency_hz: requested_hz, was_exceeded: false, calm_windows: 0 }
    }

    /// The most memory that may be used.
    pub(super) fn bounds(&self) -> MemoryBounds {
        self.bounds
    }

    /// The most resident memory, bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        self.bounds.resident_bytes
    }

    /// Whether a window ends early when memory exceeds the limit. At the lowest frequency, the next one would need no less.
    pub(super) fn ends_windows_early(&self) -> bool {
        self.frequency_hz > 1
    }

    /// The frequency of the next window, hertz.
    pub(super) fn frequency_hz(&self) -> u64 {
        self.frequency_hz
    }

    /// Decides at the end of a window, with the memory in use.
    pub(super) fn apply(&mut self, used: MemoryUse) -> Option<MemoryAction> {
        let is_exceeded = self.bounds.are_exceeded_by(used);
        let was_exceeded = std::mem::replace(&mut self.was_exceeded, is_exceeded);
        if is_exceeded {
            self.calm_windows = 0;
            if was_exceeded && self.frequency_hz > 1 {
                self.frequency_hz /= 2;
                return Some(MemoryAction::Lower);
            }
            return Some(MemoryAction::Evict);
        }
        let is_calm = self.bounds.are_far_from(used);
        self.calm_windows = if is_calm { self.calm_windows + 1 } else { 0 };
        if self.calm_windows >= CALM_WINDOWS && self.frequency_hz < self.requested_hz {
            self.calm_windows = 0;
            self.frequency_hz = (self.frequency_hz * 2).min(self.requested_hz);
            return Some(MemoryAction::Raise);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000;

    fn limit() -> MemoryLimit {
        MemoryLimit::with_bounds(MemoryBounds { resident_bytes: LIMIT, charged_bytes: 2 * LIMIT }, 19)
    }

    fn resident(resident_bytes: u64) -> MemoryUse {
        MemoryUse { resident_bytes, charged_bytes: 2 * LIMIT }
    }

    #[test]
    fn the_frequency_is_lowered_when_eviction_does_not_suffice() {
        let mut memory = limit();
        assert_eq!(memory.apply(resident(LIMIT)), None);
        assert_eq!(
            (memory.apply(resident(LIMIT + 1)), memory.frequency_hz()),
            (Some(MemoryAction::Evict), 19)
        );
        assert_eq!(memory.apply(resident(LIMIT - 1)), None);
        assert_eq!(memory.apply(resident(LIMIT + 1)), Some(MemoryAction::Evict));
        for expected_hz in [9, 4, 2, 1] {
            assert_eq!(memory.apply(resident(LIMIT + 1)), Some(MemoryAction::Lower));
            assert_eq!(memory.frequency_hz(), expected_hz);
        }
        assert_eq!(
            (memory.apply(resident(LIMIT + 1)), memory.frequency_hz()),
            (Some(MemoryAction::Evict), 1)
        );
    }

    #[test]
    fn the_frequency_is_raised_after_calm_windows_up_to_the_requested_one() {
        let mut memory = MemoryLimit { frequency_hz: 9, ..limit() };
        for _ in 1..CALM_WINDOWS {
            assert_eq!(memory.apply(resident(LIMIT / 2)), None);
        }
        // Neither exceeded nor calm.
        assert_eq!(memory.apply(resident(LIMIT - 100)), None);
        for expected_hz in [18, 19] {
            for _ in 1..CALM_WINDOWS {
                assert_eq!(memory.apply(resident(LIMIT / 2)), None);
            }
            assert_eq!(
                (memory.apply(resident(LIMIT / 2)), memory.frequency_hz()),
                (Some(MemoryAction::Raise), expected_hz)
            );
        }
        assert!((0..100).all(|_| memory.apply(resident(LIMIT / 2)).is_none()));
    }

    #[test]
    fn what_the_kernel_charges_counts_as_well() {
        let mut memory = limit();
        let used = MemoryUse { resident_bytes: 0, charged_bytes: 2 * LIMIT + 1 };
        assert_eq!(memory.apply(used), Some(MemoryAction::Evict));
        assert!(memory.ends_windows_early());
        while memory.frequency_hz() > 1 {
            assert_eq!(memory.apply(used), Some(MemoryAction::Lower));
        }
        assert!(!memory.ends_windows_early());
        assert!((0..2 * CALM_WINDOWS).all(|_| memory.apply(used) == Some(MemoryAction::Evict)));
    }

    #[test]
    fn a_part_of_the_limit_of_a_cgroup_stays_free() {
        let bounds = |limit_bytes| MemoryBounds::new(MAX_BYTES, limit_bytes);
        assert_eq!(bounds(None), MemoryBounds { resident_bytes: 64 << 20, charged_bytes: u64::MAX });
        let (resident_bytes, charged_bytes) = (64 << 20, 252 << 20);
        assert_eq!(bounds(Some(256 << 20)), MemoryBounds { resident_bytes, charged_bytes });
        assert_eq!(bounds(Some(1_000)), MemoryBounds { resident_bytes: 800, charged_bytes: 900 });
        let (resident_bytes, charged_bytes) = (1 << 30, u64::MAX);
        assert_eq!(MemoryBounds::new(1 << 30, None), MemoryBounds { resident_bytes, charged_bytes });
    }
}
