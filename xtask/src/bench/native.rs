//! Measures the cost of the profilers on native programs, and on the one .NET program that others can symbolize too.

use std::path::Path;

use anyhow::Result;
use fs_err as fs;

use super::{
    PERF_COPIES_STACKS, Setting,
    series::{Metric, Plan, Series},
    target::Target,
    tool::{Job, KnownStacks, Tool, ToolName},
};

/// The results of all measurements.
pub(super) struct Measurements {
    pub(super) native_99_hz: Series,
    pub(super) native_999_hz: Series,
    pub(super) native_9999_hz: Series,
    pub(super) frameless: Series,
    pub(super) forty_frames: Series,
    pub(super) dotnet: Series,
    pub(super) threads: Series,
    pub(super) stacks: Series,
    pub(super) processes: Series,
    pub(super) known_stack_microseconds: f64,
    pub(super) binary_bytes: u64,
}

/// Measures each profiler on each program.
pub(super) fn measure(setting: &Setting) -> Result<Measurements> {
    let Setting { tools, runs, folder, .. } = setting;
    let (runs, seconds) = (*runs, |seconds| setting.seconds(seconds));
    let job = |target: &Target, frequency_hz, seconds| Job {
        pid: Some(target.pid()),
        frequency_hz,
        seconds,
        known: KnownStacks::Nothing,
        folder,
    };
    let all = Plan { tools, runs };
    let once = Plan { tools, runs: 1 };
    let own = Plan { tools: &tools[..1], runs: 1 };
    let with_first_peer = Plan { tools: &tools[..tools.len().min(3)], runs: 1 };
    let without_frame_pointers = frameless_tools(tools);

    let chain = Target::start("chain", &[])?;
    let known =
        |frequency_hz, seconds| Job { known: KnownStacks::Chain, ..job(&chain, frequency_hz, seconds) };
    let native_99_hz = all.carry_out(&known(99, seconds(10)), &chain);
    let native_999_hz = all.carry_out(&known(999, seconds(10)), &chain);
    let native_9999_hz = own.carry_out(&known(9_999, seconds(5)), &chain);
    let own_runs = Plan { tools: &tools[..1], runs };
    // The starts of two runs differ by 10 ms: 100,000 samples more make of it 0.1 us.
    let short = own_runs.carry_out(&job(&chain, 9_999, seconds(5)), &chain);
    let long = own_runs.carry_out(&job(&chain, 9_999, 3 * seconds(5)), &chain);
    drop(chain);
    let frameless = measure_on(&Target::start("chain-frameless", &[])?, |target| {
        let plan = Plan { tools: &without_frame_pointers, runs };
        plan.carry_out(&Job { known: KnownStacks::Chain, ..job(target, 999, seconds(10)) }, target)
    });
    let forty_frames = measure_on(&Target::start("unwinding/shapes", &["40"])?, |target| {
        // A difference of two runs: each has to be exact.
        const MORE_RUNS: usize = 3;
        let tools = [tools[0].clone(), tools[0].with_options("-K")];
        Plan { tools: &tools, runs: MORE_RUNS * runs }.carry_out(&job(target, 999, seconds(5)), target)
    });
    let dotnet = measure_on(&Target::start_dotnet("9.0", "cpu")?, |target| {
        with_first_peer.carry_out(&job(target, 99, seconds(30)), target)
    });
    let threads = measure_on(&Target::start_nice("threads")?, |target| {
        once.carry_out(&job(target, 99, seconds(5)), target)
    });
    let stacks = measure_on(&Target::start("stacks", &[])?, |target| {
        own.carry_out(&job(target, 999, seconds(10)), target)
    });
    let processes = many_processes(&own, folder, seconds(5))?;
    Ok(Measurements {
        native_99_hz,
        native_999_hz,
        native_9999_hz,
        frameless,
        forty_frames,
        dotnet,
        threads,
        stacks,
        processes,
        known_stack_microseconds: growth_microseconds(&short, &long),
        binary_bytes: fs::metadata(&setting.profiler)?.len(),
    })
}

/// The profilers that unwind stacks without frame pointers, with the option for it, and the profiler with frame
/// pointers alone.
fn frameless_tools(tools: &[Tool]) -> Vec<Tool> {
    let without_frame_pointers = |tool: &Tool| match tool.name {
        ToolName::Profiler | ToolName::Samply | ToolName::Lightswitch => Some(tool.clone()),
        ToolName::Perf => Some(tool.with_options(PERF_COPIES_STACKS)),
        ToolName::ProfileBee => Some(tool.with_options("--dwarf true")),
        ToolName::ProfileBpfcc | ToolName::Bpftrace => None,
    };
    tools.iter().filter_map(without_frame_pointers).collect()
}

/// Measures on a target that is created for it and stopped afterwards.
fn measure_on(target: &Target, measure: impl FnOnce(&Target) -> Series) -> Series {
    measure(target)
}

/// Samples the whole machine with a thousand mostly idle processes.
fn many_processes(plan: &Plan<'_>, folder: &Path, seconds: u64) -> Result<Series> {
    const PROCESSES: usize = 1000;
    let targets = (0..PROCESSES).map(|_| Target::start_nice("mostly_idle")).collect::<Result<Vec<_>>>()?;
    Ok(plan.carry_out(
        &Job { pid: None, frequency_hz: 99, seconds, known: KnownStacks::Nothing, folder },
        &targets[0],
    ))
}

/// The CPU time of one more sample of a known stack.
fn growth_microseconds(short: &Series, long: &Series) -> f64 {
    let grown = |metric| long.own(metric) - short.own(metric);
    1e6 * grown(Metric::CpuSeconds) / grown(Metric::Samples)
}
