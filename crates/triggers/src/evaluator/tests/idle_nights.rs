//! Tests that a service without load starts no incident in a month of nights, by a simulated clock.

use super::super::*;
use crate::Measure;

const NS_PER_MS: u64 = 1_000_000;
const MS_PER_S: u64 = 1_000;
const NIGHTS: u64 = 30;
const NIGHT_S: u64 = 8 * 3_600;
/// The time between two moments of a recorder.
const INTERVAL_MS: u64 = 800;
/// The resolution of CPU time in `/proc/PID/stat`.
const TICK_MS: u64 = 10;
/// A probe of the kubelet.
const PROBE_S: u64 = 10;
const COLLECTION_S: u64 = 300;
/// A task that writes reports for four seconds, each hour.
const TASK_S: u64 = 3_600;
const TASK_LASTS_S: u64 = 4;

/// Conditions that ask for work that is slow, or for what no healthy service does.
const CONDITIONS: [&str; 10] = [
    "cpu < 20% for 10s and requests > 5/s",
    "cpu < 20% for 10s and counter(threadpool-thread-count) > 20",
    "cpu > 80% for 5s",
    "gc-pause > 200ms",
    "gc-share > 10% for 2s",
    "exceptions > 50/s",
    "pool-starvation",
    "throttled > 10% or runnable > 100% for 2s",
    "memory > 90% or rss > 2GB",
    "request-time p99 > 500ms and requests > 5/s",
];

/// A linear congruential generator.
struct Random(u64);

impl Random {
    /// The next number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The values of a service at a moment of a night.
fn values(second: u64, interval_ms: u64, random: &mut Random) -> Values {
    let begins = |period_s: u64| second % period_s < interval_ms / MS_PER_S + 1;
    let runs_task = second % TASK_S < TASK_LASTS_S;
    let cpu_ms = if runs_task { interval_ms * 9 / 10 } else { random.below(2 * TICK_MS) };
    let cpu_ms = cpu_ms / TICK_MS * TICK_MS;
    let interval_s = interval_ms as f64 / MS_PER_S as f64;
    let pause_s = if begins(COLLECTION_S) { 0.015 + random.below(40) as f64 / 1e3 } else { 0.0 };
    let mut values: Values = [
        (Measure::Cpu, cpu_ms as f64 / interval_ms as f64),
        (Measure::Runnable, random.below(30) as f64 / 100.0),
        (Measure::Throttled, 0.0),
        (Measure::Rss, 3e8 + random.below(50_000_000) as f64),
        (Measure::Memory, 0.4 + random.below(100) as f64 / 1e3),
        (Measure::GcPause, pause_s),
        (Measure::GcShare, pause_s / interval_s),
        (Measure::Exceptions, if runs_task { 3.0 / interval_s } else { 0.0 }),
        (Measure::PoolStarvation, 0.0),
        (Measure::Requests, if begins(PROBE_S) { 1.0 / interval_s } else { 0.0 }),
        (Measure::Counter { name: "threadpool-thread-count".to_owned() }, 4.0),
    ]
    .into_iter()
    .collect();
    // An interval without a request has no time of requests.
    values.set(Measure::RequestTimeP99, begins(PROBE_S).then_some(0.9));
    if random.below(50) == 0 {
        // A file of /proc that could not be read, events that came late.
        values.set(Measure::Cpu, None);
        values.set(Measure::Requests, None);
    }
    values
}

/// The incidents of all conditions. `change`: what happens in a night, by the second.
fn incidents(nights: u64, change: impl Fn(u64, &mut Values)) -> Vec<Incident> {
    let mut random = Random(7);
    let mut evaluators = CONDITIONS.map(|condition| Evaluator::new(condition.parse().unwrap()));
    let mut incidents = Vec::new();
    let (mut now_ms, end_ms) = (0, nights * NIGHT_S * MS_PER_S);
    while now_ms < end_ms {
        let interval_ms = INTERVAL_MS + random.below(40);
        now_ms += interval_ms;
        let second = now_ms / MS_PER_S;
        let mut values = values(second, interval_ms, &mut random);
        change(second, &mut values);
        incidents.extend(evaluators.iter_mut().filter_map(|all| all.apply(now_ms * NS_PER_MS, &values)));
    }
    incidents
}

#[test]
fn a_month_of_idle_nights_has_no_incident() {
    assert_eq!(incidents(NIGHTS, |_, _| ()), []);
}

#[test]
fn what_happens_once_in_a_night_is_one_incident() {
    const AT_S: u64 = 4 * 3_600;
    let hangs = |second: u64, values: &mut Values| {
        if (AT_S..AT_S + 60).contains(&second) {
            values.set(Measure::Cpu, Some(0.01));
            values.set(Measure::Requests, Some(40.0));
            values.set(Measure::RequestTimeP99, Some(0.4));
        }
    };
    let found = incidents(1, hangs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].condition, CONDITIONS[0]);
    // The CPU was idle for ten seconds before.
    let late_ms = found[0].time_ns / NS_PER_MS - AT_S * MS_PER_S;
    assert!(late_ms <= 2 * INTERVAL_MS + 80, "{late_ms} ms");
}
