//! `profiler doctor`: prints the findings of the library as a table with a verdict.

use std::io::{self, Write};

use anyhow::Result;
use profiler::doctor::{Finding, Report, Status, examine, examine_process};
use profiler_profile_formats::printable;

use super::{exit, standard_streams::write_result};

/// Examines the machine, and the process `pid` if there is one, and prints the findings. Returns 0 if profiling works,
/// else 1.
pub(super) fn run(pid: Option<u32>) -> Result<u8> {
    let report = report(pid)?;
    write_result(|to| print(&report, to))?;
    Ok(if report.status() == Status::Missing { exit::FAILED } else { 0 })
}

fn report(pid: Option<u32>) -> Result<Report> {
    let mut report = examine();
    if let Some(pid) = pid {
        report.findings.extend(examine_process(pid)?);
    }
    Ok(report)
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    // Findings about a process contain its name and paths.
    let width = report.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    for finding in &report.findings {
        writeln!(
            out,
            "{:<width$}  {:<8}  {}",
            finding.name,
            status_name(finding.status),
            printable(&description(finding))
        )?;
    }
    writeln!(out, "\n{}", printable(&verdict(report)))
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Degraded => "degraded",
        Status::Missing => "MISSING",
    }
}

fn description(finding: &Finding) -> String {
    let lacks = finding.lacks.map(|lacks| format!(": no {lacks}")).unwrap_or_default();
    let remedy =
        finding.remedy.as_ref().map(|remedy| format!(" -> {}", remedy.command())).unwrap_or_default();
    format!("{}{lacks}{remedy}", finding.observed)
}

/// The last line: whether profiling works, and the most important remedy.
fn verdict(report: &Report) -> String {
    let status = report.status();
    let worst = report.findings.iter().filter(|finding| finding.status == status);
    let remedy = report.remedy().map(|remedy| format!(": {}", remedy.instruction())).unwrap_or_default();
    match status {
        Status::Ok => "everything works".to_owned(),
        Status::Degraded => {
            format!("works, without {}{remedy}", distinct(worst.filter_map(|finding| finding.lacks)))
        }
        Status::Missing => format!("cannot work ({}){remedy}", distinct(worst.map(|finding| finding.name))),
    }
}

/// The texts in their order, without duplicates.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut seen = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler::doctor::{Capability, Remedy, Situation};

    fn printed(findings: Vec<Finding>) -> String {
        let mut out = Vec::new();
        print(&Report::new(Situation::default(), findings), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn hidden_addresses(name: &'static str) -> Finding {
        let remedy = Remedy::SetSysctl { name: "kptr_restrict", value: 1 };
        Finding::degraded(name, "seen", "names of kernel functions", remedy)
    }

    #[test]
    fn the_name_column_is_as_wide_as_the_longest_name() {
        let text = printed(vec![Finding::ok("a", "seen"), Finding::ok("longer", "seen")]);
        assert_eq!(text, "a       ok        seen\nlonger  ok        seen\n\neverything works\n");
    }

    #[test]
    fn a_remedy_is_printed_beside_its_finding_and_in_the_last_line() {
        let text =
            printed(vec![Finding::ok("x", "seen"), hidden_addresses("kallsyms"), hidden_addresses("kptr")]);
        let row =
            "kallsyms  degraded  seen: no names of kernel functions -> `sysctl -w kernel.kptr_restrict=1`\n";
        assert!(text.contains(row), "{text}");
        let last =
            "\n\nworks, without names of kernel functions: `sysctl -w kernel.kptr_restrict=1`, on the node\n";
        assert!(text.ends_with(last), "{text}");
    }

    #[test]
    fn the_verdict_lists_missing_abilities_before_degraded_ones() {
        let grant = Remedy::Grant(vec![Capability::Bpf]);
        let blocked = Finding::missing("BPF map", "seen", grant);
        let text = printed(vec![
            hidden_addresses("kallsyms"),
            blocked,
            Finding::missing("BPF program", "seen", None),
        ]);
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("cannot work (BPF map, BPF program): `docker run --cap-add=BPF`"), "{last}");
    }

    #[test]
    fn an_examination_ends_in_a_verdict() {
        let mut out = Vec::new();
        print(&report(Some(std::process::id())).unwrap(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let last = text.lines().last().unwrap();
        assert!(["everything works", "works, ", "cannot work ("].iter().any(|start| last.starts_with(start)));
    }
}
