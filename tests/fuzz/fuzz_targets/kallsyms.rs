//! The text of `/proc/kallsyms`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::kallsyms(bytes));
