//! Generic functions and closures in an optimized Rust program: main > run > sum_with::<Small> > <Small as
//! Visit>::visit and a closure, and the same with the type Large.

#[path = "../lifetime.rs"]
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

trait Visit {
    fn visit(&self, number: u64) -> u64;
}

struct Small(u64);

struct Large([u64; 32]);

impl Visit for Small {
    #[inline(never)]
    fn visit(&self, number: u64) -> u64 {
        spin(20_000) ^ self.0 ^ number
    }
}

impl Visit for Large {
    #[inline(never)]
    fn visit(&self, number: u64) -> u64 {
        let copy = black_box(self.0);
        spin(20_000) ^ copy[(number % 32) as usize]
    }
}

#[inline(never)]
fn sum_with<V: Visit>(visitor: &V, weigh: &dyn Fn(u64) -> u64) -> u64 {
    let weigh = black_box(weigh);
    let numbers: Vec<u64> = (0..black_box(8)).collect();
    numbers.iter().map(|number| weigh(visitor.visit(*number))).fold(0, u64::wrapping_add)
}

#[inline(never)]
fn run(lifetime: &Lifetime) -> u64 {
    let mut sum = 0;
    while lifetime.goes_on() {
        sum ^= sum_with(&Small(sum), &|number| spin(20_000) ^ number);
        sum ^= sum_with(&Large([sum; 32]), &|number| spin(20_000).wrapping_add(number));
    }
    sum
}

fn main() {
    black_box(run(&Lifetime::begin()));
}
