//! `cargo xtask picture`: draws the flame graph of the README, of an ASP.NET Core server in a container.

#![cfg(feature = "commands")]

use std::{fs, path::PathBuf};

use anyhow::Result;
use clap::Args;

use crate::{
    bench::dotnet::running::{Place, Program, Running},
    project, setup, shell, static_binary, workloads,
};

/// Draw the README's flame graph again.
#[derive(Args)]
pub(crate) struct Picture {
    /// Where to write it.
    #[arg(default_value = "docs/pictures/flame-graph.svg")]
    file: PathBuf,
}

const SERVER: Program = Program::Server { paths: &["/orders", "/json", "/plaintext"] };

impl Picture {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::EndToEnd])?;
        workloads::build()?;
        let profiler = static_binary::build(static_binary::QUICK)?;
        let folder = project::root().join("target/picture");
        fs::create_dir_all(&folder)?;
        let server = Running::start(SERVER, Place::Container, &folder)?;
        let mut command = shell::as_root(profiler);
        command.args(["-p", &server.pid().to_string(), "-d", "10", "-o"]).arg(&self.file);
        shell::run(&mut command)
    }
}
