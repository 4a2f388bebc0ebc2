//! `cargo xtask bench`: what the profiler costs, beside other profilers on the same process.

mod measure;
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
    tool::{Job, Known, Tool, ToolName},
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
    /// Put the tables into README.md and ARCHITECTURE.md.
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
    frameless: Series,
    forty_frames: Series,
    dotnet: Series,
    threads: Series,
    stacks: Series,
    processes: Series,
    programs: programs::Measured,
    tables: tables::Measured,
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
        let measured = self.measure(&tools, binary_bytes)?;
        let (costs, unwinding) = (report::costs(&measured), report::unwinding(&measured));
        println!("{costs}\n{unwinding}");
        if self.write { report::write(&costs, &unwinding) } else { Ok(()) }
    }

    /// The profiler first, as it works by default and by frame pointers alone.
    fn tools(&self, profiler: PathBuf) -> Vec<Tool> {
        let peers = self.peers.clone().unwrap_or_else(|| ToolName::PEERS.to_vec());
        let peers = peers.into_iter().filter(|peer| *peer != ToolName::Profiler).map(Tool::find);
        let profiler = Tool::at(ToolName::Profiler, profiler);
        let by_frame_pointers = profiler.with("--unwind fp");
        [profiler, by_frame_pointers].into_iter().chain(peers).collect()
    }

    fn measure(&self, tools: &[Tool], binary_bytes: u64) -> Result<Measured> {
        let folder = scratch_folder()?;
        let runs = if self.quick { 1 } else { self.runs.max(1) };
        let seconds = |seconds| if self.quick { 2 } else { seconds };
        let job = |target: &Target, frequency_hz, seconds| Job {
            pid: Some(target.pid()),
            frequency_hz,
            seconds,
            known: Known::Nothing,
            folder: &folder,
        };
        let all = Plan { tools, runs };
        let once = Plan { tools, runs: 1 };
        let own = Plan { tools: &tools[..1], runs: 1 };
        let with_first_peer = Plan { tools: &tools[..tools.len().min(3)], runs: 1 };
        let without_frame_pointers = frameless_tools(tools);

        let chain = Target::start("chain")?;
        let known = |frequency_hz, seconds| Job { known: Known::Chain, ..job(&chain, frequency_hz, seconds) };
        let native_99_hz = all.carry_out(&known(99, seconds(10)), &chain);
        let native_999_hz = all.carry_out(&known(999, seconds(10)), &chain);
        let native_9999_hz = own.carry_out(&known(9_999, seconds(5)), &chain);
        let short = own.carry_out(&job(&chain, 999, seconds(5)), &chain);
        let long = own.carry_out(&job(&chain, 999, 3 * seconds(5)), &chain);
        drop(chain);
        let frameless = on(&Target::start("chain-frameless")?, |target| {
            let plan = Plan { tools: &without_frame_pointers, runs };
            plan.carry_out(&Job { known: Known::Chain, ..job(target, 999, seconds(10)) }, target)
        });
        let forty_frames = on(&Target::start_shapes("40")?, |target| {
            let tools = [tools[0].clone(), tools[0].with("-K")];
            Plan { tools: &tools, runs }.carry_out(&job(target, 999, seconds(5)), target)
        });
        let programs = programs::measure(&program_tools(tools), seconds(8), &folder)?;
        let tables = tables::measure(&tools[0], seconds(4), &folder)?;
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
            frameless,
            forty_frames,
            programs,
            tables,
            dotnet,
            threads,
            stacks,
            processes,
            known_stack_microseconds: growth_microseconds(&short, &long).context("the profiler failed")?,
            binary_bytes,
        })
    }
}

/// Those that walk stacks without frame pointers, told to; and the profiler told not to.
fn frameless_tools(tools: &[Tool]) -> Vec<Tool> {
    let told = |tool: &Tool| match tool.name {
        ToolName::Profiler | ToolName::Samply | ToolName::Lightswitch => Some(tool.clone()),
        ToolName::Perf => Some(tool.with(PERF_COPIES_STACKS)),
        ToolName::ProfileBee => Some(tool.with("--dwarf true")),
        ToolName::ProfileBpfcc | ToolName::Bpftrace => None,
    };
    tools.iter().filter_map(told).collect()
}

/// The profiler and perf, each in both ways.
fn program_tools(tools: &[Tool]) -> Vec<Tool> {
    let perf = tools.iter().filter(|tool| tool.name == ToolName::Perf);
    let perf = perf.flat_map(|perf| [perf.clone(), perf.with(PERF_COPIES_STACKS)]);
    tools.iter().filter(|tool| tool.name == ToolName::Profiler).cloned().chain(perf).collect()
}

/// perf's way without frame pointers: 8 KiB of stack with each sample.
const PERF_COPIES_STACKS: &str = "--call-graph dwarf";

/// Measures on a target that is made for it: given as a temporary value, it is gone with the statement.
fn on(target: &Target, measure: impl FnOnce(&Target) -> Series) -> Series {
    measure(target)
}

/// Everything on a machine with a thousand processes that work now and then.
fn many_processes(plan: &Plan<'_>, folder: &Path, seconds: u64) -> Result<Series> {
    const PROCESSES: usize = 1000;
    let targets = (0..PROCESSES).map(|_| Target::start_nice("now_and_then")).collect::<Result<Vec<_>>>()?;
    Ok(plan
        .carry_out(&Job { pid: None, frequency_hz: 99, seconds, known: Known::Nothing, folder }, &targets[0]))
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
