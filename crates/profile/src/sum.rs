//! Saturating sums of sample counts: a recording may state counts whose sum exceeds 64 bits.

/// Adds `count` to `sum`, up to [`u64::MAX`].
pub fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// The sum of `counts`, at most [`u64::MAX`].
pub fn of(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_saturates() {
        let mut sum = 3;
        add(&mut sum, 4);
        assert_eq!(sum, 7);
        add(&mut sum, u64::MAX);
        assert_eq!(sum, u64::MAX);
        assert_eq!((of([1, 2]), of([1, u64::MAX, 2]), of([])), (3, u64::MAX, 0));
    }
}
