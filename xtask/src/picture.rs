//! `cargo xtask picture`: draws the flame graphs of the README, of an ASP.NET Core server whose runtime has no symbols.

#![cfg(feature = "commands")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;

use crate::{
    bench::dotnet::running::{Place, Program, Running},
    project, setup, shell, static_binary, workloads,
};

/// Draw the README's flame graphs again.
#[derive(Args)]
pub(crate) struct Picture {
    /// The folder to write them to.
    #[arg(default_value = "docs/pictures")]
    folder: PathBuf,
}

const PATHS: &[&str] = &["/orders", "/json", "/plaintext"];

/// The server in a container, after a warm-up.
const WARM: &str = "flame-graph.svg";

/// The first seconds of the server on the host, in which its runtime has most to do.
const COLD: &str = "runtime.svg";
const COLD_PATHS: &[&str] = &["/json", "/plaintext"];
const COLD_OPTIONS: [&str; 7] = ["-F", "499", "-d", "3", "--dotnet-compilations", "--min-share", "0.3%"];

impl Picture {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::EndToEnd])?;
        workloads::build()?;
        let profiler = static_binary::build(static_binary::QUICK)?;
        let folder = project::root().join("target/picture");
        fs::create_dir_all(&folder)?;
        let server = Running::start(Program::Server { paths: PATHS }, Place::Container, &folder)?;
        draw(&profiler, &server, &["-d", "10"], &self.folder.join(WARM))?;
        drop(server);
        let server = Running::start_cold(COLD_PATHS, &folder)?;
        draw(&profiler, &server, &COLD_OPTIONS, &self.folder.join(COLD))
    }
}

fn draw(profiler: &Path, server: &Running, options: &[&str], picture: &Path) -> Result<()> {
    let mut command = shell::as_root(profiler);
    command.args(["-p", &server.pid().to_string()]).args(options).arg("-o").arg(picture);
    shell::run(&mut command)
}
