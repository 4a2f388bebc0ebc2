//! `cargo xtask bench`: what the profiler costs, beside other profilers on the same process.

pub(crate) mod dotnet;
mod formats;
mod log;
mod measure;
mod native;
mod programs;
mod report;
mod run_time;
mod samply;
mod scenario;
pub(crate) mod stacks;
mod sysctl;
mod tables;
mod target;
mod tool;

use std::{fs, path::PathBuf, process::Command};

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::{
    report::Report,
    sysctl::Sysctl,
    tool::{Tool, ToolName},
};
use crate::{document, project, setup, shell, static_binary, workloads};

/// The document that holds the tables.
const DOCUMENT: &str = "docs/benchmarks.md";

/// Measure what the profiler costs, beside other profilers on the same process.
#[derive(Args)]
pub(crate) struct Bench {
    /// Runs of each profiler, in turns; the tables hold their medians.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// One short run of each: whether the bench works, not what it says.
    #[arg(long)]
    quick: bool,
    /// Compare with these only.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    peers: Option<Vec<ToolName>>,
    /// Measure this group of tables only.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_enum)]
    only: Vec<Group>,
    /// Put the tables into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// Tables that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// What the profiler costs beside others.
    Native,
    /// How the walk by unwind tables fares.
    Unwinding,
    /// .NET processes that were started with nothing set.
    Dotnet,
    /// Writing a large profile in each format.
    Formats,
}

/// What every measurement is made with.
struct Setting {
    machine: String,
    runs: usize,
    is_quick: bool,
    /// The profiler first, as it works by default and by frame pointers alone.
    tools: Vec<Tool>,
    profiler: PathBuf,
    /// Where recordings and outputs go.
    folder: PathBuf,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::Bench])?;
        workloads::build()?;
        let setting = self.setting()?;
        let _statistics = Sysctl::set("bpf_stats_enabled", "1")?;
        // Some look at the number only, not at what they may do.
        let _paranoid = Sysctl::set("perf_event_paranoid", "-1")?;
        let mut exceeded = Vec::new();
        let is_meant = |group: &&Group| self.only.is_empty() || self.only.contains(group);
        for group in Group::value_variants().iter().filter(is_meant) {
            let report = group.measure(&setting)?;
            println!("{}", report.markdown);
            if self.write {
                document::write(DOCUMENT, group.markers(), &report.markdown)?;
            }
            exceeded.extend(report.exceeded_budgets);
        }
        print_exceeded(&exceeded);
        Ok(())
    }

    fn setting(&self) -> Result<Setting> {
        let profiler = static_binary::build(static_binary::DIST)?;
        let folder = project::root().join("target/bench");
        fs::create_dir_all(&folder)?;
        Ok(Setting {
            machine: machine()?,
            runs: if self.quick { 1 } else { self.runs.max(1) },
            is_quick: self.quick,
            tools: self.tools(profiler.clone()),
            profiler,
            folder,
        })
    }

    fn tools(&self, profiler: PathBuf) -> Vec<Tool> {
        let peers = self.peers.clone().unwrap_or_else(|| ToolName::PEERS.to_vec());
        let peers = peers.into_iter().filter(|peer| *peer != ToolName::Profiler).map(Tool::find);
        let profiler = Tool::at(ToolName::Profiler, profiler);
        let by_frame_pointers = profiler.with("--unwind fp");
        [profiler, by_frame_pointers].into_iter().chain(peers).collect()
    }
}

/// Runs every measurement once, for a short time: a check of the bench itself.
pub(crate) fn smoke() -> Result<()> {
    Bench { runs: 1, quick: true, peers: None, only: Vec::new(), write: false }.run()
}

impl Setting {
    /// How long something is sampled that is worth so many seconds.
    fn seconds(&self, seconds: u64) -> u64 {
        const QUICK: u64 = 2;
        if self.is_quick { QUICK } else { seconds }
    }
}

impl Group {
    /// Measures it.
    fn measure(self, setting: &Setting) -> Result<Report> {
        match self {
            Self::Native => Ok(report::costs(&native::measure(setting)?, setting)),
            Self::Unwinding => {
                let Setting { tools, folder, .. } = setting;
                let programs = programs::measure(&program_tools(tools), setting.seconds(8), folder)?;
                let tables = tables::measure(&tools[0], setting.seconds(4), folder)?;
                let markdown = report::unwinding(&programs, &tables, setting);
                Ok(Report { markdown, exceeded_budgets: Vec::new() })
            }
            Self::Dotnet => dotnet::measure(setting),
            Self::Formats => formats::measure(setting),
        }
    }

    /// The markers in [`DOCUMENT`] between which its tables are.
    fn markers(self) -> &'static str {
        match self {
            Self::Native => "bench",
            Self::Unwinding => "unwinding",
            Self::Dotnet => "dotnet",
            Self::Formats => "formats",
        }
    }
}

/// Prints the budgets that figures of this run exceed.
fn print_exceeded(budgets: &[String]) {
    match budgets.len() {
        0 => eprintln!("every figure is within its budget"),
        count => eprintln!("{count} figures exceed their budgets:\n  {}", budgets.join("\n  ")),
    }
}

/// The profiler and perf, each in both ways.
fn program_tools(tools: &[Tool]) -> Vec<Tool> {
    let perf = tools.iter().filter(|tool| tool.name == ToolName::Perf);
    let perf = perf.flat_map(|perf| [perf.clone(), perf.with(PERF_COPIES_STACKS)]);
    tools.iter().filter(|tool| tool.name == ToolName::Profiler).cloned().chain(perf).collect()
}

/// perf's way without frame pointers: 8 KiB of stack with each sample.
const PERF_COPIES_STACKS: &str = "--call-graph dwarf";

/// The machine in a few words.
fn machine() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let kernel = shell::read(Command::new("uname").args(["-s", "-r", "-m"]))?;
    Ok(format!("{kernel} with {cpus} CPUs"))
}
