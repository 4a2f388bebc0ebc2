//! Files of the spool of the node agent.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::spool(bytes));
