//! System calls without a safe wrapper in `std` or `rustix`.
#![expect(unsafe_code, reason = "system calls that no library wraps")]

pub(crate) mod peer;
