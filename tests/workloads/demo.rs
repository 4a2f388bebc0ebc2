//! The workload of `cargo xtask run`: word counting, prime search and sorting, on two threads.

mod lifetime;

use std::{collections::HashMap, hint::black_box, thread};

use lifetime::Lifetime;

#[inline(never)]
fn make_text(seed: u64) -> String {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("word{}", state >> 54)
    };
    (0..2_000).map(|_| word() + " ").collect()
}

#[inline(never)]
fn count_words(text: &str) -> HashMap<&str, u32> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

#[inline(never)]
fn sort_by_count(counts: HashMap<&str, u32>) -> Vec<(&str, u32)> {
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by_key(|(word, count)| (u32::MAX - count, *word));
    sorted
}

#[inline(never)]
fn is_prime(number: u64) -> bool {
    (2..).take_while(|divisor| divisor * divisor <= number).all(|divisor| !number.is_multiple_of(divisor))
}

#[inline(never)]
fn find_primes(from: u64) -> usize {
    (from..from + 200).filter(|number| is_prime(*number)).count()
}

#[inline(never)]
fn words(lifetime: &Lifetime) {
    for seed in (0..).take_while(|_| lifetime.goes_on()) {
        black_box(sort_by_count(count_words(&make_text(seed))));
    }
}

#[inline(never)]
fn primes(lifetime: &Lifetime) {
    for round in (0..).take_while(|_| lifetime.goes_on()) {
        black_box(find_primes(1_000_000_000 + round % 1_000));
    }
}

fn main() {
    let lifetime = Lifetime::begin();
    thread::scope(|scope| {
        scope.spawn(|| words(&lifetime));
        primes(&lifetime);
    });
}
