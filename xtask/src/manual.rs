//! `cargo xtask manual`: writes man pages and shell completions from the definition of the command line.
//!
//! Only this command depends on the profiler, by a feature: the others must work while the profiler does not compile.

#![cfg(feature = "commands")]

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
        profiler_cli::write_manual(&self.folder)?;
        println!("man pages and completions: {}", self.folder.display());
        Ok(())
    }

    #[cfg(not(feature = "manual"))]
    pub(crate) fn run(&self) -> Result<()> {
        // The whole workspace, so that its dependencies are compiled with the features of other builds.
        crate::workspace::build("--quiet --workspace --bin xtask --features xtask/manual")?;
        let mut xtask = std::process::Command::new(crate::project::root().join("target/debug/xtask"));
        crate::shell::run(xtask.arg("manual").arg(&self.folder))
    }
}
