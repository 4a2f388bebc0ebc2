//! The text of `/proc/PID/maps`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::maps(bytes));
