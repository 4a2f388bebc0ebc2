//! The command line: arguments in, a session, outputs and a summary out.

mod advice;
mod arguments;
mod doctor;
mod duration;
mod held_log;
mod live;
mod outputs;
mod progress;
mod report;
mod run;
mod shape;
mod signals;
mod summary;

use std::process::ExitCode;

use clap::CommandFactory;

use self::{arguments::Arguments, held_log::HeldLog};
use crate::{doctor::Situation, error::Error};

/// The exit codes of the program.
mod exit {
    /// Something failed; standard error says what.
    pub(super) const FAILED: u8 = 1;
    /// No sample was taken.
    pub(super) const NO_SAMPLE: u8 = 3;
}

/// Runs the program: parses its arguments, does what they say, prints what went wrong.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::of(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let log = HeldLog::default();
    init_log(&arguments, &log);
    match run::run(&arguments, &log) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("profiler: {}", summary::one_line(&error));
            if let Some(advice) = advice_for(&error) {
                eprintln!("profiler: {advice}");
            }
            exit::FAILED.into()
        }
    }
}

/// The definition of the command line, for the man page and shell completions.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// What to do about an error of the library on this machine.
fn advice_for(error: &anyhow::Error) -> Option<String> {
    let error = error.downcast_ref::<Error>()?;
    advice::advice(error.kind(), &Situation::current())
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
        // A line for each relocation of the kernel side says nothing about a target.
        .filter_module("aya_obj", level.min(log::LevelFilter::Info))
        // What inferno returns is looked at; that there is nothing to draw, the summary says.
        .filter_module("inferno", log::LevelFilter::Off)
        .format_timestamp_millis()
        .target(env_logger::Target::Pipe(Box::new(log.clone())))
        .init();
}
