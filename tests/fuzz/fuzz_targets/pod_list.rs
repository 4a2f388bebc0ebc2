//! The list of pods of a kubelet.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::pod_list(bytes));
