//! The events that are requested of a session, and their limits.

use std::{collections::HashSet, sync::Arc};

use super::{
    cpu_ticks::CpuTicks, kind::EventKind, occurrences::Occurrences, off_cpu::OffCpu, plan::EventPlan,
    wall::Wall,
};
use crate::{
    counted_event::CountedEvent,
    error::{Error, ErrorKind, Result},
    planned_event::PlannedEvent,
};

/// The default sampling frequency: samples per second on each CPU. It avoids lock-step with timers of 100 Hz.
pub const DEFAULT_FREQUENCY_HZ: u64 = 99;

/// The most events of a profiler that are sampled at their occurrences.
pub const MAX_COUNTED_EVENTS: usize = profiler_common::event::MAX_EVENTS;

/// The kernel's limit on the sampling frequency.
const MAX_RATE_SYSCTL: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// The events of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct EventSettings {
    /// Whether CPUs are sampled at each tick of their timers.
    pub cpu_samples: bool,
    /// The frequency of CPU samples, hertz.
    pub frequency_hz: u64,
    /// The frequency of wall-clock samples, hertz, if there are any.
    pub wall_hz: Option<u64>,
    /// Which waits are samples, if any are.
    pub off_cpu: Option<OffCpu>,
    /// Events that are sampled at their occurrences.
    pub counted: Vec<CountedEvent>,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            cpu_samples: true,
            frequency_hz: DEFAULT_FREQUENCY_HZ,
            wall_hz: None,
            off_cpu: None,
            counted: Vec::new(),
        }
    }
}

impl EventSettings {
    /// Checks that there is an event, and the frequencies.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn check_sampling(&self) -> Result<()> {
        for frequency_hz in [Some(self.frequency_hz), self.wall_hz].into_iter().flatten() {
            check_frequency(frequency_hz, max_frequency_hz())?;
        }
        if self.cpu_samples || self.wall_hz.is_some() || self.off_cpu.is_some() || !self.counted.is_empty() {
            Ok(())
        } else {
            Err(invalid("neither CPU samples nor another event is requested"))
        }
    }

    /// Checks the events that are sampled at their occurrences.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn check_counted(&self) -> Result<()> {
        let names: HashSet<&str> = self.counted.iter().map(CountedEvent::name).collect();
        if names.len() != self.counted.len() {
            return Err(invalid("an event is requested twice"));
        }
        if self.counted.len() > MAX_COUNTED_EVENTS {
            let message = format!("at most {MAX_COUNTED_EVENTS} events can be counted at once");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// The kinds of events of a session. `counted` are the counted events with the places of probes.
    pub fn plan(&self, counted: Vec<PlannedEvent>) -> EventPlan {
        let ticks = if self.cpu_samples {
            Some((self.frequency_hz, CpuTicks::CPU_CLOCK))
        } else {
            self.wall_hz.map(|wall_hz| (wall_hz, Wall::TICKS))
        };
        let timer_hz = ticks.map_or(0, |(timer_hz, _)| timer_hz);
        let kinds: [Option<Arc<dyn EventKind>>; 4] = [
            ticks.map(|(_, ticks)| Arc::new(ticks) as _),
            self.wall_hz.map(|frequency_hz| Arc::new(Wall { frequency_hz }) as _),
            self.off_cpu.map(|off_cpu| Arc::new(off_cpu) as _),
            (!counted.is_empty()).then(|| Arc::new(Occurrences { events: counted }) as _),
        ];
        EventPlan { timer_hz, kinds: kinds.into_iter().flatten().collect() }
    }
}

fn check_frequency(frequency_hz: u64, max_hz: Option<u64>) -> Result<()> {
    if frequency_hz == 0 {
        return Err(invalid("the sampling frequency is 0 Hz"));
    }
    match max_hz {
        Some(max) if frequency_hz > max => {
            let message = format!(
                "the sampling frequency of {frequency_hz} Hz exceeds the kernel's limit of {max} Hz \
                 (kernel.perf_event_max_sample_rate)"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

fn max_frequency_hz() -> Option<u64> {
    std::fs::read_to_string(MAX_RATE_SYSCTL).ok()?.trim().parse().ok()
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_frequency_above_the_limit_of_the_kernel_is_refused() {
        let error = check_frequency(5_000, Some(4_000)).unwrap_err();
        assert!(error.to_string().contains("4000 Hz"), "{error}");
        assert!(check_frequency(4_000, Some(4_000)).is_ok());
        assert!(check_frequency(4_000, None).is_ok());
    }

    #[test]
    fn what_a_kernel_does_not_support_is_left_out_where_samples_remain() {
        let reduced = |settings: &EventSettings| -> Vec<Vec<String>> {
            let names = |plan: &EventPlan| plan.events().into_iter().map(|event| event.name).collect();
            settings.plan(Vec::new()).reduced().iter().map(|(plan, _)| names(plan)).collect()
        };
        let off_cpu = Some(OffCpu { min_block: Duration::ZERO, wakers: false, only_disk: false });
        let waits = EventSettings { wall_hz: Some(49), off_cpu, ..EventSettings::default() };
        let expected = [vec!["cpu-clock", "off-cpu"], vec!["cpu-clock", "wall"], vec!["cpu-clock"]];
        assert_eq!(reduced(&waits), expected);
        assert!(reduced(&EventSettings { cpu_samples: false, ..waits }).is_empty());
        assert!(reduced(&EventSettings::default()).is_empty());
    }
}
