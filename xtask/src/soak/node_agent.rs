//! Runs the node agent beside the churn, with a receiver, and checks its CPU time, memory, descriptors and account.

use std::{
    fs,
    io::BufReader,
    process::{ChildStdout, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{Churn, DOCUMENT, usage::Usage};
use crate::{
    bench::{
        agent::{Receiver, field},
        in_turns::median,
        report::{Report, number},
    },
    document,
    process::{OwnedChild, next_line},
    project, shell,
    workspace::cargo,
};

const MAX_MILLICORES: f64 = 10.0;
const MAX_PEAK_MB: f64 = 64.0;
const MAX_DESCRIPTORS: f64 = 512.0;

const HEADING: &str = "| minute | resident MB | peak MB | descriptors | CPU, thousandths | sampled | delivered | queued | account |\n\
|---:|---:|---:|---:|---:|---:|---:|---:|---|";

/// The parts of `sampled` in a line of the log.
const PARTS: [&str; 8] = [
    "delivered",
    "queued",
    "spooled",
    "ambiguous",
    "dropped-outage",
    "dropped-too-old",
    "dropped-rejected",
    "dropped-too-large",
];

/// The running agent. Dropping it stops it.
struct NodeAgent {
    child: OwnedChild,
    log: BufReader<ChildStdout>,
    cpu: Duration,
}

/// What the agent used in a minute, and the account of all minutes.
struct Minute {
    usage: Usage,
    millicores: f64,
    account: Account,
}

#[derive(Clone, Copy)]
struct Account {
    is_exact: bool,
    sampled: u64,
    delivered: u64,
    queued: u64,
}

/// Runs it for so many windows of a minute.
pub(super) fn run(minutes: u64, write: bool) -> Result<()> {
    shell::run(&mut cargo(&["build", "--locked", "--release", "--package", "profiler-cli"]))?;
    let folder = project::root().join("target/soak-agent");
    fs::create_dir_all(&folder)?;
    let receiver = Receiver::start(&folder)?;
    let mut churn = Churn::start()?;
    let mut agent = NodeAgent::start(&receiver.url, minutes)?;
    let mut table = format!("{HEADING}\n");
    println!("{HEADING}");
    let mut measured = Vec::new();
    for number in 1..=minutes {
        let minute = agent.minute()?;
        let row = minute.row(number);
        println!("{row}");
        table.push_str(&row);
        table.push('\n');
        measured.push(minute);
    }
    let last = agent.finish()?;
    let done = churn.end()?;
    let summary = format!(
        "{:.2} thousandths of a CPU in the median minute. {} samples, {} delivered. {done}",
        median_millicores(&measured),
        last.sampled,
        last.delivered
    );
    println!("{summary}");
    if write {
        document::write(DOCUMENT, "soak-agent", &format!("{table}\n{summary}\n"))?;
    }
    let failures = check(&measured, last).exceeded_budgets;
    ensure!(failures.is_empty(), "{} limits are exceeded:\n  {}", failures.len(), failures.join("\n  "));
    done.ensure_pace(minutes)
}

fn check(minutes: &[Minute], last: Account) -> Report {
    let mut report = Report::default();
    let most = |figure: fn(&Minute) -> f64| minutes.iter().map(figure).fold(0.0, f64::max);
    let wrong = minutes.iter().filter(|minute| !minute.account.is_exact).count();
    report.at_most("CPU, thousandths in the median minute", median_millicores(minutes), MAX_MILLICORES);
    report.at_most(
        "peak of resident memory, MB",
        most(|minute| minute.usage.peak_bytes as f64 / 1e6),
        MAX_PEAK_MB,
    );
    report.at_most("descriptors", most(|minute| minute.usage.descriptors as f64), MAX_DESCRIPTORS);
    report.at_most("accounts that do not add up", (wrong + usize::from(!last.is_exact)) as f64, 0.0);
    report.at_least("samples delivered", last.delivered as f64, last.sampled as f64);
    report
}

/// The first minute has the start, and may be shorter than a minute.
fn median_millicores(minutes: &[Minute]) -> f64 {
    median(minutes.iter().skip(1).map(|minute| minute.millicores).collect())
}

impl NodeAgent {
    fn start(url: &str, minutes: u64) -> Result<Self> {
        // One window more: the first one is shorter, by a random time.
        let seconds = (60 * (minutes + 1)).to_string();
        let mut command = Command::new(project::root().join("target/release/profiler"));
        command.args(["agent", "-F", "19", "-d", &seconds, "--otlp", url]);
        let (child, log) = OwnedChild::with_output(&mut command)?;
        Ok(Self { child, log, cpu: Duration::ZERO })
    }

    /// Waits for the next window and measures the process.
    fn minute(&mut self) -> Result<Minute> {
        const SECONDS: f64 = 60.0;
        let line = self.line_with("event=window")?;
        let usage = Usage::of(self.child.id())?;
        let cpu = usage.cpu - std::mem::replace(&mut self.cpu, usage.cpu);
        let millicores = 1e3 * cpu.as_secs_f64() / SECONDS;
        Ok(Minute { usage, millicores, account: Account::parse(&line)? })
    }

    fn finish(mut self) -> Result<Account> {
        let line = self.line_with("event=stopped")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the agent failed: {status}");
        Account::parse(&line)
    }

    fn line_with(&mut self, text: &str) -> Result<String> {
        loop {
            let line = next_line(&mut self.log).context("the agent failed")?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }
}

impl Account {
    fn parse(line: &str) -> Result<Self> {
        let mut parts = 0;
        for part in PARTS {
            parts += field(line, part)?;
        }
        let sampled = field(line, "sampled")?;
        let (delivered, queued) = (field(line, "delivered")?, field(line, "queued")?);
        Ok(Self { is_exact: parts == sampled, sampled, delivered, queued })
    }
}

impl Minute {
    fn row(&self, minute: u64) -> String {
        let Self { usage, millicores, account: Account { is_exact, sampled, delivered, queued } } = self;
        let megabytes = |bytes: u64| number(bytes as f64 / 1e6);
        format!(
            "| {minute} | {} | {} | {} | {} | {sampled} | {delivered} | {queued} | {} |",
            megabytes(usage.resident_bytes),
            megabytes(usage.peak_bytes),
            usage.descriptors,
            number(*millicores),
            if *is_exact { "exact" } else { "**wrong**" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "time=1 event=window samples=5 sampled=9 recovered=0 delivered=4 queued=2 spooled=1 ambiguous=0 \
dropped-outage=1 dropped-too-old=0 dropped-rejected=1 dropped-too-large=0 requests=3";

    #[test]
    fn an_account_is_exact_when_its_parts_add_up() {
        let account = Account::parse(LINE).unwrap();
        assert_eq!((account.is_exact, account.sampled, account.queued), (true, 9, 2));
        assert!(!Account::parse(&LINE.replace("sampled=9", "sampled=8")).unwrap().is_exact);
        assert!(Account::parse("event=window").is_err());
    }
}
