//! Governor: limits the run time of the sampling programs on a CPU, by shallower stacks first, then by fewer samples.
//!
//! A token bucket of run time for each CPU. Below a half, a quarter and an eighth of its size, stacks are cut shorter; when
//! it is empty, ticks are skipped, and the next sample of the CPU has their weight.

use profiler_common::{MAX_FRAMES, OVERHEAD_SHARE_BITS};

/// Run time that accumulates while it is not used: what is allowed in this time.
const MAX_REFILL_NS: u64 = 1_000_000_000;

/// The least depth to which stacks are cut: `perf_event_max_stack` by default.
pub const MIN_FRAMES: u32 = 127;

/// The most run time that one sample can have used: more means that the hypervisor did not run the CPU meanwhile.
const MAX_RUN_TIME_NS: u64 = 1_000_000;

/// A thread whose waits are at least as long may use the whole bucket, nanoseconds.
const LONG_WAIT_NS: u64 = 1_000_000;

/// A thread whose waits add less on average has had no long wait for some hundred waits, nanoseconds.
const LEAST_MEAN_NS: u32 = 1_000;

/// The number of waits over which their mean is taken, about.
const MEAN_WAITS: u32 = 32;

/// The mean time that waits of a thread add to the profile, nanoseconds, after one that adds this time.
#[inline(always)]
#[must_use]
pub fn next_mean_ns(mean_ns: u32, added_ns: u64) -> u32 {
    const MAX_NS: u64 = 1_000_000_000;
    let added_ns = if added_ns > MAX_NS { MAX_NS } else { added_ns } as u32;
    mean_ns - mean_ns / MEAN_WAITS + added_ns / MEAN_WAITS
}

/// The governor of one CPU. It starts with a full bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Governor {
    /// Run time that is left, nanoseconds.
    left_ns: i64,
    /// The time of the last refill, `CLOCK_MONOTONIC` nanoseconds.
    refilled_ns: u64,
    /// Ticks that were skipped since the last sample.
    skipped: u32,
    /// The most frames of the current stack.
    max_frames: u32,
}

impl Governor {
    /// Decides on a tick that hits a target: the weight of its sample, `None` for no sample. `share` is the part of a CPU
    /// that may be used, in units of 1 / 2^[`OVERHEAD_SHARE_BITS`].
    #[inline(always)]
    pub fn begin_sample(&mut self, now_ns: u64, share: u32) -> Option<u16> {
        let (left_ns, size_ns) = self.refill(now_ns, share);
        if left_ns <= 0 && self.skipped < u16::MAX as u32 - 1 {
            self.skipped += 1;
            return None;
        }
        self.max_frames = max_frames(left_ns, size_ns);
        Some(self.skipped as u16 + 1)
    }

    /// Decides whether the stacks of a wait, or of a system call of this length, are captured. Those of threads whose previous wait
    /// was short, and of displaced threads, use half of the bucket at most: a thread that waits thousands of times a second leaves
    /// enough for those that wait long.
    #[inline(always)]
    pub fn begin_wait(&mut self, now_ns: u64, share: u32, previous_ns: u64) -> bool {
        let (left_ns, size_ns) = self.refill(now_ns, share);
        self.max_frames = max_frames(left_ns, size_ns);
        left_ns > if previous_ns < LONG_WAIT_NS { size_ns / 2 } else { 0 }
    }

    /// Decides whether the stack of a wait is copied, to be unwound if the wait is long: a copy costs a tenth. `mean_ns`: the mean
    /// time that waits of the thread add to the profile. Threads whose waits add nothing leave an eighth of the bucket to the others.
    #[inline(always)]
    pub fn begin_copy(&mut self, now_ns: u64, share: u32, mean_ns: u32) -> bool {
        let (left_ns, size_ns) = self.refill(now_ns, share);
        left_ns > if mean_ns < LEAST_MEAN_NS { size_ns / 4 } else { size_ns / 8 }
    }

    /// Adds the run time that was allowed since the last call; returns the rest, and the size of the bucket.
    #[inline(always)]
    fn refill(&mut self, now_ns: u64, share: u32) -> (i64, i64) {
        let passed_ns = now_ns.saturating_sub(self.refilled_ns);
        let passed_ns = if passed_ns > MAX_REFILL_NS { MAX_REFILL_NS } else { passed_ns };
        let size_ns = allowed_ns(MAX_REFILL_NS, share);
        let left_ns = self.left_ns + allowed_ns(passed_ns, share);
        let left_ns = if left_ns > size_ns { size_ns } else { left_ns };
        self.refilled_ns = now_ns;
        self.left_ns = left_ns;
        (left_ns, size_ns)
    }

    /// The most frames of the stack of this tick or wait.
    #[inline(always)]
    #[must_use]
    pub fn max_frames(&self) -> u32 {
        self.max_frames
    }

    /// Ends a sample that took this run time. Where it was not sent, the next one has the weight of the skipped ticks.
    #[inline(always)]
    pub fn end_sample(&mut self, run_time_ns: u64, is_sent: bool) {
        let used_ns = if run_time_ns > MAX_RUN_TIME_NS { MAX_RUN_TIME_NS } else { run_time_ns };
        self.left_ns -= used_ns as i64;
        if is_sent {
            self.skipped = 0;
        }
    }
}

/// The run time that is allowed in a time.
#[inline(always)]
fn allowed_ns(time_ns: u64, share: u32) -> i64 {
    ((time_ns * share as u64) >> OVERHEAD_SHARE_BITS) as i64
}

/// In few steps: each depth makes another stack of a deep one.
#[inline(always)]
fn max_frames(left_ns: i64, size_ns: i64) -> u32 {
    if left_ns >= size_ns / 2 {
        MAX_FRAMES as u32
    } else if left_ns >= size_ns / 4 {
        MAX_FRAMES as u32 / 2
    } else if left_ns >= size_ns / 8 {
        MAX_FRAMES as u32 / 4
    } else {
        MIN_FRAMES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PERCENT: u32 = (1 << OVERHEAD_SHARE_BITS) / 50;
    const US: u64 = 1_000;
    const S: u64 = 1_000_000_000;

    /// Samples for some seconds at a frequency; `cost_ns` of a stack by its most frames. The share of the time that was
    /// used in the second half, the ticks, the sum of the weights and the least depth.
    fn run(frequency_hz: u64, seconds: u64, cost_ns: impl Fn(u32) -> u64) -> (f64, u64, u64, u32) {
        let (mut governor, mut used_ns, mut weights, mut depth) = (Governor::default(), 0, 0, u32::MAX);
        let ticks = frequency_hz * seconds;
        for tick in 0..ticks {
            let now_ns = 5 * S + tick * S / frequency_hz;
            let Some(weight) = governor.begin_sample(now_ns, TWO_PERCENT) else { continue };
            let cost_ns = cost_ns(governor.max_frames());
            governor.end_sample(cost_ns, true);
            weights += u64::from(weight);
            if tick > ticks / 2 {
                used_ns += cost_ns;
                depth = depth.min(governor.max_frames());
            }
        }
        (used_ns as f64 / (seconds * S / 2) as f64, ticks, weights, depth)
    }

    #[test]
    fn cheap_samples_are_all_taken_and_deep() {
        let (share, ticks, weights, depth) = run(999, 10, |_| 4 * US);
        assert!(share < 0.005);
        assert_eq!((weights, depth), (ticks, MAX_FRAMES as u32));
    }

    #[test]
    fn deep_stacks_are_cut_before_ticks_are_skipped() {
        let mut all = 0;
        let (share, ticks, weights, depth) = run(999, 20, |frames| u64::from(frames) * 75);
        all += weights;
        assert_eq!(all, ticks, "no tick is skipped");
        assert!((0.015..0.0205).contains(&share), "{share}");
        assert!((MIN_FRAMES..MAX_FRAMES as u32).contains(&depth), "{depth}");
    }

    #[test]
    fn expensive_samples_are_rarer_and_weigh_more() {
        let (share, ticks, weights, depth) = run(9_999, 10, |_| 75 * US);
        assert!((0.018..0.0205).contains(&share), "{share}");
        assert!(ticks - weights < 100, "{weights} of {ticks}");
        assert_eq!(depth, MIN_FRAMES);
    }

    #[test]
    fn long_waits_have_stacks_beside_a_thread_that_waits_thousands_of_times_a_second() {
        let mut governor = Governor::default();
        let (mut short, mut long) = (0, 0);
        for wait in 0..200_000_u64 {
            let now_ns = 5 * S + wait * 50 * US;
            let is_long = wait.is_multiple_of(1_000);
            let previous_ns = if is_long { 20_000 * US } else { 40 * US };
            if governor.begin_wait(now_ns, TWO_PERCENT, previous_ns) {
                governor.end_sample(5 * US, true);
                *(if is_long { &mut long } else { &mut short }) += 1;
            }
        }
        assert_eq!(long, 200, "all of them");
        let used = (short + long) as f64 * 5e3 / 10e9;
        assert!((0.018..0.022).contains(&used), "{used} of a CPU");
    }

    /// Of each thread 30 waits of 20 us come before one of 20 ms, beside a thread with 50,000 short waits a second.
    #[test]
    fn stacks_of_long_waits_that_follow_short_ones_are_copied() {
        let (mut governor, mut mean_ns) = (Governor::default(), 0);
        let (mut long, mut with_stack, mut used_ns) = (0_u64, 0_u64, 0);
        for wait in 0..500_000_u64 {
            let now_ns = 5 * S + wait * 20 * US;
            let is_mixed = wait.is_multiple_of(4);
            let is_long = is_mixed && (wait / 4).is_multiple_of(31);
            if governor.begin_wait(now_ns, TWO_PERCENT, 0) {
                governor.end_sample(5 * US, true);
                used_ns += 5 * US;
                with_stack += u64::from(is_long);
            } else if governor.begin_copy(now_ns, TWO_PERCENT, if is_mixed { mean_ns } else { 0 }) {
                governor.end_sample(US / 2, true);
                used_ns += US / 2;
                if is_long && governor.begin_wait(now_ns, TWO_PERCENT, u64::MAX) {
                    governor.end_sample(5 * US, true);
                    used_ns += 5 * US;
                    with_stack += 1;
                }
            }
            if is_mixed {
                mean_ns = next_mean_ns(mean_ns, if is_long { 20_000 * US } else { 0 });
            }
            long += u64::from(is_long);
        }
        assert!(with_stack > long * 95 / 100, "{with_stack} of {long}");
        assert!((0.015..0.023).contains(&(used_ns as f64 / 10e9)), "{used_ns} ns in 10 s");
    }

    #[test]
    fn a_thread_without_long_waits_has_a_mean_of_nothing_after_some_hundred() {
        let after_one = next_mean_ns(0, 60 * S);
        assert_eq!(u64::from(after_one), S / 32, "what a wait adds is limited");
        let mean_ns = (0..600).fold(after_one, |mean_ns, _| next_mean_ns(mean_ns, 0));
        assert!(mean_ns < LEAST_MEAN_NS);
    }

    #[test]
    fn an_earlier_time_than_the_last_one_allows_nothing() {
        let mut governor = Governor { left_ns: -1, refilled_ns: 5 * S, ..Governor::default() };
        assert!(!governor.begin_wait(5 * S - 1, TWO_PERCENT, u64::MAX));
    }

    #[test]
    fn time_in_which_the_hypervisor_did_not_run_the_cpu_is_not_charged() {
        let mut governor = Governor::default();
        assert_eq!(governor.begin_sample(5 * S, TWO_PERCENT), Some(1));
        governor.end_sample(10 * S, true);
        assert_eq!(governor.begin_sample(5 * S + 1, TWO_PERCENT), Some(1));
    }

    #[test]
    fn the_weight_of_a_sample_that_was_not_sent_goes_to_the_next_one() {
        let mut governor = Governor { left_ns: -1, refilled_ns: 5 * S, ..Governor::default() };
        assert_eq!(governor.begin_sample(5 * S, TWO_PERCENT), None);
        assert_eq!(governor.begin_sample(6 * S, TWO_PERCENT), Some(2));
        governor.end_sample(US, false);
        assert_eq!(governor.begin_sample(6 * S + 1, TWO_PERCENT), Some(2));
        governor.end_sample(US, true);
        assert_eq!(governor.begin_sample(6 * S + 2, TWO_PERCENT), Some(1));
    }
}
