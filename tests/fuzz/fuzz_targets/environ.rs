//! The environment of a process, as `/proc/PID/environ` has it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::environ(bytes));
