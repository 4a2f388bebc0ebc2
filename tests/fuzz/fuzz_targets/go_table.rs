//! The function tables of Go programs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::go_table(bytes));
