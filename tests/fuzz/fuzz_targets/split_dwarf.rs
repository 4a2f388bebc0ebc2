//! ELF files whose debug information is in a `.dwo` or `.dwp` file beside them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::split_dwarf(bytes));
