//! `cargo xtask manual`: man pages and shell completions, made from the command line's own definition.
//!
//! Only this command knows the profiler, by a feature: all others must work while the profiler does not compile.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

/// Write man pages and shell completions.
#[derive(Args)]
pub(crate) struct Manual {
    /// Where to write them.
    #[arg(default_value = "target/manual")]
    pub(crate) folder: PathBuf,
}

impl Manual {
    #[cfg(feature = "manual")]
    pub(crate) fn run(&self) -> Result<()> {
        use clap_complete::Shell;

        let mut command = profiler::cli::command().disable_help_subcommand(true);
        std::fs::create_dir_all(&self.folder)?;
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            clap_complete::generate_to(shell, &mut command, "profiler", &self.folder)?;
        }
        clap_mangen::generate_to(command, &self.folder)?;
        println!("man pages and completions: {}", self.folder.display());
        Ok(())
    }

    #[cfg(not(feature = "manual"))]
    pub(crate) fn run(&self) -> Result<()> {
        let mut cargo = std::process::Command::new("cargo");
        cargo.args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "xtask",
            "--features",
            "manual",
            "--",
            "manual",
        ]);
        crate::shell::run(cargo.arg(&self.folder))
    }
}
