//! Records of the ring buffer and of the side band.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::records(bytes));
