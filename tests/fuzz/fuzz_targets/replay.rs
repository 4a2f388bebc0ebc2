//! Whole captures: a directory of events, entries of `/proc` and files, which is replayed.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::replay(bytes));
