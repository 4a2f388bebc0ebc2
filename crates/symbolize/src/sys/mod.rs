//! System calls that no library wraps.
#![expect(unsafe_code, reason = "system calls that no library wraps")]

pub(crate) mod peer;
