//! The events of a capture.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler::fuzz::capture(bytes));
