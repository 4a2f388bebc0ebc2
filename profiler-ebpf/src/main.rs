//! Crate root of the BPF object; the entry points are in `bpf/programs.rs`.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(target_arch = "bpf")]
mod bpf;

/// The object has no use on the host: this lets host tools compile the crate.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
