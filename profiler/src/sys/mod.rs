//! Wrappers of system calls: the only unsafe code of the user side.
#![expect(unsafe_code, reason = "system calls that no library wraps")]

pub(crate) mod allocator;
pub(crate) mod bpf;
pub(crate) mod bpf_array;
pub(crate) mod bpf_link;
pub(crate) mod capability;
pub(crate) mod command;
pub(crate) mod kernel_file;
pub(crate) mod kernel_names;
#[cfg(feature = "sandbox")]
pub(crate) mod landlock_abi;
pub(crate) mod mount_namespace;
pub(crate) mod perf;
pub(crate) mod perf_ring;
pub(crate) mod priority;
mod sysctl;
pub(crate) mod usage;
pub(crate) mod user;

pub(crate) use sysctl::sysctl;
