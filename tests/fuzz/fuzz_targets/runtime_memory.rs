//! What was read of the memory of a .NET runtime: its methods, their frames, its locks and their owners.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::runtime_memory(bytes));
