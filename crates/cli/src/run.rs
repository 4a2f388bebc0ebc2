//! Runs the selected command: samples, replays or hands over to `doctor`, `live`, `record`, `agent`, `report`, `top` and
//! `diff`.

use std::path::Path;

use anyhow::{Result, bail};
use profiler::{Profiler, proc_mount, sandbox};

use super::{
    agent,
    arguments::{Action, Arguments, CommonArguments, NO_TARGET, OutputArguments, ViewArguments},
    doctor, exit,
    held_log::HeldLog,
    hints, list, live, manual,
    nettrace_file::NettraceFile,
    outputs::Outputs,
    print_error, progress, record,
    report::{self, After},
    saved_profile,
    shape::ShapedProfile,
    signals,
    standard_streams::print_message,
    write_profile::{write, write_event},
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
        Some(Action::Completions { shell }) => manual::print_completions(*shell).map(|()| 0),
        Some(Action::Man { command }) => manual::print_man_page(command.as_deref()).map(|()| 0),
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
        Some(Action::Diff { before, after, with, output, view }) => {
            let after = after.as_deref().map_or(After::Time(with.unwrap_or_default()), After::Profile);
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
    let limit = arguments.sampling.duration;
    let ended = progress::wait(&mut session, limit, arguments.common.quiet);
    let command = session.take_command();
    let profile = progress::stop(session, arguments.common.quiet)?;
    let shaped = arguments.view.shape.of(&profile);
    let code = write_session(&shaped, outputs, nettrace, &arguments.common);
    if !arguments.common.quiet {
        let early_end = hints::of_early_end(ended, limit, &shaped.data);
        let silent_providers = hints::of_silent_providers(arguments.event_providers(), &shaped.data);
        early_end.iter().chain(&silent_providers).for_each(|hint| print_message(hint));
    }
    match command {
        // The command is not ended with the session: `-d` limits sampling only.
        Some(mut command) => Ok(match exit::code_of_command(command.wait()?) {
            0 => code,
            failed => failed,
        }),
        None => Ok(code),
    }
}

/// Writes what a session has measured to all outputs, and prints what fails: no failure keeps another output from being
/// written, because what was measured cannot be measured again. Returns the exit code.
fn write_session(
    profile: &ShapedProfile<'_>,
    outputs: Outputs,
    nettrace: Option<NettraceFile>,
    common: &CommonArguments,
) -> u8 {
    let rights = sandbox::restore_file_rights().map_err(anyhow::Error::from).err();
    let (event, unknown_event) = match profile.event() {
        Ok(event) => (event, None),
        Err(error) => (profile.data.default_event(), Some(error)),
    };
    let written = write_event(profile, event, outputs, common);
    let (is_lost, failure) = (written.has_none(), written.into_result().err());
    let stream = nettrace.and_then(|file| file.write().err());
    let failures: Vec<_> = [rights, unknown_event, failure, stream].into_iter().flatten().collect();
    let code = failures.iter().map(print_error).max();
    if is_lost {
        match saved_profile::save(profile.whole) {
            Ok(message) => print_message(&message),
            Err(error) => print_message(&format!("the profile is lost: {error:#}")),
        }
    }
    code.unwrap_or_else(|| exit::code_of(&profile.data))
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
    let profile = progress::stop(session, common.quiet)?;
    write(&view.shape.of(&profile), outputs, common)
}
