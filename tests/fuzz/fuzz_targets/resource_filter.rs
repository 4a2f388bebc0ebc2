//! The filter of resources of the node agent.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::resource_filter(bytes));
