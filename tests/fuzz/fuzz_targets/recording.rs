//! Recorded profiles.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler::fuzz::recording(bytes));
