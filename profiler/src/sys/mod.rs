//! Wrappers of system calls: memory, capabilities, commands, users, CPU time.
#![expect(unsafe_code, reason = "system calls that no library wraps")]

pub(crate) mod allocator;
pub(crate) mod capability;
pub(crate) mod command;
#[cfg(feature = "sandbox")]
pub(crate) mod landlock_abi;
pub(crate) mod mount_namespace;
pub(crate) mod usage;
pub(crate) mod user;
