//! The events of a capture, and the methods that runtimes reported in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::capture(bytes));
