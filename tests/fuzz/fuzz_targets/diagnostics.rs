//! Conversations with .NET runtimes, which answer with bytes and with file descriptors.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::diagnostics(bytes));
