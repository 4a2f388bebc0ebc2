//! Wrappers of system calls: bpf(2), perf_event_open(2), their buffers, and priorities of threads.
#![expect(unsafe_code, reason = "system calls that no library wraps")]

pub(crate) mod bpf;
pub(crate) mod bpf_array;
pub(crate) mod bpf_link;
pub(crate) mod kernel_file;
pub(crate) mod kernel_names;
pub(crate) mod perf;
pub(crate) mod perf_ring;
pub(crate) mod priority;
mod sysctl;

pub(crate) use sysctl::read_number;
pub use sysctl::sysctl;
