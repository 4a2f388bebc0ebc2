//! Single-file .NET programs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::bundle(bytes));
