//! ELF files: headers, notes, links, symbols, and the file inside the file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::elf(bytes));
