//! Writes the tables of the bench: the cost of each profiler, and the figures that exceed the profiler's budgets.

use std::fmt::Write as _;

use super::{
    Setting,
    native::Measured,
    programs,
    scenario::{Metric, Series},
    tables,
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

const PROGRAMS_LEGEND: &str = "Samples whose outermost frame is where the C library begins a process or a thread, or Go's runtime a thread or a goroutine: \
`_start` or the unsymbolized code at the program's entry, `__libc_start_main` and what it calls, `start_thread`, `clone`, \
`clone3`, `runtime.mstart`, `runtime.mcall`, `runtime.goexit`. Exact: also, each function whose only caller is known has \
this caller. All samples count, also those from before the unwind tables were in the kernel. Where the BPF programs would take \
more than 2 % of a CPU (`--max-overhead`), stacks are cut: those of 1,000 frames, on a slow machine.";

const TABLES_LEGEND: &str = "table: rows of 4 bytes, and 8 bytes for each 4 KiB page of code, in kernel memory. build: \
from the parsed file to the table in the kernel. start to sampling: from the profiler's exec until its timers run. start \
to whole stacks: from the profiler's exec until the tables of all modules of the target are in the kernel. peak MB: of \
the profiler while it samples the target.";

/// Tables in Markdown, and the figures in them that exceed a budget.
#[derive(Default)]
pub(super) struct Report {
    pub(super) markdown: String,
    /// One line for each: the name of the figure, its value and the budget.
    pub(super) exceeded_budgets: Vec<String>,
}

impl Report {
    /// Records a figure that exceeds its budget.
    pub(super) fn check(&mut self, what: &str, value: f64, budget: f64, is_kept: bool) {
        if !is_kept {
            self.exceeded_budgets.push(format!("{what}: {} (budget {budget})", number(value)));
        }
    }
}

/// A budget: a figure of the profiler with these options, and its limit.
struct Budget<'a> {
    what: &'static str,
    series: &'a Series,
    options: &'static str,
    metric: Metric,
    limit: f64,
}

/// The tables about unwinding by unwind tables, in Markdown.
pub(super) fn unwinding(
    programs: &programs::Measured,
    tables: &tables::Measured,
    setting: &Setting,
) -> Report {
    let markdown = format!(
        "Measured on {}.\n\n{}\n{PROGRAMS_LEGEND}\n\n{}\n{TABLES_LEGEND}\n",
        setting.machine,
        programs.markdown(),
        tables.markdown()
    );
    let mut report = Report { markdown, ..Report::default() };
    tables.check(&mut report);
    report
}

/// The tables about the cost of the profiler and of others.
pub(super) fn costs(measured: &Measured, setting: &Setting) -> Report {
    let mut report = Report::default();
    let text = &mut report.markdown;
    *text = format!("Measured on {}, medians of {} runs in turns.\n", setting.machine, setting.runs);
    for (title, series) in [
        ("One busy native thread, 24 calls deep, 99 Hz", &measured.native_99_hz),
        ("The same at 999 Hz", &measured.native_999_hz),
        ("The same at 999 Hz, built without frame pointers", &measured.frameless),
        ("One busy .NET 9 process with its perf map, 99 Hz", &measured.dotnet),
        ("200 busy threads, 99 Hz", &measured.threads),
    ] {
        table(text, title, series);
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n{LEGEND}\n");
    budgets(&mut report, measured);
    report
}

fn table(text: &mut String, heading: &str, series: &Series) {
    let names = COLUMNS.map(|(_, name)| name).join(" | ");
    let _ = writeln!(text, "\n| {heading} | {names} |\n|---{}|", "|---:".repeat(COLUMNS.len()));
    for row in &series.rows {
        let title = row.name.title(row.options);
        match &row.outcome {
            Ok(figures) => {
                let cells =
                    COLUMNS.map(|(metric, _)| figures.get(&metric).map_or("-".to_owned(), |f| number(*f)));
                let _ = writeln!(text, "| {title} | {} |", cells.join(" | "));
            }
            // A profiler that does not work on this machine is left out.
            Err(reason) => eprintln!("left out of the table, {heading}: {title}: {reason}"),
        }
    }
}

fn budgets(report: &mut Report, measured: &Measured) {
    let (slow, fast) = (&measured.native_99_hz, &measured.native_999_hz);
    let frameless = &measured.frameless;
    let budget = |what, series, metric, limit| Budget { what, series, options: "", metric, limit };
    let by_frame_pointers =
        |what, metric, limit| Budget { what, series: fast, options: "--unwind fp", metric, limit };
    let _ = writeln!(report.markdown, "| figure | profiler | best peer | ratio |\n|---|---:|---|---:|");
    for budget in [
        budget("CPU s, 10 s at 99 Hz", slow, Metric::CpuSeconds, 0.05),
        budget("CPU s, 10 s at 999 Hz", fast, Metric::CpuSeconds, 0.07),
        budget("last sample to finished output, ms", slow, Metric::EndMilliseconds, 30.0),
        by_frame_pointers("peak memory by frame pointers, MB", Metric::PeakMegabytes, 12.0),
        budget("peak memory with unwind tables, MB", frameless, Metric::PeakMegabytes, 12.0),
        by_frame_pointers(IN_KERNEL_BY_FRAME_POINTERS, Metric::InKernelMicroseconds, in_kernel_limit(fast)),
        budget("us in the kernel a sample by unwind tables", frameless, Metric::InKernelMicroseconds, 3.0),
        budget("stacks exact, %", fast, Metric::ExactPercent, 99.9),
        budget("stacks exact without frame pointers, %", frameless, Metric::ExactPercent, 99.9),
        budget("samples lost, 99 Hz", slow, Metric::Lost, 0.0),
        budget("samples lost, 999 Hz", fast, Metric::Lost, 0.0),
        budget("samples lost, 9,999 Hz", &measured.native_9999_hz, Metric::Lost, 0.0),
        budget(".NET: % of the target's CPU, settled", &measured.dotnet, Metric::SettledCpuPercent, 0.3),
        budget(".NET: last sample to finished output, ms", &measured.dotnet, Metric::EndMilliseconds, 60.0),
        budget(".NET: peak memory, MB", &measured.dotnet, Metric::PeakMegabytes, 32.0),
        budget("200 threads: samples lost", &measured.threads, Metric::Lost, 0.0),
        budget("10,000 stacks at 999 Hz: samples lost", &measured.stacks, Metric::Lost, 0.0),
        budget("1,000 processes: samples lost", &measured.processes, Metric::Lost, 0.0),
    ] {
        budget_line(report, &budget);
    }
    let megabytes = measured.binary_bytes as f64 / 1e6;
    for (what, here, limit) in [
        ("ns a frame by unwind tables, 40 frames", frame_nanoseconds(&measured.forty_frames), 150.0),
        (
            "us of CPU for one more sample of a known stack, 999 Hz",
            Some(measured.known_stack_microseconds),
            20.0,
        ),
        ("static binary, MB", Some(megabytes), 14.0),
    ] {
        let Some(here) = here else {
            let _ = writeln!(report.markdown, "| {what} | not measured | | |");
            continue;
        };
        report.check(what, here, limit, here <= limit);
        let _ = writeln!(report.markdown, "| {what} | {} | | |", number(here));
    }
    for (what, series) in
        [("10,000 stacks, 999 Hz", &measured.stacks), ("1,000 processes, 99 Hz", &measured.processes)]
    {
        let own = |metric| series.own(metric).map_or("-".to_owned(), number);
        let (cpu, peak, post) =
            (own(Metric::CpuSeconds), own(Metric::PeakMegabytes), own(Metric::PostMilliseconds));
        let _ = write!(
            report.markdown,
            "\n{what}: {cpu} s CPU, {peak} MB, {post} ms post, {} samples.",
            own(Metric::Samples)
        );
    }
    report.markdown.push('\n');
}

const IN_KERNEL_BY_FRAME_POINTERS: &str = "us in the kernel a sample by frame pointers";

/// That of the best peer in the same run.
fn in_kernel_limit(series: &Series) -> f64 {
    series.best_peer(Metric::InKernelMicroseconds).map_or(f64::INFINITY, |(_, microseconds)| microseconds)
}

fn budget_line(report: &mut Report, budget: &Budget<'_>) {
    let Some(here) = budget.series.own_with(budget.options, budget.metric) else {
        let _ = writeln!(report.markdown, "| {} | not measured | | |", budget.what);
        return;
    };
    let is_kept = if budget.metric.is_higher_better() { here >= budget.limit } else { here <= budget.limit };
    report.check(budget.what, here, budget.limit, is_kept);
    let peer = match budget.series.best_peer(budget.metric) {
        Some((name, figure)) if figure > 0.0 => {
            format!("{}: {} | {}", name.name(), number(figure), number(here / figure))
        }
        _ => " | ".to_owned(),
    };
    let _ = writeln!(report.markdown, "| {} | {} | {peer} |", budget.what, number(here));
}

/// The time to unwind one frame by unwind tables in the kernel: the difference to sampling without user stacks.
fn frame_nanoseconds(series: &Series) -> Option<f64> {
    const NS_PER_US: f64 = 1e3;
    let more = |metric| Some(series.own(metric)? - series.own_with("-K", metric)?);
    Some(NS_PER_US * more(Metric::InKernelMicroseconds)? / more(Metric::FramesPerSample)?)
}

/// Rounded to three digits, because further ones differ between runs.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{value:.2}"),
        medium if medium < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            scenario::{Figures, Row},
            tool::ToolName,
        },
        *,
    };

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.0712, 4.25, 14.03, 173.4].map(number), ["0", "0.07", "4.25", "14.0", "173"]);
    }

    #[test]
    fn a_failed_profiler_is_not_in_the_table() {
        let row = |name, outcome| Row { name, options: "", outcome };
        let works = Ok(Figures::from([(Metric::CpuSeconds, 0.5)]));
        let rows = vec![row(ToolName::Profiler, works), row(ToolName::Lightswitch, Err("no stacks".into()))];
        let mut text = String::new();
        table(&mut text, "One thread", &Series { rows });
        assert!(text.contains("| **profiler** | 0.50 | - |") && !text.contains("lightswitch"), "{text}");
    }

    #[test]
    fn an_exceeded_budget_is_reported_and_not_marked_in_the_table() {
        let figures = Figures::from([(Metric::CpuSeconds, 0.5)]);
        let series =
            Series { rows: vec![Row { name: ToolName::Profiler, options: "", outcome: Ok(figures) }] };
        for (limit, exceeded) in [(0.4, vec!["CPU s: 0.50 (budget 0.4)".to_owned()]), (0.5, Vec::new())] {
            let mut report = Report::default();
            let budget =
                Budget { what: "CPU s", series: &series, options: "", metric: Metric::CpuSeconds, limit };
            budget_line(&mut report, &budget);
            assert_eq!(report.markdown, "| CPU s | 0.50 |  |  |\n");
            assert_eq!(report.exceeded_budgets, exceeded);
        }
    }
}
