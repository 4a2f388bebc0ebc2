//! Errors of the command line itself, which end the program with an exit code of their own.

use std::{error::Error as StdError, fmt};

use profiler::{Builder, Error, ErrorKind, Profiler};

/// Arguments that are wrong on each machine, or contradict each other.
#[derive(Debug)]
pub(super) struct WrongArguments(String);

impl WrongArguments {
    /// The error with this message.
    pub(super) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }

    /// Whether this is the cause of an error.
    pub(super) fn is_cause_of(error: &anyhow::Error) -> bool {
        error.chain().any(|cause| cause.is::<Self>())
    }
}

impl fmt::Display for WrongArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for WrongArguments {}

/// Checks the settings that the arguments select.
///
/// # Errors
/// [`WrongArguments`] for an invalid setting.
pub(super) fn build(builder: Builder) -> anyhow::Result<Profiler> {
    builder.build().map_err(|error: Error| match error.kind() {
        ErrorKind::InvalidInput => WrongArguments::new(error).into(),
        _ => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use profiler::Target;

    #[test]
    fn settings_that_no_machine_accepts_are_wrong_arguments_and_missing_targets_are_not() {
        let builder = || Profiler::builder().target(Target::Pid(1));
        let error = build(builder().frequency_hz(0)).unwrap_err().context("failed");
        assert!(WrongArguments::is_cause_of(&error), "{error:#}");
        // The highest id of Linux (`PID_MAX_LIMIT` of include/linux/threads.h) is below it.
        let missing = builder().target(Target::Pid(u32::MAX >> 1)).build().unwrap();
        let error = missing.find_target().context("failed").unwrap_err();
        assert!(!WrongArguments::is_cause_of(&error));
    }
}
