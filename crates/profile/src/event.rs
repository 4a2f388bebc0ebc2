//! Events: the kinds of samples in a profile, and what the value of a sample counts.

use std::{fmt, str::FromStr};

const NS_PER_S: u64 = 1_000_000_000;

/// A kind of samples in a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The name: `cpu-clock`, `wall`, `off-cpu`, `page-faults`; empty where it is unknown.
    pub name: String,
    /// How its samples are taken.
    pub sampling: Sampling,
}

/// How samples of an event are taken, and what their values count.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampling {
    /// At this frequency, hertz; 0 where it is unknown. A value counts ticks; a tick represents a period.
    Frequency(u64),
    /// Each interval of at least `min_ns` nanoseconds is a sample. Its value is the length of the interval in nanoseconds.
    Durations {
        /// Shorter intervals have no sample.
        min_ns: u64,
    },
    /// Every `period`th occurrence is a sample. Its value is a number of occurrences.
    Occurrences {
        /// The occurrences for which a sample stands.
        period: u64,
    },
    /// Every `period`th occurrence is a sample. Its value is the sum of a field over the occurrences for which it stands.
    Sums {
        /// The occurrences for which a sample stands.
        period: u64,
    },
    /// Every `period`th occurrence is a sample. Its value is the time that the occurrences for which it stands took,
    /// nanoseconds.
    Times {
        /// The occurrences for which a sample stands.
        period: u64,
    },
}

impl Sampling {
    /// Whether values are sums, so that the ledger has sums in place of numbers of samples.
    #[must_use]
    pub fn has_sums(self) -> bool {
        matches!(self, Self::Sums { .. } | Self::Times { .. })
    }
}

impl Event {
    /// The name of the event of CPU samples. The timers of all CPUs count `CLOCK_MONOTONIC` (`PERF_COUNT_SW_CPU_CLOCK`).
    pub const CPU_CLOCK: &'static str = "cpu-clock";
    /// The name of the event of wall-clock samples: of threads that run and of threads that wait.
    pub const WALL: &'static str = "wall";
    /// The name of the event of waits.
    pub const OFF_CPU: &'static str = "off-cpu";
    /// The name of the event of waits for block and file I/O.
    pub const IO: &'static str = "io";

    /// An event that is sampled at a frequency, hertz.
    #[must_use]
    pub fn at_frequency(name: &str, frequency_hz: u64) -> Self {
        Self { name: name.to_owned(), sampling: Sampling::Frequency(frequency_hz) }
    }

    /// The sampling frequency, hertz; `None` if it is unknown, and for an event that has none.
    #[must_use]
    pub fn frequency_hz(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(frequency_hz) => Some(frequency_hz).filter(|hz| *hz > 0),
            _ => None,
        }
    }

    /// The time that a unit of a value represents, nanoseconds; `None` where the frequency is unknown, and for occurrences.
    #[must_use]
    pub fn unit_ns(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Frequency(frequency_hz) => NS_PER_S.checked_div(frequency_hz),
            Sampling::Durations { .. } | Sampling::Times { .. } => Some(1),
            Sampling::Occurrences { .. } | Sampling::Sums { .. } => None,
        }
    }

    /// The most likely cause of a profile without samples of this event.
    #[must_use]
    pub(crate) fn why_empty(&self) -> &'static str {
        match (self.sampling, &*self.name) {
            (Sampling::Durations { .. }, _) => "no thread of the target waited long enough for a sample",
            (Sampling::Occurrences { .. } | Sampling::Sums { .. } | Sampling::Times { .. }, _) => {
                "the event did not occur in the target in this time"
            }
            (Sampling::Frequency(_), Self::WALL) => "the target had no threads in this time",
            (Sampling::Frequency(_), _) => {
                "the target did not run on a CPU in this time; wall-clock samples show what its threads wait for"
            }
        }
    }

    /// The number of samples that the ledger counts for a sample with this value; the value itself where values are
    /// [sums](Sampling::has_sums).
    #[must_use]
    pub fn sample_count(&self, value: u64) -> u64 {
        match self.sampling {
            Sampling::Durations { .. } => 1,
            _ => value,
        }
    }
}

/// What a thread did when it was sampled.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum ThreadState {
    /// It ran on a CPU.
    OnCpu,
    /// It waited for a CPU.
    Runnable,
    /// It could run, and its cgroup had used up its CPU quota.
    Throttled,
    /// It slept until an event (`TASK_INTERRUPTIBLE`).
    Blocked,
    /// It slept and took no signal (`TASK_UNINTERRUPTIBLE`), most often for a disk.
    Disk,
    /// A signal or a debugger had stopped it.
    Stopped,
}

impl ThreadState {
    /// Every state, for tables and tests.
    pub const ALL: &'static [Self] =
        &[Self::OnCpu, Self::Runnable, Self::Throttled, Self::Blocked, Self::Disk, Self::Stopped];
}

impl ThreadState {
    /// Its place in [`ThreadState::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name without a space, for options of a command line: `on-cpu`.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::OnCpu => "on-cpu",
            Self::Runnable => "runnable",
            Self::Throttled => "throttled",
            Self::Blocked => "blocked",
            Self::Disk => "disk",
            Self::Stopped => "stopped",
        }
    }
}

/// A text that is not a valid state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a state of a thread (known: {})", ThreadState::ALL.iter().map(|state| state.option()).collect::<Vec<_>>().join(", "))]
pub struct UnknownState {
    text: String,
}

impl FromStr for ThreadState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let state = Self::ALL.iter().copied().find(|state| state.option() == text);
        state.ok_or_else(|| UnknownState { text: text.to_owned() })
    }
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnCpu => "on CPU",
            Self::Runnable => "runnable",
            Self::Throttled => "throttled",
            Self::Blocked => "blocked",
            Self::Disk => "disk",
            Self::Stopped => "stopped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_parsed_from_their_options() {
        for (index, &state) in ThreadState::ALL.iter().enumerate() {
            assert_eq!((state.option().parse(), state.index()), (Ok(state), index));
        }
        let error = "sleeping".parse::<ThreadState>().unwrap_err().to_string();
        assert!(
            error.starts_with("`sleeping` is not a state of a thread (known: on-cpu, runnable"),
            "{error}"
        );
    }

    #[test]
    fn a_value_represents_time() {
        let ticks = |frequency_hz| Event::at_frequency("cpu-clock", frequency_hz);
        assert_eq!((ticks(100).unit_ns(), ticks(0).unit_ns()), (Some(10_000_000), None));
        assert_eq!((ticks(100).frequency_hz(), ticks(0).frequency_hz()), (Some(100), None));
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 1_000 } };
        assert_eq!((waits.unit_ns(), waits.frequency_hz()), (Some(1), None));
        assert_eq!((ticks(100).sample_count(5), waits.sample_count(5)), (5, 1));
        let faults = Event { name: "page-faults".to_owned(), sampling: Sampling::Occurrences { period: 1 } };
        assert_eq!((faults.unit_ns(), faults.frequency_hz(), faults.sample_count(5)), (None, None, 5));
        let calls = Event { name: "syscall-time".to_owned(), sampling: Sampling::Times { period: 1 } };
        assert_eq!((calls.unit_ns(), calls.frequency_hz(), calls.sample_count(5)), (Some(1), None, 5));
        assert!(calls.sampling.has_sums() && !faults.sampling.has_sums() && !waits.sampling.has_sums());
    }
}
