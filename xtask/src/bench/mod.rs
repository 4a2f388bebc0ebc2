//! `cargo xtask bench`: measures what the profiler costs, beside other profilers on the same process.

#![cfg(feature = "commands")]

pub(crate) mod agent;
mod bias;
mod churn;
mod costs;
pub(crate) mod dotnet;
mod events;
mod formats;
mod measures;
mod native;
mod node;
mod off_cpu_peers;
mod programs;
mod record;
pub(crate) mod report;
mod sandbox;
mod setting;
mod streaming;
mod tables;
mod waiting;

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use clap::{Args, ValueEnum};
use fs_err as fs;

pub(crate) use self::measures::{in_turns, stacks, target};
use self::{
    measures::{
        run, series,
        sysctl::{self, Sysctl},
        tool::{self, Tool, ToolName},
    },
    report::Report,
    setting::Setting,
};
use crate::{document, project, setup, shell, static_binary, steal::CpuTimes, workloads};

/// The document with the tables.
const DOCUMENT: &str = "docs/benchmarks.md";

/// Measure what the profiler costs, beside other profilers on the same process.
#[derive(Args)]
pub(crate) struct Bench {
    /// Runs of each profiler, in turns: by default 3, whose medians the tables contain, and 10 for the group `bias`.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Sampling time of every run, in place of what each table has by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// One short run of each, to check that the bench works; the numbers mean nothing.
    #[arg(long)]
    quick: bool,
    /// Compare with these profilers only.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    peers: Option<Vec<ToolName>>,
    /// Measure this group of tables only.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_enum)]
    only: Vec<Group>,
    /// Put the tables into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// A group of tables that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// The cost of the profiler and of others.
    Native,
    /// Unwinding by unwind tables.
    Unwinding,
    /// .NET processes without any setting in their environment.
    Dotnet,
    /// Writing a large profile in each format.
    Formats,
    /// Samples of work on timers, beside its CPU time, and interrupts of an idle machine.
    Bias,
    /// A simulated node with many CPUs and processes.
    Node,
    /// The whole machine, beside short programs.
    Churn,
    /// The start and the CPU time with and without the sandbox.
    Sandbox,
    /// Passes over parked threads, the cost of a context switch, and off-CPU time beside that of other tools.
    Waiting,
    /// The CPU time and the memory of a recorder.
    Record,
    /// The CPU time and the memory of the node agent.
    Agent,
    /// Runtime events of a server under load, and the pauses when their sessions start and end.
    Events,
    /// The CPU time of a program that streams profiles, beside one that takes them.
    Streaming,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::Bench])?;
        workloads::build()?;
        let setting = self.setting()?;
        let _statistics = Sysctl::set("bpf_stats_enabled", "1")?;
        // Some profilers check for user id 0 instead of capabilities.
        let _paranoid = Sysctl::set("perf_event_paranoid", "-1")?;
        let mut exceeded = Vec::new();
        let is_meant = |group: &&Group| self.only.is_empty() || self.only.contains(group);
        for group in Group::value_variants().iter().filter(is_meant) {
            let before = CpuTimes::now();
            let mut report = group.measure(&setting)?;
            let stolen = CpuTimes::now().stolen_percent_since(before);
            report.paragraph(&format!(
                "The hypervisor took {stolen:.1} % of the machine's CPU time meanwhile (steal time)."
            ));
            println!("{}", report.markdown);
            if self.write {
                document::write(DOCUMENT, &group.markers(), &report.markdown)?;
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
            runs: self.runs_or(if self.quick { 1 } else { 3 }),
            runs_of_spread: self.runs_or(if self.quick { 2 } else { 10 }),
            seconds: self.seconds,
            is_quick: self.quick,
            tools: self.tools(profiler.clone()),
            profiler,
            folder,
        })
    }

    /// The runs that were asked for, at least one.
    fn runs_or(&self, default: usize) -> usize {
        self.runs.unwrap_or(default).max(1)
    }

    fn tools(&self, profiler: PathBuf) -> Vec<Tool> {
        let peers = self.peers.clone().unwrap_or_else(|| ToolName::PEERS.to_vec());
        let peers = peers.into_iter().filter(|peer| *peer != ToolName::Profiler).map(Tool::find);
        let profiler = Tool::new(ToolName::Profiler, profiler);
        let by_frame_pointers = profiler.with_options("--unwind fp");
        [profiler, by_frame_pointers].into_iter().chain(peers).collect()
    }
}

/// Runs every measurement once for a short time, to check the bench itself.
pub(crate) fn smoke() -> Result<()> {
    Bench { runs: None, seconds: None, quick: true, peers: None, only: Vec::new(), write: false }.run()
}

impl Group {
    /// Measures the group.
    fn measure(self, setting: &Setting) -> Result<Report> {
        match self {
            Self::Native => Ok(costs::report(&native::measure(setting)?, setting)),
            Self::Unwinding => {
                let Setting { tools, folder, machine, .. } = setting;
                let mut report = Report::new(&format!("Measured on {machine}."));
                programs::measure(&program_tools(tools), setting.seconds(8), folder, &mut report)?;
                tables::measure(&tools[0], setting.seconds(4), folder, &mut report)?;
                Ok(report)
            }
            Self::Dotnet => dotnet::measure(setting),
            Self::Formats => formats::measure(setting),
            Self::Bias => bias::measure(setting),
            Self::Node => node::measure(setting),
            Self::Churn => churn::measure(setting),
            Self::Sandbox => sandbox::measure(setting),
            Self::Waiting => waiting::measure(setting),
            Self::Record => record::measure(setting),
            Self::Agent => agent::measure(setting),
            Self::Events => events::measure(setting),
            Self::Streaming => streaming::measure(setting),
        }
    }

    /// The name of the markers in [`DOCUMENT`] around its tables.
    fn markers(self) -> String {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        if self == Self::Native { "bench".to_owned() } else { name }
    }
}

/// Prints the budgets that measurements of this run exceed.
fn print_exceeded(budgets: &[String]) {
    match budgets.len() {
        0 => eprintln!("every figure is within its budget"),
        count => eprintln!("{count} figures exceed their budgets:\n  {}", budgets.join("\n  ")),
    }
}

/// The profiler and perf, each with and without frame pointers.
fn program_tools(tools: &[Tool]) -> Vec<Tool> {
    let perf = tools.iter().filter(|tool| tool.name == ToolName::Perf);
    let perf = perf.flat_map(|perf| [perf.clone(), perf.with_options(PERF_COPIES_STACKS)]);
    tools.iter().filter(|tool| tool.name == ToolName::Profiler).cloned().chain(perf).collect()
}

/// Unwinding of perf without frame pointers: 8 KiB of stack with each sample.
const PERF_COPIES_STACKS: &str = "--call-graph dwarf";

/// A short description of the machine.
fn machine() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let kernel = shell::read(Command::new("uname").args(["-s", "-r", "-m"]))?;
    Ok(format!("{kernel} with {cpus} CPUs"))
}
