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
    let Setting { machine, runs, .. } = setting;
    let mut report =
        Report::new(&format!("Measured on {machine}; costs are medians of {runs} runs in turns."));
    names::measure(seconds, folder, &mut report)?;
    on_cpu::measure(seconds, folder, &mut report)?;
    whole::measure(setting.seconds(5), folder, &mut report)?;
    burden::measure(setting, &mut report)?;
    disturbance::measure(setting, &mut report)?;
    cost::measure(setting, &mut report)?;
    report.paragraph(LEGEND);
    Ok(report)
}
