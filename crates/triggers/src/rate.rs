//! Rates of growing numbers.

/// The rate at which a number grows between two moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    /// Time and number of the last moment.
    last: Option<(u64, u64)>,
}

impl Rate {
    /// The growth per nanosecond since the last moment; `None` at the first moment, when no time has passed, and when
    /// the number has become smaller.
    pub(crate) fn update(&mut self, now_ns: u64, number: u64) -> Option<f64> {
        let (then_ns, before) = self.last.replace((now_ns, number))?;
        let elapsed_ns = now_ns.checked_sub(then_ns).filter(|elapsed_ns| *elapsed_ns > 0)?;
        Some(number.checked_sub(before)? as f64 / elapsed_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_between_two_moments() {
        let mut rate = Rate::default();
        assert_eq!(rate.update(100, 7), None);
        assert_eq!(rate.update(200, 57), Some(0.5));
        assert_eq!(rate.update(300, 57), Some(0.0));
        assert_eq!(rate.update(300, 60), None, "no time has passed");
        assert_eq!(rate.update(400, 10), None, "the number was reset");
        assert_eq!(rate.update(500, 110), Some(1.0));
    }
}
