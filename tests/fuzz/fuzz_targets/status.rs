//! The text of `/proc/PID/status` and `stat`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::status(bytes));
