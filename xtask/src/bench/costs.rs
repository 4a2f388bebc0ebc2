//! Writes the tables of the cost of the profiler and of others, and checks the budgets of the profiler.

use super::{
    Setting,
    native::Measurements,
    report::{Report, number},
    series::{Metric, Series},
};

/// The columns of a table that compares profilers.
const COLUMNS: [(Metric, &str); 6] = [
    (Metric::CpuSeconds, "CPU s"),
    (Metric::PeakMegabytes, "peak MB"),
    (Metric::PostMilliseconds, "post ms"),
    (Metric::InKernelMicroseconds, "us/sample in kernel"),
    (Metric::ExactPercent, "exact %"),
    (Metric::FoundPercent, "found %"),
];

const LEGEND: &str = "CPU: user and system time of the profiler and its children. post: from the first event open to the \
finished output with names, without the time of sampling. \
In kernel: all run time of its BPF programs, for each sample. \
exact: samples with every call of the known chain. found: samples for each tick that the target's CPU time is worth.";

/// A budget: a figure of the profiler with these options on a program, and its limit.
type Budget = (&'static str, fn(&Measurements) -> &Series, &'static str, Metric, f64);

const BY_FRAME_POINTERS: &str = "--unwind fp";

const BUDGETS: [Budget; 17] = [
    ("CPU s, 10 s at 99 Hz", |all| &all.native_99_hz, "", Metric::CpuSeconds, 0.05),
    ("CPU s, 10 s at 999 Hz", |all| &all.native_999_hz, "", Metric::CpuSeconds, 0.07),
    ("last sample to finished output, ms", |all| &all.native_99_hz, "", Metric::EndMilliseconds, 30.0),
    (
        "peak memory by frame pointers, MB",
        |all| &all.native_999_hz,
        BY_FRAME_POINTERS,
        Metric::PeakMegabytes,
        12.0,
    ),
    ("peak memory with unwind tables, MB", |all| &all.frameless, "", Metric::PeakMegabytes, 12.0),
    (
        "us in the kernel a sample by unwind tables",
        |all| &all.frameless,
        "",
        Metric::InKernelMicroseconds,
        3.0,
    ),
    ("stacks exact, %", |all| &all.native_999_hz, "", Metric::ExactPercent, 99.9),
    ("stacks exact without frame pointers, %", |all| &all.frameless, "", Metric::ExactPercent, 99.9),
    ("samples lost, 99 Hz", |all| &all.native_99_hz, "", Metric::Lost, 0.0),
    ("samples lost, 999 Hz", |all| &all.native_999_hz, "", Metric::Lost, 0.0),
    ("samples lost, 9,999 Hz", |all| &all.native_9999_hz, "", Metric::Lost, 0.0),
    (".NET: % of the target's CPU, settled", |all| &all.dotnet, "", Metric::SettledCpuPercent, 0.3),
    (".NET: last sample to finished output, ms", |all| &all.dotnet, "", Metric::EndMilliseconds, 60.0),
    (".NET: peak memory, MB", |all| &all.dotnet, "", Metric::PeakMegabytes, 32.0),
    ("200 threads: samples lost", |all| &all.threads, "", Metric::Lost, 0.0),
    ("10,000 stacks at 999 Hz: samples lost", |all| &all.stacks, "", Metric::Lost, 0.0),
    ("1,000 processes: samples lost", |all| &all.processes, "", Metric::Lost, 0.0),
];

/// The tables about the cost of the profiler and of others.
pub(super) fn report(all: &Measurements, setting: &Setting) -> Report {
    let mut report = setting.report(&format!("medians of {} runs in turns", setting.runs));
    for (title, series) in [
        ("One busy native thread, 24 calls deep, 99 Hz", &all.native_99_hz),
        ("The same at 999 Hz", &all.native_999_hz),
        ("The same at 999 Hz, built without frame pointers", &all.frameless),
        ("One busy .NET 9 process with its perf map, 99 Hz", &all.dotnet),
        ("200 busy threads, 99 Hz", &all.threads),
    ] {
        table(&mut report, title, series);
    }
    report.paragraph(LEGEND);
    budgets(&mut report, all);
    for (what, series) in [("10,000 stacks, 999 Hz", &all.stacks), ("1,000 processes, 99 Hz", &all.processes)]
    {
        let [cpu_s, peak_mb, post_ms, samples] =
            [Metric::CpuSeconds, Metric::PeakMegabytes, Metric::PostMilliseconds, Metric::Samples]
                .map(|metric| number(series.own(metric)));
        report.paragraph(&format!(
            "{what}: {cpu_s} s CPU, {peak_mb} MB, {post_ms} ms post, {samples} samples."
        ));
    }
    report
}

/// A profiler that does not work on this machine is left out.
fn table(report: &mut Report, heading: &str, series: &Series) {
    report.heading(heading, &COLUMNS.map(|(_, name)| name));
    for row in &series.rows {
        let title = row.name.title(row.options);
        match &row.outcome {
            Ok(_) => report.row(&title, &COLUMNS.map(|(metric, _)| row.figure(metric))),
            Err(reason) => eprintln!("left out of the table, {heading}: {title}: {reason}"),
        }
    }
}

fn budgets(report: &mut Report, all: &Measurements) {
    report.heading_of(1, &["figure", "profiler", "best peer", "ratio"]);
    for (what, series, options, metric, limit) in BUDGETS {
        budget(report, what, (series(all), options, metric), limit);
    }
    // That of the best peer in the same run.
    let by_frame_pointers = (&all.native_999_hz, BY_FRAME_POINTERS, Metric::InKernelMicroseconds);
    let (series, _, metric) = by_frame_pointers;
    let limit = series.best_peer(metric).map_or(f64::INFINITY, |(_, microseconds)| microseconds);
    budget(report, "us in the kernel a sample by frame pointers", by_frame_pointers, limit);
    for (what, here, limit) in [
        ("ns a frame by unwind tables, 40 frames", frame_nanoseconds(&all.forty_frames), 150.0),
        ("us of CPU for one more sample of a known stack, 9,999 Hz", all.known_stack_microseconds, 20.0),
        ("static binary, MB", all.binary_bytes as f64 / 1e6, 14.0),
    ] {
        report.at_most(what, here, limit);
        report.row_of(what, &[number(here), String::new(), String::new()]);
    }
}

fn budget(report: &mut Report, what: &str, of: (&Series, &str, Metric), limit: f64) {
    let (series, options, metric) = of;
    let here = series.own_with(options, metric);
    let check = if metric.is_higher_better() { Report::at_least } else { Report::at_most };
    check(report, what, here, limit);
    let [peer, ratio] = match series.best_peer(metric) {
        Some((name, figure)) if figure > 0.0 => {
            [format!("{}: {}", name.name(), number(figure)), number(here / figure)]
        }
        _ => [String::new(), String::new()],
    };
    report.row_of(what, &[number(here), peer, ratio]);
}

/// The time to unwind one frame by unwind tables in the kernel: the difference to sampling without user stacks.
fn frame_nanoseconds(series: &Series) -> f64 {
    const NS_PER_US: f64 = 1e3;
    let more = |metric| series.own(metric) - series.own_with("-K", metric);
    NS_PER_US * more(Metric::InKernelMicroseconds) / more(Metric::FramesPerSample)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            series::{Figures, Row},
            tool::ToolName,
        },
        *,
    };

    #[test]
    fn a_failed_profiler_is_not_in_the_table() {
        let row = |name, outcome| Row { name, options: "", outcome };
        let works = Ok(Figures::from([(Metric::CpuSeconds, 0.5)]));
        let rows = vec![row(ToolName::Profiler, works), row(ToolName::Lightswitch, Err("no stacks".into()))];
        let mut report = Report::default();
        table(&mut report, "One thread", &Series { rows });
        let text = report.markdown;
        assert!(text.contains("| **profiler** | 0.50 | - |") && !text.contains("lightswitch"), "{text}");
    }

    #[test]
    fn an_exceeded_budget_is_reported_and_not_marked_in_the_table() {
        let figures = Figures::from([(Metric::CpuSeconds, 0.5)]);
        let series =
            Series { rows: vec![Row { name: ToolName::Profiler, options: "", outcome: Ok(figures) }] };
        for (limit, exceeded) in [(0.4, vec!["CPU s: 0.50 (budget 0.4)".to_owned()]), (0.5, Vec::new())] {
            let mut report = Report::default();
            budget(&mut report, "CPU s", (&series, "", Metric::CpuSeconds), limit);
            assert_eq!(report.markdown, "| CPU s | 0.50 |  |  |\n");
            assert_eq!(report.exceeded_budgets, exceeded);
        }
    }
}
