//! Measures what the node agent costs beside the churn of a day on a node, with a backend and without one.

use std::{
    fmt::Write as _,
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    Setting,
    measure::{self, End},
    report::{Report, number},
};
use crate::{project, shell, soak::Churn, workspace::cargo};

/// Five windows.
const SECONDS: u64 = 300;

const MILLICORES_MAX: f64 = 10.0;
const PEAK_MB_MAX: f64 = 64.0;
const START_MS_MAX: f64 = 1000.0;

const LEGEND: &str = "CPU: user and system time, in thousandths of a CPU, after the first two seconds. peak: resident memory. \
start: from the agent's exec until its timers run. sent: compressed requests.";

/// A backend of the agent.
struct Row {
    title: &'static str,
    has_backend: bool,
}

const ROWS: [Row; 2] = [
    Row { title: "a receiver", has_backend: true },
    Row { title: "nothing listens, `--spool`", has_backend: false },
];

/// The figures of one run.
struct Figures {
    cpu_millicores: f64,
    peak_mb: f64,
    start_ms: f64,
    samples: u64,
    sent_kb_a_second: f64,
    delivered: u64,
    spooled: u64,
}

pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(SECONDS);
    let mut churn = Churn::start()?;
    let mut figures = Vec::new();
    for row in &ROWS {
        eprintln!("agent, {}", row.title);
        figures.push(row.measure(setting, seconds)?);
    }
    churn.end()?;
    Ok(report(&figures, setting, seconds))
}

impl Row {
    fn measure(&self, setting: &Setting, seconds: u64) -> Result<Figures> {
        let spool = setting.folder.join("agent.spool");
        fs::create_dir_all(&spool)?;
        let mut command = Command::new(&setting.profiler);
        command.args(["-vv", "agent", "-d", &seconds.to_string()]);
        let receiver = self.has_backend.then(|| Receiver::start(&setting.folder)).transpose()?;
        match &receiver {
            Some(receiver) => command.args(["--otlp", &receiver.url]),
            // The port of the discard protocol (RFC 863), at which nothing listens.
            None => command.args(["--otlp", "http://127.0.0.1:9", "--spool"]).arg(&spool),
        };
        let output = setting.folder.join("agent.output");
        let run = measure::run(&mut command, Duration::from_secs(seconds), End::Itself, &output)?;
        fs::remove_dir_all(&spool)?;
        let start = run.time_to("sampling begins").context("the log has no start of sampling")?;
        let settled = Duration::from_secs(seconds) - measure::settled_after(Duration::from_secs(seconds));
        let log = fs::read_to_string(&output)?;
        let account =
            log.lines().rfind(|line| line.contains("event=stopped")).context("the agent has no account")?;
        let windows = log.lines().filter(|line| line.contains("event=window"));
        let bytes: u64 = windows.map(|line| field(line, "bytes")).sum::<Result<_>>()?;
        Ok(Figures {
            cpu_millicores: 1e3 * run.settled_cpu.as_secs_f64() / settled.as_secs_f64(),
            peak_mb: run.peak_bytes as f64 / 1e6,
            start_ms: 1e3 * start.as_secs_f64(),
            samples: field(account, "sampled")?,
            sent_kb_a_second: bytes as f64 / 1e3 / seconds as f64,
            delivered: field(account, "delivered")?,
            spooled: field(account, "spooled")?,
        })
    }
}

/// A running receiver of OTLP. Dropping it stops it.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) url: String,
}

impl Receiver {
    /// Starts it. It prints what it receives to a file in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        shell::run(&mut cargo(&[
            "build",
            "--locked",
            "--package",
            "profiler-tests",
            "--bin",
            "otlp-receiver",
        ]))?;
        // Free a moment ago; the agent tries again until the receiver listens.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let output = File::create(folder.join("agent.received"))?;
        let program = project::root().join("target/debug/otlp-receiver");
        let child = Command::new(program).arg(address.to_string()).stdout(output).spawn()?;
        Ok(Self { child, url: format!("http://{address}") })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It has exited if the run failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number in a line of the agent's log.
pub(crate) fn field(line: &str, name: &str) -> Result<u64> {
    let mut fields = line.split_whitespace().filter_map(|field| field.split_once('='));
    let (_, number) =
        fields.find(|(found, _)| *found == name).with_context(|| format!("no {name} in {line:?}"))?;
    number.parse().with_context(|| format!("{name} is no number in {line:?}"))
}

fn report(figures: &[Figures], setting: &Setting, seconds: u64) -> Report {
    let mut report = Report::default();
    // Writing to a String cannot fail.
    let _ = write!(
        report.markdown,
        "Measured on {}, one run of {seconds} s each, beside the churn of `cargo xtask soak`.\n\n\
         | `profiler agent -F 19`, backend | CPU, thousandths | peak MB | start ms | samples | sent kB/s | delivered | spooled |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
        setting.machine
    );
    for (row, figures) in ROWS.iter().zip(figures) {
        let Figures { cpu_millicores, peak_mb, start_ms, samples, sent_kb_a_second, delivered, spooled } =
            figures;
        let [cpu, peak, start, sent] = [*cpu_millicores, *peak_mb, *start_ms, *sent_kb_a_second].map(number);
        let title = row.title;
        let _ = writeln!(
            report.markdown,
            "| {title} | {cpu} | {peak} | {start} | {samples} | {sent} | {delivered} | {spooled} |"
        );
        report.check(
            "agent: CPU, thousandths",
            *cpu_millicores,
            MILLICORES_MAX,
            *cpu_millicores <= MILLICORES_MAX,
        );
        report.check("agent: peak MB", *peak_mb, PEAK_MB_MAX, *peak_mb <= PEAK_MB_MAX);
        report.check("agent: start ms", *start_ms, START_MS_MAX, *start_ms <= START_MS_MAX);
    }
    let _ = writeln!(report.markdown, "\n{LEGEND}");
    report
}
