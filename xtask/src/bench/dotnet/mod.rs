//! .NET processes that were started with nothing set: what has a name, what is whole, and what looking costs.

mod burden;
mod cost;
mod load;
mod names;
mod on_cpu;
pub(crate) mod running;
mod sampled;
mod truth;
mod whole;

use anyhow::Result;

use super::Setting;

const LEGEND: &str = "Frames are those of all samples at 999 Hz. Managed stacks are samples with a managed frame; one is whole \
when its outermost frame is `start_thread`, `clone3` or the program's entry. The names that the runtime has are those of its \
perf map, switched on for a run of its own, and for precompiled methods those of its jitdump, which .NET 9.0 writes. A method is \
the same when assembly, type, name and arguments are. Load: four connections, each asks when it has the answer; pauses are \
those that a client sees, on two CPUs that server, client and profiler share.";

/// Measures everything; the tables are Markdown.
pub(super) fn measure(setting: &Setting) -> Result<String> {
    sampled::build()?;
    let (folder, seconds) = (&setting.folder, setting.seconds(10));
    let names = names::measure(seconds, folder)?.markdown();
    let on_cpu = on_cpu::measure(seconds, folder)?.markdown();
    let whole = whole::measure(setting.seconds(5), folder)?.markdown();
    let burden = burden::measure(setting)?.markdown();
    let cost = cost::measure(setting)?.markdown();
    let intro =
        format!("Measured on {}; costs are medians of {} runs in turns.", setting.machine, setting.runs);
    Ok(format!("{intro}\n\n{names}\n{on_cpu}\n{whole}\n{burden}\n{cost}\n{LEGEND}\n"))
}
