//! Hints for a word that is neither a command nor an option: most often it is meant as the target.

use clap::{
    Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The error with a hint where an unexpected word can be a target.
pub(super) fn with_hint(error: Error, command: &mut Command) -> Error {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) if !word.starts_with('-') => {
            let message = format!("unexpected argument `{word}`: {}", hint(word, command));
            command.error(error.kind(), message)
        }
        _ => error,
    }
}

fn hint(word: &str, command: &Command) -> String {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("`-p {word}` samples the process with this id");
    }
    let commands: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
    format!(
        "`--process {word}` samples the process with this name, `-- {word}` starts a program and samples it (commands: {})",
        commands.join(", ")
    )
}
