//! The CPUs that are online, possible and present.

use std::{fs, io};

use profiler_processes::CpuSet;

use crate::error::{Error, ErrorKind, Operation, Result};

/// The CPUs that are online. Their numbers need not be contiguous.
pub(super) fn online() -> Result<CpuSet> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    match fs::read_to_string(PATH) {
        Ok(list) => parse(PATH, &list),
        Err(error) if error.kind() == io::ErrorKind::NotFound => online_without_sysfs(),
        Err(error) => Err(unreadable(PATH, error)),
    }
}

/// The number of CPUs that can come online: the kernel has per-CPU data of each of them.
pub(super) fn possible() -> Result<u32> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    match fs::read_to_string(PATH) {
        Ok(list) => parse(PATH, &list).map(|cpus| cpu_count(cpus.len())),
        // A container without /sys: the CPUs that are online are all that it shows.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(cpu_count(online()?.len())),
        Err(error) => Err(unreadable(PATH, error)),
    }
}

/// Checks that this machine has these CPUs, whether they are online or not.
pub fn check_present(requested: &[u32]) -> Result<()> {
    const PATH: &str = "/sys/devices/system/cpu/present";
    // A container without /sys does not show them.
    let present = fs::read_to_string(PATH).ok().and_then(|list| list.parse::<CpuSet>().ok());
    present.map_or(Ok(()), |present| check_among(requested, &present))
}

fn check_among(requested: &[u32], present: &CpuSet) -> Result<()> {
    match requested.iter().find(|cpu| !present.contains(**cpu)) {
        Some(cpu) => {
            let message = format!("CPU {cpu} does not exist: this machine has the CPUs {present}");
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        None => Ok(()),
    }
}

/// A number of CPUs, which [`CpuSet`] bounds.
pub(super) fn cpu_count(cpus: usize) -> u32 {
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

/// The CPUs that are online, for containers without `/sys`.
fn online_without_sysfs() -> Result<CpuSet> {
    const PATH: &str = "/proc/stat";
    Ok(parse_proc_stat(&fs::read_to_string(PATH).map_err(|error| unreadable(PATH, error))?))
}

/// The CPUs with a `cpuN` line in `/proc/stat` (proc_stat(5)), which are those that are online.
fn parse_proc_stat(stat: &str) -> CpuSet {
    let names = stat.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("cpu"));
    names.filter_map(|number| number.parse().ok()).collect()
}

fn parse(path: &str, list: &str) -> Result<CpuSet> {
    list.parse().map_err(|error| unreadable(path, io::Error::other(error)))
}

fn unreadable(path: &str, error: io::Error) -> Error {
    Error::from_io(Operation::OpenPerfEvent, format!("failed to read `{path}`"), error)
}

/// The CPUs to sample: those of the requested set that are online.
#[derive(Debug)]
pub(super) struct CpuSelection {
    requested: Option<CpuSet>,
}

impl CpuSelection {
    pub(super) fn new(requested: Option<Vec<u32>>) -> Self {
        Self { requested: requested.map(CpuSet::from_iter) }
    }

    pub(super) fn online(&self) -> Result<CpuSet> {
        let online = online()?;
        Ok(match &self.requested {
            Some(requested) => online.iter().filter(|cpu| requested.contains(*cpu)).collect(),
            None => online,
        })
    }

    /// The error for a set without a CPU that is online.
    pub(super) fn none_online_error(&self) -> Result<Error> {
        let requested = self.requested.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!("none of the CPUs {requested} is online, only {} are", online()?);
        Ok(Error::new(ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_offline_cpus_names_the_online_ones() {
        let error = CpuSelection::new(Some(vec![8001, 8002])).none_online_error().unwrap().to_string();
        assert!(error.contains("8001-8002") && error.contains(&online().unwrap().to_string()), "{error}");
    }

    #[test]
    fn the_error_for_a_cpu_that_does_not_exist_names_those_that_do() {
        let present: CpuSet = "0-3,6".parse().unwrap();
        assert!(check_among(&[0, 6], &present).is_ok());
        let error = check_among(&[0, 4], &present).unwrap_err().to_string();
        assert_eq!(error, "CPU 4 does not exist: this machine has the CPUs 0-3,6");
    }

    #[test]
    fn an_invalid_list_is_rejected_with_an_example() {
        for bad in ["", "a", "3-1", "1-", "-1", "0-99999", "0;1"] {
            let error = bad.parse::<CpuSet>().unwrap_err();
            assert!(error.to_string().contains("0-3,8"), "{bad}: {error}");
        }
    }

    #[test]
    fn this_machine_has_a_cpu_online() {
        assert!(online().unwrap().iter().count() > 0);
    }

    #[test]
    fn every_cpu_that_is_online_is_possible() {
        assert!(possible().unwrap() as usize >= online().unwrap().len());
    }

    #[test]
    fn proc_stat_gives_the_same_cpus_as_sysfs() {
        assert_eq!(online_without_sysfs().unwrap(), online().unwrap());
        let stat = "cpu  9 9\ncpu1 4 4\ncpu3 5 5\nintr 7\ncpux 1\n";
        assert_eq!(parse_proc_stat(stat), CpuSet::from_iter([1, 3]));
    }

    #[test]
    fn only_requested_cpus_are_selected() {
        let first = online().unwrap().iter().next().unwrap();
        assert_eq!(
            CpuSelection::new(Some(vec![first, 8000])).online().unwrap().iter().collect::<Vec<_>>(),
            [first]
        );
    }
}
