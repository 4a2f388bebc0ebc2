//! Measures the throughput and latency that a server loses to the profiler, and to the runtime's own perf map.
//!
//! The throughput of a server under load differs by more between runs than the profiler costs. So both states are measured
//! in turns on the same servers, in pairs, and the result is the median of the differences within pairs.

use std::process::Stdio;

use anyhow::{Result, ensure};

use super::{
    super::{
        Setting,
        in_turns::median,
        report::{Report, number},
    },
    load::{Served, serve},
    running::{Place, Program, Running},
};

const PATHS: [&str; 2] = ["/plaintext", "/json"];

/// Enough for a median and for quartiles.
const PAIRS: usize = 10;
const QUICK_PAIRS: usize = 2;

/// The same load without and with a burden on the server, one after the other.
pub(in crate::bench) struct Pair {
    without: Served,
    with: Served,
}

/// Adds the table.
pub(super) fn measure(setting: &Setting, report: &mut Report) -> Result<()> {
    let plain = WarmServer::start(None, setting)?;
    let mapped = WarmServer::start(Some("1"), setting)?;
    let seconds = setting.seconds(6);
    let unburdened = || serve(plain.port, &PATHS, seconds);
    let by_events = ["--dotnet-names", "events"];
    let profiler = pairs("profiled", setting, unburdened, || plain.serve_profiled(seconds, setting, &[]))?;
    let events = pairs("profiled by events", setting, unburdened, || {
        plain.serve_profiled(seconds, setting, &by_events)
    })?;
    let perf_map = pairs("with a perf map", setting, unburdened, || serve(mapped.port, &PATHS, seconds))?;
    report.paragraph(&format!(
        "An ASP.NET Core server under full load, {} pairs of runs without and with the burden, in turns.",
        profiler.len()
    ));
    let rows = [
        ("**profiler**, attaches and detaches, 99 Hz", profiler),
        ("the same with `--dotnet-names events`", events),
        ("`DOTNET_PerfMapEnabled=1` from the start", perf_map),
    ];
    write_table(report, &rows);
    Ok(())
}

/// Alternates which of the two comes first, so that a steady drift of the machine cancels out.
pub(in crate::bench) fn pairs(
    burden: &str,
    setting: &Setting,
    without: impl Fn() -> Result<Served>,
    with: impl Fn() -> Result<Served>,
) -> Result<Vec<Pair>> {
    let count = if setting.is_quick { QUICK_PAIRS } else { PAIRS };
    let pair = |number: usize| {
        eprintln!("pair {} of {count}: a server under load, {burden}", number + 1);
        if number.is_multiple_of(2) {
            let without = without()?;
            Ok(Pair { without, with: with()? })
        } else {
            let with = with()?;
            Ok(Pair { without: without()?, with })
        }
    };
    (0..count).map(pair).collect()
}

/// A server that has compiled what it executes.
pub(in crate::bench) struct WarmServer {
    running: Running,
    port: u16,
}

impl WarmServer {
    pub(in crate::bench) fn start(perf_map: Option<&str>, setting: &Setting) -> Result<Self> {
        const WARM_UP_SECONDS: u64 = 5;
        let program = Program::Server { paths: &PATHS };
        let running = Running::start_idle(program, Place::Host, perf_map, &setting.folder)?;
        let port = running.port()?;
        serve(port, &PATHS, WARM_UP_SECONDS)?;
        Ok(Self { running, port })
    }

    /// The profiler attaches with these options and detaches within the time of the load.
    pub(in crate::bench) fn serve_profiled(
        &self,
        seconds: u64,
        setting: &Setting,
        options: &[&str],
    ) -> Result<Served> {
        let mut command = setting.profiler(seconds * 3 / 4);
        command.args(["-q", "-p", &self.running.pid().to_string(), "-o"]);
        command.arg(setting.folder.join("burden.folded")).args(options);
        let mut profiler = command.stdin(Stdio::null()).spawn()?;
        let served = serve(self.port, &PATHS, seconds);
        ensure!(profiler.wait()?.success(), "the profiler failed");
        served
    }
}

/// Adds a row for each burden.
pub(in crate::bench) fn write_table(report: &mut Report, rows: &[(impl AsRef<str>, Vec<Pair>)]) {
    report.heading(
        "burden",
        &[
            "requests/s without",
            "with",
            "difference, %: median",
            "quartiles",
            "99.9 % within, ms: without",
            "with",
            "longest, ms: without",
            "with",
        ],
    );
    for (burden, pairs) in rows {
        report.row_of(burden.as_ref(), &cells(pairs));
    }
}

/// The median of the changes within pairs, percent.
pub(in crate::bench) fn throughput_change_percent(pairs: &[Pair]) -> f64 {
    median(pairs.iter().map(Pair::throughput_change_percent).collect())
}

fn cells(pairs: &[Pair]) -> Vec<String> {
    let without =
        |figure: fn(&Served) -> f64| number(median(pairs.iter().map(|p| figure(&p.without)).collect()));
    let with = |figure: fn(&Served) -> f64| number(median(pairs.iter().map(|p| figure(&p.with)).collect()));
    let [low, middle, high] = quartiles(pairs.iter().map(Pair::throughput_change_percent).collect());
    vec![
        without(|served| served.requests_per_second),
        with(|served| served.requests_per_second),
        format!("{middle:+.2}"),
        format!("{low:+.2} to {high:+.2}"),
        without(|served| served.rare_milliseconds),
        with(|served| served.rare_milliseconds),
        without(|served| served.longest_milliseconds),
        with(|served| served.longest_milliseconds),
    ]
}

impl Pair {
    fn throughput_change_percent(&self) -> f64 {
        100.0 * (self.with.requests_per_second / self.without.requests_per_second - 1.0)
    }
}

/// The medians of the lower half, of all and of the upper half; the middle one of an odd count is in no half.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    if values.len() < 2 {
        let only = values.first().copied().unwrap_or(f64::NAN);
        return [only; 3];
    }
    let half = values.len() / 2;
    let (lower, upper) = (values[..half].to_vec(), values[values.len() - half..].to_vec());
    [median(lower), median(values), median(upper)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(requests_per_second: f64) -> Served {
        Served { requests_per_second, rare_milliseconds: 1.0, longest_milliseconds: 2.0 }
    }

    #[test]
    fn quartiles_are_the_medians_of_the_halves() {
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0]), [1.5, 2.5, 3.5]);
        assert_eq!(quartiles(vec![5.0, 1.0, 3.0]), [1.0, 3.0, 5.0]);
        assert_eq!(quartiles(vec![7.0]), [7.0; 3]);
    }

    #[test]
    fn drift_of_the_machine_cancels_out() {
        let pair = |base: f64| Pair { without: served(base), with: served(base * 0.99) };
        let pairs: Vec<Pair> = [50_000.0, 33_000.0, 41_000.0].map(pair).into_iter().collect();
        let cells = cells(&pairs);
        assert_eq!((cells[2].as_str(), cells[3].as_str()), ("-1.00", "-1.00 to -1.00"));
    }
}
