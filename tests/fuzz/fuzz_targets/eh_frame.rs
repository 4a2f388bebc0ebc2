//! Call frame information, as an ELF file and as a bare section.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::eh_frame(bytes));
