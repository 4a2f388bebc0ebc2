//! .NET images with precompiled code.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::readytorun(bytes));
