//! The text of `/proc/PID/status`, `stat`, `syscall`, `net/tcp` and `mountinfo`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::status(bytes));
