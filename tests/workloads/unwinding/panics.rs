//! Rust panics that are caught: main > run > risky > fails > the unwinder of the panic. As with exceptions,
//! additional work makes samples rare in which the unwinder has overwritten its own frame.

#[path = "../lifetime.rs"]
mod lifetime;

use std::{hint::black_box, panic};

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

/// A value whose destructor runs during unwinding.
struct Guard(u64);

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(spin(self.0));
    }
}

#[inline(never)]
fn fails(number: u64) -> u64 {
    let state = spin(number);
    assert!(black_box(number) == u64::MAX, "as expected");
    state
}

#[inline(never)]
fn risky(number: u64) -> u64 {
    let guard = Guard(number);
    fails(number) ^ guard.0
}

#[inline(never)]
fn run(lifetime: &Lifetime) -> u64 {
    let mut failures = 0;
    while lifetime.goes_on() {
        failures += u64::from(panic::catch_unwind(|| risky(40_000)).is_err());
    }
    failures
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    black_box(run(&Lifetime::begin()));
}
