//! Measures what the node agent costs beside the churn of a day on a node, with a backend and without one.

use std::{net::TcpListener, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::{
    Setting,
    in_turns::in_turns,
    report::{Column, Report},
    run::settled_after,
};
use crate::{
    process::OwnedChild,
    project,
    soak::{Account, Churn},
    workspace,
};

/// Five windows.
const SECONDS: u64 = 300;

const COLUMNS: [Column; 7] = [
    Column::at_most("CPU, thousandths", 10.0),
    Column::at_most("peak MB", 64.0),
    Column::at_most("start ms", 1000.0),
    Column::new("samples"),
    Column::new("sent kB/s"),
    Column::new("delivered"),
    Column::new("spooled"),
];

const LEGEND: &str = "CPU: user and system time, in thousandths of a CPU, after the first two seconds. peak: resident memory. \
start: from the agent's exec until its timers run. sent: compressed requests.";

/// Whether the agent has a backend.
const SCENARIOS: [(&str, bool); 2] = [("a receiver", true), ("nothing listens, `--spool`", false)];

pub(super) fn measure(setting: &Setting) -> Result<Report> {
    let seconds = setting.seconds(SECONDS);
    let mut churn = Churn::start()?;
    let rows = in_turns("agent", 1, &SCENARIOS, |has_backend| run(setting, *has_backend, seconds))?;
    churn.end()?;
    let how = format!("one run of {seconds} s each, beside the churn of `cargo xtask soak`");
    let mut report = setting.report(&how);
    report.table("`profiler agent -F 19`, backend", &COLUMNS, &rows);
    report.paragraph(LEGEND);
    Ok(report)
}

/// The figures of one run in the order of the columns.
fn run(setting: &Setting, has_backend: bool, seconds: u64) -> Result<[f64; 7]> {
    let (length, spool) = (Duration::from_secs(seconds), setting.folder.join("agent.spool"));
    fs::create_dir_all(&spool)?;
    let mut command = Command::new(&setting.profiler);
    command.args(["-vv", "agent", "-d", &seconds.to_string()]);
    let receiver = has_backend.then(|| Receiver::start(&setting.folder)).transpose()?;
    match &receiver {
        Some(receiver) => command.args(["--otlp", &receiver.url]),
        // The port of the discard protocol (RFC 863), at which nothing listens.
        None => command.args(["--otlp", "http://127.0.0.1:9", "--spool"]).arg(&spool),
    };
    let run = setting.measure(&mut command, seconds, "agent")?;
    fs::remove_dir_all(&spool)?;
    let start = run.time_to("sampling begins").context("the log has no start of sampling")?;
    let settled = length - settled_after(length);
    let log = fs::read_to_string(setting.folder.join("agent.output"))?;
    let last = log.lines().rfind(|line| line.contains("event=stopped"));
    let account = Account::parse(last.context("the agent has no account")?);
    let windows = log.lines().filter(|line| line.contains("event=window")).map(Account::parse);
    let sent_bytes = windows.map(|window| window.number("bytes")).sum::<Result<u64>>()?;
    Ok([
        1e3 * run.settled_cpu.as_secs_f64() / settled.as_secs_f64(),
        run.peak_bytes as f64 / 1e6,
        1e3 * start.as_secs_f64(),
        account.number("sampled")? as f64,
        sent_bytes as f64 / 1e3 / seconds as f64,
        account.number("delivered")? as f64,
        account.number("spooled")? as f64,
    ])
}

/// A running receiver of OTLP. Dropping it stops it.
pub(crate) struct Receiver {
    _child: OwnedChild,
    pub(crate) url: String,
}

impl Receiver {
    /// Starts it. It prints what it receives to a file in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        workspace::build("--package profiler-tests --bin otlp-receiver")?;
        // Free a moment ago; the agent tries again until the receiver listens.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let output = fs::File::create(folder.join("agent.received"))?.into_file();
        let program = project::root().join("target/debug/otlp-receiver");
        let child = OwnedChild::spawn(Command::new(program).arg(address.to_string()).stdout(output))?;
        Ok(Self { _child: child, url: format!("http://{address}") })
    }
}
