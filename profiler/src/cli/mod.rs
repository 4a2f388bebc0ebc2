//! The command line: arguments in, a session, outputs and a summary out.

mod advice;
mod arguments;
mod doctor;
mod duration;
mod gap;
mod outputs;
mod progress;
mod report;
mod run;
mod shape;
mod signals;
mod summary;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::arguments::Arguments;
use crate::{Error, doctor::Situation};

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
    let arguments = Arguments::parse();
    init_log(&arguments);
    match run::run(&arguments) {
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

fn init_log(arguments: &Arguments) {
    let level = match (arguments.common.quiet, arguments.common.verbose) {
        (true, _) => log::LevelFilter::Error,
        (false, 0) => log::LevelFilter::Warn,
        (false, 1) => log::LevelFilter::Info,
        (false, _) => log::LevelFilter::Debug,
    };
    let mut builder = env_logger::Builder::new();
    // What inferno returns is looked at; that there is nothing to draw, the summary says.
    builder
        .filter_level(level)
        .filter_module("inferno", log::LevelFilter::Off)
        .format_timestamp_millis()
        .init();
}
