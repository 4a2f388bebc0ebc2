//! What a .NET image states of the frames of its code, in the image and bare.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::unwind_info(bytes));
