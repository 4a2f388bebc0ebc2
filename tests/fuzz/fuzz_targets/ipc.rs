//! Replies of .NET runtimes to commands.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::ipc(bytes));
