//! The events of a capture, and what runtimes told in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::capture(bytes));
