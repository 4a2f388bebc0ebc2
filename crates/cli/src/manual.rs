//! Man pages and shell completions from the definition of the command line.

use std::{fs, io, path::Path};

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use super::{
    arguments::{Arguments, CompletedShell},
    standard_streams::write_result,
    wrong_arguments::WrongArguments,
};

/// Writes the man pages of all commands and completions for bash, fish and zsh into `folder`, which is created.
///
/// # Errors
/// The folder or a file cannot be created or written.
pub fn write_manual(folder: &Path) -> io::Result<()> {
    let mut command = definition();
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "profiler", folder)?;
    }
    clap_mangen::generate_to(command, folder)
}

/// `profiler completions`: prints the completions of a shell.
pub(super) fn print_completions(shell: CompletedShell) -> Result<()> {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(), "profiler", &mut text);
    write_result(|to| to.write_all(&text))
}

/// `profiler man`: prints the man page of sampling, or that of a command.
pub(super) fn print_man_page(command: Option<&str>) -> Result<()> {
    let page = clap_mangen::Man::new(described(command)?);
    write_result(|to| page.render(to))
}

fn described(name: Option<&str>) -> Result<Command> {
    let mut definition = definition();
    let Some(name) = name else { return Ok(definition) };
    definition.build();
    let unknown = || WrongArguments::new(format!("the profiler has no command `{name}`"));
    Ok(definition.find_subcommand(name).cloned().ok_or_else(unknown)?)
}

fn definition() -> Command {
    Arguments::definition().disable_help_subcommand(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_man_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        write_manual(folder.path()).unwrap();
        for name in [
            "profiler.1",
            "profiler-doctor.1",
            "profiler-diff.1",
            "profiler.bash",
            "_profiler",
            "profiler.fish",
        ] {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(text.contains("profiler"), "{name}");
        }
    }

    #[test]
    fn the_man_page_of_a_command_is_found_by_its_name() {
        assert_eq!(described(None).unwrap().get_name(), "profiler");
        assert_eq!(described(Some("record")).unwrap().get_name(), "record");
        assert!(WrongArguments::is_cause_of(&described(Some("recrod")).unwrap_err()));
    }
}
