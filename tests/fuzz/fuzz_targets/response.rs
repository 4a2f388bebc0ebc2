//! Responses of a backend to the node agent.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::response(bytes));
