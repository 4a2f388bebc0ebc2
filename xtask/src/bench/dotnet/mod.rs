//! Measures .NET processes without any setting: symbolized frames, whole stacks, and the cost of profiling.

pub(super) mod burden;
mod cost;
mod disturbance;
mod load;
mod names;
mod on_cpu;
pub(crate) mod running;
mod sampled;
mod truth;
mod whole;

use anyhow::Result;

use super::{Setting, report::Report};

const LEGEND: &str = "Frames are those of all samples at 999 Hz. Managed stacks are samples with a managed frame; one is whole \
when its outermost frame is `start_thread`, `clone3` or the program's entry. The names that the runtime has are those of its \
perf map, switched on for a run of its own, and for precompiled methods those of its jitdump, which .NET 9.0 writes. Two \
methods are equal when assembly, type, name and arguments are. Load: four connections, each sends its next request when it \
has the response; latencies are those of the client. Server, client and profiler share two CPUs.";

/// Runs all measurements.
pub(super) fn measure(setting: &Setting) -> Result<Report> {
    sampled::build()?;
    let (folder, seconds) = (&setting.folder, setting.seconds(10));
    let names = names::measure(seconds, folder)?.markdown();
    let on_cpu = on_cpu::measure(seconds, folder)?.report();
    let whole = whole::measure(setting.seconds(5), folder)?.markdown();
    let burden = burden::measure(setting)?.markdown();
    let disturbance = disturbance::measure(setting)?.markdown();
    let cost = cost::measure(setting)?.report();
    let intro =
        format!("Measured on {}; costs are medians of {} runs in turns.", setting.machine, setting.runs);
    let sections = [&names, &on_cpu.markdown, &whole, &burden, &disturbance, &cost.markdown]
        .map(String::as_str)
        .join("\n");
    let exceeded_budgets = [on_cpu.exceeded_budgets, cost.exceeded_budgets].concat();
    Ok(Report { markdown: format!("{intro}\n\n{sections}\n{LEGEND}\n"), exceeded_budgets })
}
