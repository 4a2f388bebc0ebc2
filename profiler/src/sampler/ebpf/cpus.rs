//! CPU lists, and the set of CPUs that are online.

use std::{fmt, fs, io, str::FromStr};

use crate::error::{Error, ErrorKind, Operation, Result};

/// A set of CPU numbers, written as the kernel writes CPU lists: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<u32>);

/// The highest `CONFIG_NR_CPUS`: a list with a higher number is rejected.
const MAX_CPUS: u32 = 8192;

impl CpuSet {
    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether the set contains no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains a CPU.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

/// The list with ranges, as [`FromStr`] reads it.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|cpu, next| cpu + 1 == *next).filter_map(|range| match range {
            [] => None,
            [cpu] => Some(cpu.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        });
        f.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

impl IntoIterator for CpuSet {
    type Item = u32;
    type IntoIter = std::vec::IntoIter<u32>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromStr for CpuSet {
    type Err = Error;

    /// Parses the list format of `/sys/devices/system/cpu/online` (cpuset(7), "List format").
    fn from_str(text: &str) -> Result<Self> {
        let bad =
            || Error::new(ErrorKind::InvalidInput, format!("`{text}` is not a list of CPUs such as 0-3,8"));
        let mut cpus = Vec::new();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: u32 = first.trim().parse().map_err(|_| bad())?;
            let last: u32 = last.trim().parse().map_err(|_| bad())?;
            if first > last || last >= MAX_CPUS {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        if cpus.is_empty() { Err(bad()) } else { Ok(cpus.into_iter().collect()) }
    }
}

/// The CPUs that are online. Their numbers need not be contiguous.
pub(crate) fn online() -> Result<CpuSet> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    match fs::read_to_string(PATH) {
        Ok(list) => list.parse(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => online_without_sysfs(),
        Err(error) => Err(unreadable(PATH, error)),
    }
}

/// The number of CPUs that can come online: the kernel has per-CPU data of each of them.
pub(super) fn possible() -> Result<u32> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    match fs::read_to_string(PATH) {
        Ok(list) => list.parse().map(|cpus: CpuSet| cpu_count(cpus.0.len())),
        // A container without /sys: the CPUs that are online are all that it shows.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(cpu_count(online()?.0.len())),
        Err(error) => Err(unreadable(PATH, error)),
    }
}

/// Checks that this machine has these CPUs, whether they are online or not.
pub(crate) fn check_present(requested: &[u32]) -> Result<()> {
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

/// A number of CPUs, which [`MAX_CPUS`] bounds.
pub(super) fn cpu_count(cpus: usize) -> u32 {
    u32::try_from(cpus).unwrap_or(MAX_CPUS)
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

    fn list(text: &str) -> Vec<u32> {
        text.parse::<CpuSet>().unwrap().iter().collect()
    }

    #[test]
    fn lists_have_ranges_and_gaps() {
        assert_eq!(list("0"), [0]);
        assert_eq!(list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list("5,1,1"), [1, 5]);
    }

    #[test]
    fn a_displayed_list_parses_to_the_same_set() {
        let cpus: CpuSet = "0-2,7".parse().unwrap();
        assert_eq!(cpus.to_string(), "0-2,7");
        assert_eq!(cpus.to_string().parse::<CpuSet>().unwrap(), cpus);
    }

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
        assert!(possible().unwrap() as usize >= online().unwrap().0.len());
    }

    #[test]
    fn proc_stat_gives_the_same_cpus_as_sysfs() {
        assert_eq!(online_without_sysfs().unwrap(), online().unwrap());
        let stat = "cpu  9 9\ncpu1 4 4\ncpu3 5 5\nintr 7\ncpux 1\n";
        assert_eq!(parse_proc_stat(stat), CpuSet(vec![1, 3]));
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
