//! The command line: flags to a profiler, errors to advice.

pub(crate) mod advice;
pub(crate) mod doctor;
