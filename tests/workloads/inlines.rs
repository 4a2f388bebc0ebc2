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

#[inline(always)]
fn alpha() -> u64 {
    spin(70_000)
}

#[inline(always)]
fn beta() -> u64 {
    spin(30_000)
}

#[inline(always)]
fn middle() -> u64 {
    alpha() ^ beta()
}

#[inline(never)]
fn outer() -> u64 {
    let mut sum = 0;
    for _ in 0..16 {
        sum ^= middle();
    }
    sum
}

#[inline(never)]
fn run(lifetime: &Lifetime) -> u64 {
    let mut sum = 0;
    while lifetime.goes_on() {
        sum ^= outer();
    }
    sum
}

fn main() {
    black_box(run(&Lifetime::begin()));
}
