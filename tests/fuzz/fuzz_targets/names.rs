//! Names of functions: managed ones, and mangled ones.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::names(bytes));
