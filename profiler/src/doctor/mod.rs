//! Checks what the kernel and the privileges of this process allow, by trying each operation.

mod ability;
mod advice;
mod privilege;
mod process;
mod remedy;
mod setting;
pub(crate) mod situation;

use profiler_processes::Pid;

pub use self::{remedy::Remedy, situation::Situation};
use crate::error::Result;
pub use crate::{
    kernel_release::KernelRelease,
    sys::capability::{Capabilities, Capability},
};

/// The result of [`examine`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The facts that the findings and remedies are derived from.
    pub situation: Situation,
    /// One finding for each check, in reading order.
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check: `CAP_SYSLOG`, `kernel.kptr_restrict`, `timer event`.
    pub name: &'static str,
    /// Its effect on profiling.
    pub status: Status,
    /// The observed value, or the error of the operating system.
    pub observed: String,
    /// What a profile lacks because of it: `names of kernel functions`.
    pub lacks: Option<&'static str>,
    /// How to repair it, if that is possible.
    pub remedy: Option<Remedy>,
}

/// The effect of a finding on profiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// None.
    Ok,
    /// Profiles lack something.
    Degraded,
    /// Profiling is impossible.
    Missing,
}

impl Report {
    /// A report of these findings.
    #[must_use]
    pub fn new(situation: Situation, findings: Vec<Finding>) -> Self {
        Self { situation, findings }
    }

    /// The worst status of all findings.
    #[must_use]
    pub fn status(&self) -> Status {
        self.findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok)
    }

    /// The remedy of the first finding with the worst status. Capabilities that other findings lack are added to it.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        let worst = self.findings.iter().filter(|finding| finding.status == self.status());
        let first = worst.filter_map(|finding| finding.remedy.as_ref()).next()?;
        let Remedy::Grant(mut capabilities) = first.clone() else { return Some(first.clone()) };
        for finding in &self.findings {
            if let Some(Remedy::Grant(others)) = &finding.remedy {
                capabilities
                    .extend(others.iter().filter(|other| !capabilities.contains(other)).collect::<Vec<_>>());
            }
        }
        Some(Remedy::Grant(capabilities))
    }
}

impl Finding {
    /// A check without an effect on profiling.
    #[must_use]
    pub fn ok(name: &'static str, observed: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, observed: observed.into(), lacks: None, remedy: None }
    }

    /// A check that found something that profiles lack.
    #[must_use]
    pub fn degraded(
        name: &'static str,
        observed: impl Into<String>,
        lacks: &'static str,
        remedy: impl Into<Option<Remedy>>,
    ) -> Self {
        let (lacks, remedy) = (Some(lacks), remedy.into());
        Self { name, status: Status::Degraded, observed: observed.into(), lacks, remedy }
    }

    /// A check that found profiling impossible.
    #[must_use]
    pub fn missing(
        name: &'static str,
        observed: impl Into<String>,
        remedy: impl Into<Option<Remedy>>,
    ) -> Self {
        let (observed, remedy) = (observed.into(), remedy.into());
        Self { name, status: Status::Missing, observed, lacks: None, remedy }
    }
}

/// Examines a process, by its id in the profiler's PID namespace: its kind, and the symbol sources of each kind of frames.
/// Does not contact or change the process.
///
/// # Errors
/// [`NoSuchTarget`](crate::ErrorKind::NoSuchTarget) if the process does not exist.
pub fn examine_process(pid: u32) -> Result<Vec<Finding>> {
    process::findings(Pid(pid))
}

/// Tries every operation that profiling needs, and undoes it at once.
#[must_use]
pub fn examine() -> Report {
    let situation = Situation::current();
    let mut findings = ability::findings(&situation);
    findings.extend(privilege::findings(&situation));
    findings.extend(setting::findings(&situation));
    Report { situation, findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_report_is_its_worst_finding() {
        let mut report = Report { situation: Situation::default(), findings: Vec::new() };
        assert_eq!(report.status(), Status::Ok);
        report.findings.push(Finding::degraded("a", "", "b", None));
        report.findings.push(Finding::ok("c", ""));
        assert_eq!(report.status(), Status::Degraded);
        report.findings.push(Finding::missing("d", "", None));
        assert_eq!(report.status(), Status::Missing);
    }

    #[test]
    fn missing_capabilities_are_granted_together() {
        let grant = |capabilities: &[Capability]| Remedy::Grant(capabilities.to_vec());
        let mut report = Report { situation: Situation::default(), findings: Vec::new() };
        assert_eq!(report.remedy(), None);
        report.findings.push(Finding::degraded("a", "", "b", grant(&[Capability::Syslog])));
        report.findings.push(Finding::degraded(
            "c",
            "",
            "d",
            grant(&[Capability::SysPtrace, Capability::Syslog]),
        ));
        assert_eq!(report.remedy(), Some(grant(&[Capability::Syslog, Capability::SysPtrace])));
        report.findings.push(Finding::missing("e", "", Remedy::NewerKernel));
        assert_eq!(report.remedy(), Some(Remedy::NewerKernel));
    }

    #[test]
    fn every_finding_says_what_was_seen_and_what_it_costs() {
        let report = examine();
        for finding in &report.findings {
            assert!(!finding.observed.is_empty(), "{finding:?}");
            assert_eq!(finding.lacks.is_some(), finding.status == Status::Degraded, "{finding:?}");
        }
        let mut names: Vec<_> = report.findings.iter().map(|finding| finding.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), report.findings.len());
    }
}
