//! The text of `/proc/PID/mountinfo` and `cgroup`, and the configurations of container runtimes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_fuzz::cgroups(bytes));
