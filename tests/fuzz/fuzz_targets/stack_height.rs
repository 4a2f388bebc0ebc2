//! Unwind rows from machine code.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::stack_height(bytes));
