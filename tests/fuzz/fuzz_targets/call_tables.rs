//! Call tables of .NET runtimes, and the relocations by which they are found.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::call_tables(bytes));
