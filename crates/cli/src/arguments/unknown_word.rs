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

/// The command with a name that differs by a typing error or two.
fn most_similar<'a>(word: &str, commands: &[&'a str]) -> Option<&'a str> {
    let distance = |command: &&str| strsim::osa_distance(word, command);
    let nearest = commands.iter().copied().min_by_key(distance)?;
    // Of a short name, two changes make another word.
    let max_distance = nearest.len().div_ceil(4).min(2);
    (distance(&nearest) <= max_distance).then_some(nearest)
}

fn hint(word: &str, command: &Command) -> String {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("`-p {word}` samples the process with this id");
    }
    let commands: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
    if let Some(meant) = most_similar(word, &commands) {
        return format!("did you mean `{meant}`? (commands: {})", commands.join(", "));
    }
    format!(
        "`--process {word}` samples the process with this name, `-- {word}` starts a program and samples it (commands: {})",
        commands.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_a_typing_error_is_meant_and_another_word_is_not() {
        let commands = ["doctor", "list", "live", "record", "report", "top"];
        for (word, meant) in [
            ("recrod", Some("record")),
            ("doctr", Some("doctor")),
            ("repot", Some("report")),
            ("lve", Some("live")),
            ("redis", None),
            ("postgres", None),
            ("sh", None),
        ] {
            assert_eq!(most_similar(word, &commands), meant, "{word}");
        }
    }
}
