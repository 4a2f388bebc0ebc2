//! Jitdumps, which are read while they are written.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::jitdump(bytes));
