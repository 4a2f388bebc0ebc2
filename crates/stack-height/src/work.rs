//! The limit of the work of one analysis, and its cancellation.

use crate::Error;

/// The most steps of an analysis for each byte of the code whose rows are wanted. Whole programs take up to 3.
const STEPS_PER_BYTE: u64 = 32;

/// Steps that any program may take, however small.
const FREE_STEPS: u64 = 1 << 20;

/// The number of steps between two questions whether to continue.
const STEPS_PER_CHECK: u64 = 1 << 14;

/// Counts steps: one is the interpretation of one instruction, or as much.
pub(crate) struct Work<'a> {
    should_continue: &'a dyn Fn() -> bool,
    total: u64,
    left: u64,
    until_check: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(wanted_bytes: u64, should_continue: &'a dyn Fn() -> bool) -> Self {
        let left = wanted_bytes.saturating_mul(STEPS_PER_BYTE).saturating_add(FREE_STEPS);
        Self { should_continue, total: left, left, until_check: STEPS_PER_CHECK }
    }

    /// Whether so few steps remain that optional work should be skipped.
    pub(crate) fn is_scarce(&self) -> bool {
        self.left < self.total / 8
    }

    /// Subtracts steps from the remaining ones.
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), Error> {
        self.left = self.left.checked_sub(steps).ok_or(Error::TooLarge)?;
        if let Some(left) = self.until_check.checked_sub(steps) {
            self.until_check = left;
            return Ok(());
        }
        self.until_check = STEPS_PER_CHECK;
        if (self.should_continue)() { Ok(()) } else { Err(Error::Cancelled) }
    }
}
