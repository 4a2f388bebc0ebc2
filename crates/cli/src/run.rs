//! Runs the selected command: samples, replays or hands over to `doctor`, `live`, `record`, `agent`, `report`, `top` and
//! `diff`.

use std::{borrow::Cow, os::unix::process::ExitStatusExt, path::Path, process::ExitStatus};

use anyhow::{Result, bail};
use profiler::{Profiler, proc_mount, sandbox};
use profiler_profile::{EventId, Profile};

use super::{
    agent,
    arguments::{Action, Arguments, CommonArguments, NO_TARGET, OutputArguments, ViewArguments},
    doctor, exit,
    held_log::HeldLog,
    list, live,
    nettrace_file::NettraceFile,
    outputs::{Outputs, WrittenOutputs},
    print_error, progress, record, report, saved_profile,
    shape::ShapeArguments,
    signals,
    standard_streams::{print_message, print_messages},
    summary,
    wrong_arguments::{self, WrongArguments},
};

/// Runs the command that the arguments select, and returns the exit code.
pub(super) fn run(arguments: &Arguments, log: &HeldLog) -> Result<u8> {
    if arguments.reads_processes() {
        proc_mount::mount_own();
    }
    if arguments.samples() {
        proc_mount::check()?;
    }
    match &arguments.action {
        Some(Action::Doctor { pid }) => doctor::run(*pid),
        Some(Action::List { pattern }) => {
            list::run(pattern.as_deref())?;
            Ok(0)
        }
        Some(Action::Replay { directory, output, view }) => {
            replay(directory, output, view, &arguments.common)
        }
        Some(Action::Record(record)) => record::run(record, &arguments.common),
        Some(Action::Agent(agent)) => agent::run(agent, &arguments.common),
        Some(Action::Live(live)) => live::run(live, log, &arguments.common),
        Some(Action::Report { recording, output, view }) => {
            report::report(recording, view, output, &arguments.common)
        }
        Some(Action::Top { recording, view }) => report::top(recording, view, &arguments.common),
        Some(Action::Diff { before, after, output, view }) => {
            report::diff(before, after, view, output, &arguments.common)
        }
        None => sample(arguments),
    }
}

fn sample(arguments: &Arguments) -> Result<u8> {
    let Some(builder) = arguments.builder() else {
        bail!(WrongArguments::new(NO_TARGET));
    };
    let builder = builder.sandbox(!arguments.common.no_sandbox);
    let nettrace = NettraceFile::open(&arguments.output)?;
    let builder = nettrace.iter().fold(builder, |builder, file| builder.event_stream(file.stream()));
    let profiler = wrong_arguments::build(arguments.apply_user(builder, arguments.common.quiet)?)?;
    let outputs = Outputs::for_session(&arguments.output)?;
    let mut session = profiler.start()?;
    signals::listen(signals::OF_SESSION, session.stopper(), session.command_pid())?;
    progress::wait(&mut session, arguments.sampling.duration, arguments.common.quiet);
    let command = session.take_command();
    let profile = arguments.view.shape.apply(progress::stop(session, arguments.common.quiet)?);
    let code = write_session(&profile, &arguments.view.shape, outputs, nettrace, arguments.common.quiet);
    match command {
        // The command is not ended with the session: `-d` limits sampling only.
        Some(mut command) => Ok(match exit_code(command.wait()?) {
            0 => code,
            failed => failed,
        }),
        None => Ok(code),
    }
}

/// Writes what a session has measured to all outputs, and prints what fails: no failure keeps another output from being
/// written, because what was measured cannot be measured again. Returns the exit code.
fn write_session(
    profile: &Profile,
    shape: &ShapeArguments,
    outputs: Outputs,
    nettrace: Option<NettraceFile>,
    quiet: bool,
) -> u8 {
    let rights = sandbox::restore_file_rights().map_err(anyhow::Error::from).err();
    let (event, unknown_event) = match shape.event(profile) {
        Ok(event) => (event, None),
        Err(error) => (profile.default_event(), Some(error)),
    };
    let written = write_event(profile, shape, event, outputs, quiet);
    let (is_lost, failure) = (written.has_none(), written.into_result().err());
    let stream = nettrace.and_then(|file| file.write().err());
    let failures: Vec<_> = [rights, unknown_event, failure, stream].into_iter().flatten().collect();
    let code = failures.iter().map(print_error).max();
    if is_lost {
        match saved_profile::save(profile) {
            Ok(message) => print_message(&message),
            Err(error) => print_message(&format!("the profile is lost: {error:#}")),
        }
    }
    code.unwrap_or_else(|| code_of(profile))
}

fn replay(
    directory: &Path,
    output: &OutputArguments,
    view: &ViewArguments,
    common: &CommonArguments,
) -> Result<u8> {
    let profiler = wrong_arguments::build(view.symbols.apply(Profiler::builder()).replay(directory))?;
    let outputs = Outputs::for_profile(output)?;
    outputs.confine(common, view.symbols.uses_servers())?;
    let mut session = profiler.start()?;
    session.wait(None);
    let profile = view.shape.apply(progress::stop(session, common.quiet)?);
    write(&profile, &view.shape, outputs, common.quiet)
}

/// Writes a profile to all outputs and its summary to standard error, and returns the exit code.
pub(super) fn write(profile: &Profile, shape: &ShapeArguments, outputs: Outputs, quiet: bool) -> Result<u8> {
    write_event(profile, shape, shape.event(profile)?, outputs, quiet).into_result()?;
    Ok(code_of(profile))
}

/// Writes a profile to all outputs, those of a single event with this one, and its summary to standard error.
fn write_event(
    profile: &Profile,
    shape: &ShapeArguments,
    event: EventId,
    outputs: Outputs,
    quiet: bool,
) -> WrittenOutputs {
    let hint = outputs.hint();
    let view = if outputs.has_views() { shape.view(profile) } else { Cow::Borrowed(profile) };
    let written = outputs.write(profile, &view, event);
    if !quiet {
        print_messages(&summary::text(profile, &view));
        if let Some(hint) = hint {
            print_message(hint);
        }
    }
    written
}

/// The exit code after a profile was written.
pub(super) fn code_of(profile: &Profile) -> u8 {
    let is_empty = profile.samples().is_empty() && profile.runtime_events().is_empty();
    if is_empty { exit::NO_SAMPLE } else { 0 }
}

/// The exit code of a command as shells compute it: 128 + the signal number if a signal ended it.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| signals::SIGNAL_EXIT_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_commands_are_those_that_shells_compute() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
    }
}
