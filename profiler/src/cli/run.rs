//! What the program does, from the start of the session to the exit code.

use std::{os::unix::process::ExitStatusExt, path::Path, process::ExitStatus};

use anyhow::{Result, bail};

use super::{
    arguments::{Action, Arguments, OutputArguments, ViewArguments},
    doctor, exit,
    held_log::HeldLog,
    live,
    outputs::Outputs,
    progress, report, signals, summary,
};
use crate::Profiler;
use profiler_profile::Profile;
use profiler_profile_formats::Format;

/// Does what the arguments say, and answers with the exit code.
pub(super) fn run(arguments: &Arguments, log: &HeldLog) -> Result<u8> {
    match &arguments.action {
        Some(Action::Doctor { pid }) => doctor::run(*pid, &mut std::io::stdout().lock()),
        Some(Action::Replay { directory, output, view }) => {
            replay(directory, output, view, arguments.common.quiet)
        }
        Some(Action::Live(live)) => live::run(live, log, arguments.common.quiet),
        Some(Action::Report { recording, output, view }) => {
            report::report(recording, view, output, arguments.common.quiet)
        }
        Some(Action::Top { recording, view }) => report::top(recording, view),
        Some(Action::Diff { before, after, output, view }) => {
            report::diff(before, after, view, output, arguments.common.quiet)
        }
        None => sample(arguments),
    }
}

fn sample(arguments: &Arguments) -> Result<u8> {
    let Some(builder) = arguments.builder() else {
        bail!("nothing to sample: give -p PID, -t TID, -a, --cgroup, --container or -- COMMAND (see --help)");
    };
    let profiler = builder.build()?;
    let outputs = Outputs::open(&arguments.output, Format::Folded)?;
    let mut session = match profiler.start() {
        Ok(session) => session,
        Err(error) => {
            outputs.discard();
            return Err(error.into());
        }
    };
    signals::listen(session.stopper(), session.command_pid())?;
    progress::wait(&mut session, arguments.sampling.duration, arguments.common.quiet);
    let command = session.take_command();
    let profile = arguments.view.shape.apply(progress::stop(session, arguments.common.quiet)?);
    let code = write(&profile, outputs, arguments.common.quiet)?;
    match command {
        // What was started is not ended: its time is its own.
        Some(mut command) => Ok(match exit_code(command.wait()?) {
            0 => code,
            failed => failed,
        }),
        None => Ok(code),
    }
}

fn replay(directory: &Path, output: &OutputArguments, view: &ViewArguments, quiet: bool) -> Result<u8> {
    let profiler = view.naming.apply(Profiler::builder()).replay(directory).build()?;
    let outputs = Outputs::open(output, Format::Folded)?;
    let mut session = profiler.start()?;
    session.wait(None);
    let profile = view.shape.apply(progress::stop(session, quiet)?);
    write(&profile, outputs, quiet)
}

/// Writes a profile to all outputs, says what it holds, and answers with the exit code.
pub(super) fn write(profile: &Profile, outputs: Outputs, quiet: bool) -> Result<u8> {
    outputs.write(profile)?;
    if !quiet {
        eprint!("{}", summary::text(profile));
    }
    Ok(code_of(profile))
}

/// The exit code of a profile that was written.
pub(super) fn code_of(profile: &Profile) -> u8 {
    if profile.sample_count() == 0 { exit::NO_SAMPLE } else { 0 }
}

/// The exit code that stands for how a command ended, as a shell has it: 128 + the signal.
fn exit_code(status: ExitStatus) -> u8 {
    const SIGNALLED: i32 = 128;
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
    }
}
