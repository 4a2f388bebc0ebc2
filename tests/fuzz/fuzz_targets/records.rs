//! Decodes records of the ring buffer and sideband events.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::records(bytes));
