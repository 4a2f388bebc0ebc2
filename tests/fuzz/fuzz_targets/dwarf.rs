//! ELF files whose debug information is asked for inlined functions and lines.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::dwarf(bytes));
