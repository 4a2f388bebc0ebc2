//! Inlined calls with known shares: main > run > outer > middle (inlined) > alpha (inlined) 70 %, beta (inlined) 30 %.
//!
//! All samples are in `outer` by symbols. The other functions are only in the debug information.

mod lifetime;

use std::hint::black_box;

use lifetime::Lifetime;

/// A chain of dependent multiplications, a few cycles a step.
#[inline(always)]
fn spin(steps: u64) -> u64 {
    let mut state = steps;
    for _ in 0..steps {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    state
}

/// A random number from half the mean to one and a half, by xorshift64 (Marsaglia, "Xorshift RNGs", 2003). Rounds of
/// constant length can be in step with the sampling timer, which then finds the same functions again and again.
#[inline(never)]
fn varied(state: &mut u64, mean: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    mean / 2 + *state % mean
}

#[inline(always)]
fn alpha(unit: u64) -> u64 {
    spin(7 * unit)
}

#[inline(always)]
fn beta(unit: u64) -> u64 {
    spin(3 * unit)
}

#[inline(always)]
fn middle(unit: u64) -> u64 {
    alpha(unit) ^ beta(unit)
}

#[inline(never)]
fn outer(state: &mut u64) -> u64 {
    let mut sum = 0;
    for _ in 0..16 {
        sum ^= middle(varied(state, 10_000));
    }
    sum
}

#[inline(never)]
fn run(lifetime: &Lifetime) -> u64 {
    let (mut sum, mut state) = (0, 88_172_645_463_325_252);
    while lifetime.goes_on() {
        sum ^= outer(&mut state);
    }
    sum
}

fn main() {
    black_box(run(&Lifetime::begin()));
}
