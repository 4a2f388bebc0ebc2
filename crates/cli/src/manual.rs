//! Writes man pages and shell completions from the definition of the command line.

use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_complete::Shell;

use super::arguments::Arguments;

/// Writes the man pages of all commands and completions for bash, fish and zsh into `folder`, which is created.
///
/// # Errors
/// The folder or a file cannot be created or written.
pub fn write_manual(folder: &Path) -> io::Result<()> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "profiler", folder)?;
    }
    clap_mangen::generate_to(command, folder)
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
}
