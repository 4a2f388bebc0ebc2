//! The command line of the `profiler` binary: parses arguments, runs a command, prints errors with advice.

mod agent;
mod arguments;
mod byte_size;
mod command_user;
mod destination;
mod doctor;
mod duration;
mod event_log;
mod event_sets;
mod event_summary;
mod exit;
mod file_series;
mod findings_summary;
mod held_log;
mod hints;
mod incident_summary;
mod interpreter_summary;
mod list;
mod live;
mod manual;
mod nettrace_file;
mod output_file;
mod outputs;
mod progress;
mod record;
mod report;
mod run;
mod saved_profile;
mod service;
mod shape;
mod signals;
mod standard_streams;
mod sudo;
mod summary;
mod summary_details;
mod write_profile;
mod wrong_arguments;

use std::{io::Write as _, process::ExitCode};

use profiler::{Error, doctor::Situation, return_freed_memory};

pub use self::manual::write_manual;
use self::{
    arguments::Arguments,
    held_log::{HeldLog, format_record},
    standard_streams::{print_message, write_result},
    wrong_arguments::WrongArguments,
};

/// Runs the program with the arguments of this process, and returns its exit code.
///
/// Results go to standard output or to files, messages and errors to standard error.
#[must_use]
pub fn run() -> ExitCode {
    return_freed_memory();
    let arguments = match Arguments::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return print_usage(&error).into(),
    };
    let log = HeldLog::default();
    init_log(&arguments, &log);
    match signals::survive_file_size_limit().and_then(|()| run::run(&arguments, &log)) {
        Ok(code) => code.into(),
        Err(error) => print_error(&error).into(),
    }
}

/// Prints what is wrong with the arguments, or the help or version that they request. Returns the exit code.
fn print_usage(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        // Without a reader of messages, the exit code is the same.
        let _ = error.print();
        return exit::WRONG_ARGUMENTS;
    }
    match write_result(|_| error.print()) {
        Ok(()) => 0,
        Err(error) => print_error(&error),
    }
}

/// Prints an error with advice, and returns its exit code.
fn print_error(error: &anyhow::Error) -> u8 {
    print_message(&format!("{error:#}"));
    if let Some(advice) = advice_for(error) {
        print_message(&advice);
    }
    if WrongArguments::is_cause_of(error) { exit::WRONG_ARGUMENTS } else { exit::FAILED }
}

/// Advice on an error of the library, for the state of this machine.
fn advice_for(error: &anyhow::Error) -> Option<String> {
    let error = error.downcast_ref::<Error>()?;
    Situation::current().advice(error.kind())
}

fn init_log(arguments: &Arguments, log: &HeldLog) {
    let level = match (arguments.common.quiet, arguments.common.verbose) {
        (true, _) => log::LevelFilter::Error,
        (false, 0) => log::LevelFilter::Warn,
        (false, 1) => log::LevelFilter::Info,
        (false, _) => log::LevelFilter::Debug,
    };
    env_logger::Builder::new()
        .filter_level(level)
        // aya logs each relocation of the BPF object at debug level.
        .filter_module("aya_obj", level.min(log::LevelFilter::Info))
        // inferno logs an error for an empty profile, which the summary already reports.
        .filter_module("inferno", log::LevelFilter::Off)
        .format(|to, record| {
            let time = to.timestamp_millis();
            writeln!(to, "{}", format_record(&time, record))
        })
        .target(env_logger::Target::Pipe(Box::new(log.clone())))
        .init();
}
