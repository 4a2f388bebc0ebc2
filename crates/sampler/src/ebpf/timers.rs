//! The timer events of one CPU: several with different periods, so that samples do not align with periodic work.
//!
//! Ticks with one period beat with work that sleeps and wakes in a constant rhythm. Worse, the kernel runs every timer
//! that may expire in the interrupt of a tick (`__hrtimer_run_queues`, timer slack in prctl(2)): sleepers wake right
//! after a tick, have computed before the next one, and stay in step with the ticks. Several slower events with random
//! rates have as many interrupts together, and each of them can lead only its share of the sleepers astray.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    os::fd::BorrowedFd,
    time::Duration,
};

use crate::{
    counts::TimerCounts,
    sys::{
        perf::{EventType, PerfEvent},
        sysctl,
    },
};

const NS_PER_S: u64 = 1_000_000_000;

/// The events of a CPU.
const EVENTS: u32 = 8;

/// The rate of an event differs from the mean by at most this share.
const SPREAD: f64 = 0.25;

/// The ticks of the [opening event](CpuTimers::opening).
const OPENING_TICKS: u32 = EVENTS / 2;

/// The timer events of one CPU. Dropping it detaches the program.
#[derive(Debug)]
pub(super) struct CpuTimers {
    events: Vec<Timer>,
    /// Ticks at the whole frequency until [`end_opening`](Self::end_opening): the other events tick for the first time
    /// after about [`EVENTS`] of its periods, and each lags half a tick behind its rate.
    opening: Option<Timer>,
    /// The enabled time of the first event at the last check.
    enabled_ns: u64,
}

/// An event and its period.
#[derive(Debug)]
struct Timer {
    event: PerfEvent,
    period_ns: u64,
}

impl CpuTimers {
    /// Opens the events, disabled. The sum of their sampling frequencies is `frequency_hz`; 0 opens no event.
    pub(super) fn open(cpu: u32, frequency_hz: u64) -> io::Result<Self> {
        if frequency_hz == 0 {
            return Ok(Self { events: Vec::new(), opening: None, enabled_ns: 0 });
        }
        let open = |period_ns| {
            Ok(Timer { event: PerfEvent::open(cpu, EventType::CPU_CLOCK, period_ns)?, period_ns })
        };
        let events = periods_ns(frequency_hz, &mut random_fraction).map(open).collect::<io::Result<_>>()?;
        Ok(Self { events, opening: Some(open(NS_PER_S / frequency_hz.clamp(1, NS_PER_S))?), enabled_ns: 0 })
    }

    /// Attaches `program`, which runs at each tick, and enables the events.
    pub(super) fn start(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.timers().try_for_each(|timer| timer.event.start(program))
    }

    /// The time from the start to the end of the opening event.
    pub(super) fn opening_time(frequency_hz: u64) -> Duration {
        // Half a period later, so that its last tick is there.
        Duration::from_nanos(
            NS_PER_S / frequency_hz.clamp(1, NS_PER_S) * u64::from(2 * OPENING_TICKS + 1) / 2,
        )
    }

    /// Closes the opening event, and adds its ticks.
    pub(super) fn end_opening(&mut self, counts: &mut TimerCounts) -> io::Result<()> {
        self.opening.take().map_or(Ok(()), |timer| timer.add_to(counts))
    }

    /// Disables the events.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.timers().try_for_each(|timer| timer.event.stop())
    }

    /// Whether the CPU was offline since the last call.
    pub(super) fn is_stalled(&mut self) -> bool {
        let Some(first) = self.events.first() else { return false };
        let read = first.event.enabled_ns().ok();
        let enabled_ns = read.unwrap_or(self.enabled_ns);
        std::mem::replace(&mut self.enabled_ns, enabled_ns) == enabled_ns
    }

    /// Adds the ticks that were due.
    pub(super) fn add_to(&self, counts: &mut TimerCounts) -> io::Result<()> {
        self.timers().try_for_each(|timer| timer.add_to(counts))
    }

    fn timers(&self) -> impl Iterator<Item = &Timer> {
        self.events.iter().chain(&self.opening)
    }
}

impl Timer {
    fn add_to(&self, counts: &mut TimerCounts) -> io::Result<()> {
        counts.due += self.event.enabled_ns()? / self.period_ns;
        Ok(())
    }
}

/// Whether the kernel suspends events of these timers: `__perf_event_account_interrupt` of `kernel/events/core.c` allows
/// an event as many interrupts in each tick of the scheduler as `kernel.perf_event_max_sample_rate` has. The kernel lowers
/// the limit itself when interrupts take too long (`kernel.perf_cpu_time_max_percent`).
pub(super) fn are_throttled(frequency_hz: u64) -> bool {
    let fastest_hz = frequency_hz as f64 / f64::from(EVENTS) * (1.0 + SPREAD);
    let limit_hz = sysctl("perf_event_max_sample_rate");
    limit_hz.is_some_and(|limit_hz| fastest_hz >= limit_hz as f64)
}

/// The periods of the events of one CPU: one random rate in each of equal parts of the spread, which add up to
/// `frequency_hz`.
fn periods_ns(frequency_hz: u64, random: &mut dyn FnMut() -> f64) -> impl Iterator<Item = u64> {
    let position = |event: u32, random: f64| (f64::from(event) + random) / f64::from(EVENTS);
    let weights: Vec<f64> =
        (0..EVENTS).map(|event| 1.0 - SPREAD + 2.0 * SPREAD * position(event, random())).collect();
    let hz_per_weight = frequency_hz as f64 / weights.iter().sum::<f64>();
    weights.into_iter().map(move |weight| (NS_PER_S as f64 / (hz_per_weight * weight)).round() as u64)
}

/// A random number from 0 up to 1.
pub(super) fn random_fraction() -> f64 {
    // The seed of each state is random.
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_a_cpu_differ_and_add_up_to_the_frequency() {
        for frequency_hz in [1, 19, 99, 997, 9_999] {
            let mut periods: Vec<u64> = periods_ns(frequency_hz, &mut random_fraction).collect();
            let hz: f64 = periods.iter().map(|period_ns| 1e9 / *period_ns as f64).sum();
            assert!((hz / frequency_hz as f64 - 1.0).abs() < 1e-4, "{hz} instead of {frequency_hz}");
            periods.dedup();
            assert_eq!(periods.len(), EVENTS as usize);
        }
    }

    #[test]
    fn the_rates_are_spread_around_their_mean() {
        for fraction in [0.0, 0.5, 0.999] {
            let mean_ns = 1e9 * f64::from(EVENTS) / 99.0;
            for period_ns in periods_ns(99, &mut || fraction) {
                let share = mean_ns / period_ns as f64;
                assert!((0.7..1.4).contains(&share), "{share}");
            }
        }
    }
}
