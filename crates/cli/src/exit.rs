//! The exit codes of the program.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use profiler_profile::Profile;

use super::signals;

/// An operation failed; standard error has the reason.
pub(super) const FAILED: u8 = 1;
/// The arguments are wrong.
pub(super) const WRONG_ARGUMENTS: u8 = 2;
/// No sample was taken.
pub(super) const NO_SAMPLE: u8 = 3;
/// A recorder of `--follow` has ended with its target, or has not found it.
pub(super) const TARGET_ENDED: u8 = 4;

/// The exit code after a profile was written.
pub(super) fn code_of(profile: &Profile) -> u8 {
    let is_empty = profile.samples().is_empty() && profile.runtime_events().is_empty();
    if is_empty { NO_SAMPLE } else { 0 }
}

/// The exit code of a command as shells compute it: 128 + the signal number if a signal ended it.
pub(super) fn code_of_command(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| signals::SIGNAL_EXIT_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_commands_are_those_that_shells_compute() {
        assert_eq!(code_of_command(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code_of_command(ExitStatus::from_raw(9)), 137);
        assert_eq!(code_of_command(ExitStatus::from_raw(0)), 0);
    }
}
