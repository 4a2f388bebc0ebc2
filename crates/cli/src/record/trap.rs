//! Decides when an incident is recorded: from the conditions to the end of the time after it.

use std::{collections::BTreeSet, time::Duration};

use profiler_triggers::{Condition, Evaluator, Incident, Measure, Values};

use super::nanoseconds;

/// The conditions and the incident that is being recorded.
#[derive(Debug)]
pub(super) struct Trap {
    evaluators: Vec<Evaluator>,
    limits: Limits,
    /// The moment of the last incident, `CLOCK_MONOTONIC` nanoseconds.
    last_ns: Option<u64>,
    recorded: Option<Incident>,
}

/// What limits the incidents that are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The time that is recorded after an incident.
    pub(super) after: Duration,
    /// The shortest time from one recorded incident to the next.
    pub(super) cooldown: Duration,
}

impl Trap {
    /// `last_ns`: the moment of an incident before.
    pub(super) fn new(conditions: &[Condition], limits: Limits, last_ns: Option<u64>) -> Self {
        let evaluators = conditions.iter().cloned().map(Evaluator::new).collect();
        Self { evaluators, limits, last_ns, recorded: None }
    }

    /// Replaces the conditions. An incident that is being recorded goes on.
    pub(super) fn replace(&mut self, conditions: &[Condition]) {
        self.evaluators = conditions.iter().cloned().map(Evaluator::new).collect();
    }

    /// Applies the values of an interval: its end and its length, `CLOCK_MONOTONIC` nanoseconds. Returns the incident if one
    /// begins. Incidents during another one and in the cooldown after it are left out.
    pub(super) fn apply(&mut self, now_ns: u64, interval_ns: u64, values: &Values) -> Option<&Incident> {
        // Each condition sees each moment: `for` counts them.
        let incidents: Vec<_> =
            self.evaluators.iter_mut().filter_map(|evaluator| evaluator.apply(now_ns, values)).collect();
        let mut incident = incidents.into_iter().next()?;
        // The values are those of the interval before the moment.
        incident.since_ns = incident.since_ns.saturating_sub(interval_ns);
        if self.recorded.is_some() || self.is_in_cooldown(now_ns) {
            log::info!("left out, too soon after the last incident: {}", incident.condition);
            return None;
        }
        self.last_ns = Some(now_ns);
        self.recorded = Some(incident);
        self.recorded.as_ref()
    }

    /// Takes the incident when the time after it is over.
    pub(super) fn take_complete(&mut self, now_ns: u64) -> Option<Incident> {
        let after_ns = nanoseconds(self.limits.after);
        self.recorded.take_if(|incident| now_ns.saturating_sub(incident.time_ns) >= after_ns)
    }

    /// Takes the incident at the end of sampling.
    pub(super) fn take(&mut self) -> Option<Incident> {
        self.recorded.take()
    }

    fn is_in_cooldown(&self, now_ns: u64) -> bool {
        self.last_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) < nanoseconds(self.limits.cooldown))
    }
}

/// The measures that conditions read.
pub(super) fn measures(conditions: &[Condition]) -> BTreeSet<Measure> {
    conditions.iter().flat_map(Condition::measures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    /// The seconds at which incidents begin and are complete, for the CPU use of each second in percent.
    fn run(limits: Limits, last_ns: Option<u64>, cpu_percent: &[f64]) -> (Vec<u64>, Vec<u64>) {
        let condition: Condition = "cpu < 20% for 3s".parse().unwrap();
        let mut trap = Trap::new(&[condition], limits, last_ns);
        let (mut begun, mut complete) = (Vec::new(), Vec::new());
        for (second, percent) in (0..).zip(cpu_percent) {
            let mut values = Values::default();
            values.set(Measure::Cpu, Some(percent / 100.0));
            if let Some(incident) = trap.apply(second * NS_PER_S, NS_PER_S, &values) {
                assert_eq!(incident.since_ns, second.saturating_sub(4) * NS_PER_S);
                begun.push(second);
            }
            if trap.take_complete(second * NS_PER_S).is_some() {
                complete.push(second);
            }
        }
        (begun, complete)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_incident_is_complete_after_its_time() {
        let limits = Limits { after: 2 * SECOND, cooldown: Duration::ZERO };
        let cpu = [90.0, 90.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 90.0];
        assert_eq!(run(limits, None, &cpu), (vec![5], vec![7]));
        let limits = Limits { after: Duration::ZERO, ..limits };
        assert_eq!(run(limits, None, &cpu), (vec![5], vec![5]));
    }

    #[test]
    fn nights_without_work_are_no_incidents() {
        const NIGHT_SECONDS: u64 = 8 * 3600;
        let condition: Condition = "cpu < 20% for 10s and requests > 0".parse().unwrap();
        let limits = Limits { after: Duration::ZERO, cooldown: Duration::ZERO };
        let mut trap = Trap::new(&[condition], limits, None);
        for second in 0..NIGHT_SECONDS {
            let values = [(Measure::Cpu, 0.003), (Measure::Requests, 0.0)].into_iter().collect();
            assert!(trap.apply(second * NS_PER_S, NS_PER_S, &values).is_none(), "second {second}");
        }
        // The first request in the morning waits for ten seconds.
        let values = [(Measure::Cpu, 0.003), (Measure::Requests, 1.0)].into_iter().collect();
        assert!(trap.apply(NIGHT_SECONDS * NS_PER_S, NS_PER_S, &values).is_some());
    }

    #[test]
    fn incidents_in_the_cooldown_are_left_out() {
        let storm: Vec<_> = (0..60).map(|second| if second % 5 < 4 { 5.0 } else { 90.0 }).collect();
        let limits = Limits { after: SECOND, cooldown: Duration::ZERO };
        assert_eq!(run(limits, None, &storm).0.len(), 12);
        let limits = Limits { cooldown: 20 * SECOND, ..limits };
        assert_eq!(run(limits, None, &storm).0, [3, 23, 43]);
        // A recorder that starts again goes on with the cooldown of the last file.
        assert_eq!(run(limits, Some(0), &storm).0, [23, 43]);
    }
}
