//! The `OTEL_*` variables of an exporter.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::otel_environment(bytes));
