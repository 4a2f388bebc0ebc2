//! Cuts call paths that are too narrow to be drawn.

/// Cuts sorted stacks, root first, where fewer than `min_percent` of the samples continue, and merges equal results, so
/// that their number is bounded by the width of the picture.
pub(super) fn cut(stacks: &mut Vec<(Box<[u32]>, u64)>, min_percent: f64) {
    let total: u128 = stacks.iter().map(|(_, count)| u128::from(*count)).sum();
    let mut depths = Depths { min_count: total as f64 * min_percent / 100.0, ..Depths::default() };
    let mut before: &[u32] = &[];
    for (stack, count) in &*stacks {
        let shared = before.iter().zip(stack).take_while(|(one, other)| one == other).count();
        depths.close(shared);
        depths.open(stack.len(), *count);
        before = stack;
    }
    depths.close(0);
    for ((stack, _), depth) in stacks.iter_mut().zip(depths.visible) {
        if let Some(visible) = stack.get(..depth).filter(|visible| visible.len() < stack.len()) {
            *stack = visible.into();
        }
    }
    stacks.sort_unstable();
    stacks.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        is_same
    });
}

/// Computes the visible depth of each stack in one pass over the sorted stacks.
#[derive(Default)]
struct Depths {
    min_count: f64,
    visible: Vec<usize>,
    /// Samples of the stacks before this one.
    sum: u128,
    /// The prefixes of the last stack, from the root: the first stack with the prefix, and the samples before it.
    paths: Vec<(usize, u128)>,
}

impl Depths {
    fn open(&mut self, depth: usize, count: u64) {
        self.paths.resize(depth, (self.visible.len(), self.sum));
        self.visible.push(depth);
        self.sum += u128::from(count);
    }

    /// Closes the prefixes that are deeper than `depth`.
    fn close(&mut self, depth: usize) {
        while self.paths.len() > depth
            && let Some((first, before)) = self.paths.pop()
        {
            if ((self.sum - before) as f64) < self.min_count {
                self.visible.iter_mut().skip(first).for_each(|visible| *visible = self.paths.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_at(stacks: &[(&[u32], u64)], min_percent: f64) -> Vec<(Vec<u32>, u64)> {
        let mut stacks: Vec<_> = stacks.iter().map(|(stack, count)| ((*stack).into(), *count)).collect();
        cut(&mut stacks, min_percent);
        stacks.into_iter().map(|(stack, count)| (Vec::from(stack), count)).collect()
    }

    #[test]
    fn a_stack_ends_where_few_samples_continue() {
        let stacks: [(&[u32], u64); 6] =
            [(&[1], 5), (&[1, 2], 40), (&[1, 2, 3], 2), (&[1, 2, 3, 4], 2), (&[1, 2, 5], 1), (&[6, 7], 50)];
        assert_eq!(cut_at(&stacks, 0.0), stacks.map(|(stack, count)| (stack.to_vec(), count)));
        let expected = [(vec![1], 5), (vec![1, 2], 41), (vec![1, 2, 3], 4), (vec![6, 7], 50)];
        assert_eq!(cut_at(&stacks, 4.0), expected);
        let expected = [(vec![1], 5), (vec![1, 2], 45), (vec![6, 7], 50)];
        assert_eq!(cut_at(&stacks, 5.0), expected);
        assert_eq!(cut_at(&stacks, 51.0), [(vec![], 100)]);
        assert_eq!(cut_at(&[], 1.0), []);
    }

    #[test]
    fn the_number_of_stacks_is_bounded() {
        let stacks: Vec<_> =
            (0..100_u32).flat_map(|root| (0..1_000).map(move |leaf| ([root, root + 1, leaf], 1))).collect();
        let stacks: Vec<(&[u32], u64)> = stacks.iter().map(|(stack, count)| (&stack[..], *count)).collect();
        let cut = cut_at(&stacks, 0.01);
        assert_eq!(cut.len(), 100);
        assert!(cut.iter().all(|(stack, count)| (stack.len(), *count) == (2, 1_000)));
    }

    #[test]
    fn counts_beyond_64_bits_do_not_panic() {
        let stacks: [(&[u32], u64); 3] = [(&[1], u64::MAX), (&[1, 2], u64::MAX), (&[1, 3], 1)];
        assert_eq!(cut_at(&stacks, 0.01), [(vec![1], u64::MAX), (vec![1, 2], u64::MAX)]);
    }
}
