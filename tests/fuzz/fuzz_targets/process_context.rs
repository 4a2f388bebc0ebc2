//! The process context of OpenTelemetry in the memory of a process.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::process_context(bytes));
