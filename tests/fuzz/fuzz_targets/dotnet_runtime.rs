//! The data structures of a .NET runtime in the memory of its process.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::dotnet_runtime(bytes));
