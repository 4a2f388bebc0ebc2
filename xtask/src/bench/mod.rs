//! `cargo xtask bench`: what the profiler costs, beside other profilers on the same process.

mod measure;
mod report;
mod run_time;
mod scenario;
pub(crate) mod stacks;
mod sysctl;
mod target;
mod tool;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use clap::Args;

use self::{
    scenario::{Metric, Plan, Series},
    sysctl::Sysctl,
    target::Target,
    tool::{Job, Tool, ToolName},
};
use crate::{project, run, setup, shell, workloads};

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
    /// Put the tables into README.md.
    #[arg(long)]
    write: bool,
}

/// Everything that was measured.
struct Measured {
    machine: String,
    runs: usize,
    native_99_hz: Series,
    native_999_hz: Series,
    native_9999_hz: Series,
    dotnet: Series,
    threads: Series,
    stacks: Series,
    processes: Series,
    known_stack_microseconds: f64,
    binary_bytes: u64,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<()> {
        setup::install(&[setup::Purpose::Workloads, setup::Purpose::Bench])?;
        workloads::build()?;
        let profiler = run::build_static()?;
        let binary_bytes = fs::metadata(&profiler)?.len();
        let tools = self.tools(profiler);
        let _statistics = Sysctl::set("bpf_stats_enabled", "1")?;
        // Some look at the number only, not at what they may do.
        let _paranoid = Sysctl::set("perf_event_paranoid", "-1")?;
        let tables = report::markdown(&self.measure(&tools, binary_bytes)?);
        println!("{tables}");
        if self.write { report::write(&tables) } else { Ok(()) }
    }

    /// The profiler first.
    fn tools(&self, profiler: PathBuf) -> Vec<Tool> {
        let peers = self.peers.clone().unwrap_or_else(|| ToolName::PEERS.to_vec());
        let peers = peers.into_iter().filter(|peer| *peer != ToolName::Profiler).map(Tool::find);
        [Tool::at(ToolName::Profiler, profiler)].into_iter().chain(peers).collect()
    }

    fn measure(&self, tools: &[Tool], binary_bytes: u64) -> Result<Measured> {
        let folder = scratch_folder()?;
        let runs = if self.quick { 1 } else { self.runs.max(1) };
        let seconds = |seconds| if self.quick { 2 } else { seconds };
        let job = |target: &Target, frequency_hz, seconds| Job {
            pid: Some(target.pid()),
            frequency_hz,
            seconds,
            has_known_chain: false,
            folder: &folder,
        };
        let all = Plan { tools, runs };
        let once = Plan { tools, runs: 1 };
        let own = Plan { tools: &tools[..1], runs: 1 };
        let with_first_peer = Plan { tools: &tools[..tools.len().min(2)], runs: 1 };

        let chain = Target::start("chain")?;
        let known =
            |frequency_hz, seconds| Job { has_known_chain: true, ..job(&chain, frequency_hz, seconds) };
        let native_99_hz = all.carry_out(&known(99, seconds(10)), &chain);
        let native_999_hz = all.carry_out(&known(999, seconds(10)), &chain);
        let native_9999_hz = own.carry_out(&known(9_999, seconds(5)), &chain);
        let short = own.carry_out(&job(&chain, 999, seconds(5)), &chain);
        let long = own.carry_out(&job(&chain, 999, 3 * seconds(5)), &chain);
        drop(chain);
        let dotnet = on(&Target::start_dotnet("9.0", "cpu")?, |target| {
            with_first_peer.carry_out(&job(target, 99, seconds(30)), target)
        });
        let threads = on(&Target::start_nice("threads")?, |target| {
            once.carry_out(&job(target, 99, seconds(5)), target)
        });
        let stacks =
            on(&Target::start("stacks")?, |target| own.carry_out(&job(target, 999, seconds(10)), target));
        let processes = many_processes(&own, &folder, seconds(5))?;
        Ok(Measured {
            machine: machine()?,
            runs,
            native_99_hz,
            native_999_hz,
            native_9999_hz,
            dotnet,
            threads,
            stacks,
            processes,
            known_stack_microseconds: growth_microseconds(&short, &long).context("the profiler failed")?,
            binary_bytes,
        })
    }
}

/// Measures on a target that is made for it: given as a temporary value, it is gone with the statement.
fn on(target: &Target, measure: impl FnOnce(&Target) -> Series) -> Series {
    measure(target)
}

/// Everything on a machine with a thousand processes that work now and then.
fn many_processes(plan: &Plan<'_>, folder: &Path, seconds: u64) -> Result<Series> {
    const PROCESSES: usize = 1000;
    let targets = (0..PROCESSES).map(|_| Target::start_nice("now_and_then")).collect::<Result<Vec<_>>>()?;
    Ok(plan.carry_out(
        &Job { pid: None, frequency_hz: 99, seconds, has_known_chain: false, folder },
        &targets[0],
    ))
}

/// The CPU time that one more sample of a known stack takes.
fn growth_microseconds(short: &Series, long: &Series) -> Option<f64> {
    let grown = |metric| Some(long.own(metric)? - short.own(metric)?);
    Some(1e6 * grown(Metric::CpuSeconds)? / grown(Metric::Samples)?)
}

/// Where recordings and outputs go.
fn scratch_folder() -> Result<PathBuf> {
    let folder = project::root().join("target/bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The machine in a few words.
fn machine() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let kernel = shell::read(Command::new("uname").args(["-s", "-r", "-m"]))?;
    Ok(format!("{kernel} with {cpus} CPUs"))
}
