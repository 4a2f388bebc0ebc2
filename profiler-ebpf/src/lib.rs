//! Pure logic of the BPF programs: unwind steps by CFI, frame pointer and function edge, epilogue scanning, stack ids, stack
//! flags, reader wake-up.
//!
//! Everything here works on plain values, so that its unit tests run on the host.
#![cfg_attr(target_arch = "bpf", no_std)]

pub mod cache_entry;
pub mod edge_cache;
pub mod epilogue;
pub mod governor;
pub mod maple_node;
pub mod stack_id;
pub mod unwind_step;

use profiler_common::{StackFlags, unwind::USE_PRECISION_NS};

/// The flags of a stack of `frames` addresses that `bpf_get_stack` captured with a limit of `max_frames`.
#[inline(always)]
#[must_use]
pub const fn stack_flags(frames: u32, max_frames: u32) -> u8 {
    if frames >= max_frames { StackFlags::TRUNCATED } else { 0 }
}

/// Notes that something is in use, unless it was noted a short time ago: all CPUs write the same time.
#[inline(always)]
pub const fn note_use(used_ns: &mut u64, now_ns: u64) {
    if now_ns.wrapping_sub(*used_ns) > USE_PRECISION_NS {
        *used_ns = now_ns;
    }
}

/// 1 if `a` is below `b`, otherwise 0.
///
/// VERIFIER: without a branch, so that what follows is verified once. LLVM makes a branch of a comparison.
#[inline(always)]
#[must_use]
pub const fn is_below(a: u64, b: u64) -> u64 {
    ((!a & b) | ((!a | b) & a.wrapping_sub(b))) >> 63
}

/// Whether a record must wake the reader: once the ring buffer holds `wakeup_bytes`. Below that the reader's
/// own timer is soon enough, and a wake-up for each sample would cost more than the sample.
#[inline(always)]
#[must_use]
pub const fn must_wake(pending_bytes: u64, wakeup_bytes: u64) -> bool {
    pending_bytes >= wakeup_bytes
}

/// Whether the fill of the ring buffer is read at a sample, and the samples of this CPU until it is read the next time.
/// Samples without a new stack are small, so that it suffices to read it at every eighth; it is due after a new stack.
#[inline(always)]
#[must_use]
pub const fn next_query(samples_to_query: u64) -> (bool, u64) {
    const SAMPLES_PER_QUERY: u64 = 8;
    match samples_to_query.checked_sub(1) {
        Some(left) => (false, left),
        None => (true, SAMPLES_PER_QUERY - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_as_deep_as_the_limit_counts_as_truncated() {
        assert_eq!(stack_flags(126, 127), 0);
        assert_eq!(stack_flags(127, 127), StackFlags::TRUNCATED);
    }

    #[test]
    fn the_fill_of_the_ring_buffer_is_read_at_every_eighth_sample() {
        let mut left = 0;
        let queries: Vec<u32> = (0..20)
            .filter(|_| {
                let (is_query, next) = next_query(left);
                left = next;
                is_query
            })
            .collect();
        assert_eq!(queries, [0, 8, 16]);
    }

    #[test]
    fn a_use_is_noted_once_in_a_while() {
        let mut used_ns = 0;
        let now_ns = 5 * USE_PRECISION_NS;
        for (at_ns, noted_ns) in [
            (now_ns, now_ns),
            (now_ns + USE_PRECISION_NS, now_ns),
            (now_ns + USE_PRECISION_NS + 1, now_ns + USE_PRECISION_NS + 1),
        ] {
            note_use(&mut used_ns, at_ns);
            assert_eq!(used_ns, noted_ns);
        }
    }

    #[test]
    fn numbers_are_compared_without_a_sign() {
        let numbers = [0, 1, 2, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
        for a in numbers {
            for b in numbers {
                assert_eq!(is_below(a, b), u64::from(a < b), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_reader_is_woken_at_the_threshold_only() {
        assert!(!must_wake(1023, 1024));
        assert!(must_wake(1024, 1024));
    }
}
