//! Starts a .NET program under load, on the host or in a container.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{
    super::target::{SECONDS, Target},
    load::{Load, serve},
};
use crate::{
    container::{Container, DOTNET},
    workloads,
};

/// A program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The workload with this version of the runtime, in this mode.
    App { version: &'static str, mode: &'static str },
    /// The ASP.NET Core workload, with requests to these paths in turns.
    Server { paths: &'static [&'static str] },
    /// The ASP.NET Core workload that has 10,000 methods and both frameworks.
    Many,
    /// The workload as a single-file program, in this mode.
    SingleFile { mode: &'static str },
}

impl Program {
    /// The server with the two cheapest routes, which its load keeps busy.
    pub(crate) const SERVER: Self = Self::Server { paths: &["/plaintext", "/json"] };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Container,
}

/// A running program. Dropping it stops all of it.
pub(crate) struct Running {
    load: Option<Load>,
    target: Target,
    port: Option<u16>,
    // Dropped after the programs in it.
    _container: Option<Container>,
}

impl Running {
    /// Starts a program with its load, a server after a warm-up. Its environment is unchanged.
    pub(crate) fn start(program: Program, place: Place, folder: &Path) -> Result<Self> {
        Self::start_idle(program, place, None, folder)?.with_load(program)
    }

    /// Starts a server on the host, and its load at once: it compiles its methods under load.
    pub(crate) fn start_cold(paths: &'static [&'static str], folder: &Path) -> Result<Self> {
        let mut server = Self::start_idle(Program::Server { paths }, Place::Host, None, folder)?;
        server.load = Some(Load::begin(server.port()?, paths)?);
        Ok(server)
    }

    /// The same on the host, with this value of `PerfMapEnabled`.
    pub(crate) fn start_mapped(program: Program, perf_map: &str, folder: &Path) -> Result<Self> {
        Self::start_idle(program, Place::Host, Some(perf_map), folder)?.with_load(program)
    }

    /// Starts a program. A server has no load yet.
    pub(crate) fn start_idle(
        program: Program,
        place: Place,
        perf_map: Option<&str>,
        folder: &Path,
    ) -> Result<Self> {
        let dotnet = workloads::output_folder().join("dotnet");
        let is_built = !matches!(program, Program::SingleFile { .. }) || dotnet.join(SINGLE_FILE).exists();
        ensure!(is_built, "not built");
        // The old prefix, which every version reads.
        let perf_map = perf_map.map(|value| format!("COMPlus_PerfMapEnabled={value}"));
        let variables: Vec<String> = perf_map.into_iter().collect();
        let container = match place {
            Place::Host => None,
            Place::Container => {
                Some(Container::new(folder, &dotnet, &program.arguments(Path::new(DOTNET)), &variables)?)
            }
        };
        let mut command = match &container {
            Some(container) => container.command(),
            None => on_host(&program.arguments(&dotnet), &variables)?,
        };
        // A server watches all files below its folder, and compiles what handles a change: the bench writes none there.
        command.current_dir(&dotnet);
        let mut target = Target::from_command(&mut command)?;
        if let Some(container) = &container {
            target.is_in(container)?;
        }
        let port = if matches!(program, Program::Server { .. }) { Some(port(&mut target)?) } else { None };
        Ok(Self { load: None, target, port, _container: container })
    }

    fn with_load(mut self, program: Program) -> Result<Self> {
        const WARM_UP_SECONDS: u64 = 4;
        let Program::Server { paths } = program else { return Ok(self) };
        // First the methods are compiled, then hot ones once more.
        serve(self.port()?, paths, WARM_UP_SECONDS)?;
        self.load = Some(Load::begin(self.port()?, paths)?);
        Ok(self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// The port of a server.
    pub(crate) fn port(&self) -> Result<u16> {
        self.port.context("it is no server")
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// For programs that answer to lines.
    pub(crate) fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server does not exit while it has open connections.
        self.load = None;
        self.target.ask_to_end();
    }
}

/// The name of the single-file workload.
const SINGLE_FILE: &str = "single-file";

impl Program {
    /// Program and arguments, with the .NET workloads in `folder`.
    fn arguments(self, folder: &Path) -> Vec<String> {
        let in_folder = |path: &str| folder.join(path).to_string_lossy().into_owned();
        let managed = |version: &str, config: &str, program: &str, mode: &str| {
            let launcher = in_folder(&format!("{version}/dotnet"));
            let config = in_folder(&format!("app/{config}.json"));
            let program = in_folder(&format!("app/{program}.dll"));
            let words = ["exec", "--runtimeconfig", &config, &program, mode, SECONDS].map(str::to_owned);
            [launcher].into_iter().chain(words).collect()
        };
        match self {
            Self::App { version, mode } => managed(version, version, "app", mode),
            Self::Server { .. } => managed("9.0", "aspnet", "web", "serve"),
            Self::Many => managed("9.0", "aspnet", "web", "many"),
            Self::SingleFile { mode } => [&in_folder(SINGLE_FILE), mode, SECONDS].map(str::to_owned).to_vec(),
        }
    }
}

fn on_host(arguments: &[String], variables: &[String]) -> Result<Command> {
    let [program, arguments @ ..] = arguments else { anyhow::bail!("there is nothing to start") };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().filter_map(|variable| variable.split_once('=')));
    Ok(command)
}

fn port(server: &mut Target) -> Result<u16> {
    let line = server.line()?;
    let port = line.strip_prefix("port ").and_then(|port| port.trim().parse().ok());
    port.context("the server does not say its port")
}
