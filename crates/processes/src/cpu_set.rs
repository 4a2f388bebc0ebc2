//! Sets of CPUs, as the kernel lists them.

use std::{fmt, str::FromStr};

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

    /// The number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
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

/// A text that is not a valid list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a list of CPUs such as 0-3,8")]
pub struct InvalidCpuSet(String);

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
    type Err = InvalidCpuSet;

    /// Parses the list format of `/sys/devices/system/cpu/online` (cpuset(7), "List format").
    fn from_str(text: &str) -> Result<Self, InvalidCpuSet> {
        let bad = || InvalidCpuSet(text.to_owned());
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
    fn texts_that_are_no_list_are_refused() {
        for text in ["", "3-1", "x", "0-8192"] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            assert_eq!(error, format!("`{text}` is not a list of CPUs such as 0-3,8"));
        }
    }
}
