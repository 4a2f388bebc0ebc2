//! Tests of conditions over time.

mod idle_nights;

use super::*;
use crate::Measure;

const NS_PER_S: u64 = 1_000_000_000;

/// An evaluator of a condition on `threads` and `fds`, to which values are applied every second.
struct Seconds {
    evaluator: Evaluator,
    next: u64,
}

impl Seconds {
    fn new(condition: &str) -> Self {
        Self { evaluator: Evaluator::new(condition.parse().unwrap()), next: 0 }
    }

    /// Applies the values of the next second. Returns whether an incident begins.
    fn apply(&mut self, threads: Option<f64>, fds: Option<f64>) -> bool {
        let mut values = Values::default();
        values.set(Measure::Threads, threads);
        values.set(Measure::Fds, fds);
        let now_ns = self.next * NS_PER_S;
        self.next += 1;
        let incident = self.evaluator.apply(now_ns, &values);
        assert!(incident.as_ref().is_none_or(|incident| incident.time_ns == now_ns));
        incident.is_some()
    }

    /// The seconds in which an incident begins, for values of `threads`.
    fn incidents<const N: usize>(condition: &str, threads: [Option<f64>; N]) -> Vec<usize> {
        let mut seconds = Self::new(condition);
        let begins: Vec<_> = threads.map(|threads| seconds.apply(threads, None)).into();
        (0..N).filter(|second| begins[*second]).collect()
    }

    fn truth(condition: &str, threads: Option<f64>, fds: Option<f64>) -> Truth {
        let mut seconds = Self::new(condition);
        seconds.apply(threads, fds);
        seconds.evaluator.truth()
    }
}

/// A value for which `threads > 5` is true, and one for which it is false.
const HIGH: Option<f64> = Some(9.0);
const LOW: Option<f64> = Some(1.0);

#[test]
fn comparisons_are_strict_or_not_as_written() {
    for (operator, holds) in [
        ("<", [true, false, false]),
        ("<=", [true, true, false]),
        (">", [false, false, true]),
        (">=", [false, true, true]),
    ] {
        for (value, holds) in [4.0, 5.0, 6.0].into_iter().zip(holds) {
            assert_eq!(
                Seconds::truth(&format!("threads {operator} 5"), Some(value), None),
                holds.into(),
                "{operator}"
            );
        }
    }
}

#[test]
fn a_measure_without_a_value_is_unknown() {
    let truth = |condition| Seconds::truth(condition, HIGH, None);
    assert_eq!(truth("fds > 1"), Truth::Unknown);
    assert_eq!(truth("not fds > 1"), Truth::Unknown);
    assert_eq!(truth("threads > 5 and fds > 1"), Truth::Unknown);
    assert_eq!(truth("threads < 5 and fds > 1"), Truth::False);
    assert_eq!(truth("threads > 5 or fds > 1"), Truth::True);
    assert_eq!(truth("threads < 5 or fds > 1"), Truth::Unknown);
    assert_eq!(truth("fds > 1 for 1s"), Truth::Unknown);
    assert_eq!(truth("signal"), Truth::Unknown);
}

#[test]
fn an_incident_has_the_moment_the_condition_and_the_values() {
    let mut evaluator = Evaluator::new("threads > 5  or fds > 1".parse().unwrap());
    let values = [(Measure::Threads, 9.0)].into_iter().collect();
    let incident = evaluator.apply(17, &values).unwrap();
    let wanted = Incident {
        time_ns: 17,
        since_ns: 17,
        condition: "threads > 5  or fds > 1".into(),
        value: "threads 9, fds unknown".into(),
    };
    assert_eq!(incident, wanted);
}

#[test]
fn a_condition_that_stays_true_is_one_incident() {
    assert_eq!(Seconds::incidents("threads > 5", [HIGH, HIGH, LOW, LOW, HIGH, LOW, HIGH]), [0, 4, 6]);
}

#[test]
fn only_a_moment_at_which_the_condition_is_false_permits_the_next_incident() {
    assert_eq!(Seconds::incidents("threads > 5", [None, HIGH, None, HIGH, LOW, None, HIGH]), [1, 6]);
}

#[test]
fn a_duration_begins_with_the_first_true_moment() {
    assert_eq!(Seconds::incidents("threads > 5 for 3s", [LOW, HIGH, HIGH, HIGH, HIGH, HIGH]), [4]);
    assert_eq!(Seconds::incidents("threads > 5 for 2500ms", [HIGH, HIGH, HIGH, HIGH]), [3]);
}

#[test]
fn a_duration_begins_anew_when_its_expression_is_false_or_unknown() {
    for interruption in [LOW, None] {
        let threads = [HIGH, HIGH, interruption, HIGH, HIGH, HIGH];
        assert_eq!(Seconds::incidents("threads > 5 for 2s", threads), [5], "{interruption:?}");
    }
}

#[test]
fn an_expression_that_has_not_been_true_for_the_time_is_false() {
    // A pulse that is shorter than the time permits the next incident, because the condition is false in it.
    let threads = [HIGH, HIGH, LOW, HIGH, HIGH];
    assert_eq!(Seconds::incidents("threads > 5 for 1s", threads), [1, 4]);
    assert_eq!(Seconds::truth("not threads > 5 for 1s", HIGH, None), Truth::True);
}

#[test]
fn each_duration_sees_every_moment() {
    let mut seconds = Seconds::new("threads > 5 and fds > 5 for 2s");
    // `fds > 5` is true for two seconds while `threads > 5` is false.
    let begins = [LOW, LOW, LOW, HIGH].map(|threads| seconds.apply(threads, HIGH));
    assert_eq!(begins, [false, false, false, true]);
}

#[test]
fn an_incident_has_the_moment_since_which_its_duration_counts() {
    let mut evaluator = Evaluator::new("threads > 5 for 2s and fds > 5 for 1s".parse().unwrap());
    let values = [(Measure::Threads, 9.0), (Measure::Fds, 1.0)].into_iter().collect();
    assert_eq!(evaluator.apply(NS_PER_S, &values), None);
    let values = [(Measure::Threads, 9.0), (Measure::Fds, 9.0)].into_iter().collect();
    assert_eq!(evaluator.apply(2 * NS_PER_S, &values), None);
    let incident = evaluator.apply(3 * NS_PER_S, &values).unwrap();
    assert_eq!((incident.since_ns, incident.time_ns), (NS_PER_S, 3 * NS_PER_S));
}

#[test]
fn durations_can_be_nested() {
    let mut seconds = Seconds::new("(threads > 5 for 1s and fds > 5) for 2s");
    let begins = [HIGH; 6].map(|value| seconds.apply(value, value));
    assert_eq!(begins, [false, false, false, true, false, false]);
}

#[test]
fn a_comparison_of_the_exit_status_is_false_before_the_end() {
    let mut evaluator = Evaluator::new("exit != 0".parse().unwrap());
    let mut values: Values = [(Measure::Exit, 0.0)].into_iter().collect();
    assert!(evaluator.apply(0, &values).is_none());
    assert_eq!(evaluator.truth(), Truth::False);
    values.set(Measure::Exit, Some(1.0));
    assert!(evaluator.apply(1, &values).is_none());
    assert_eq!(evaluator.truth(), Truth::Unknown);
    values.set(Measure::ExitStatus, Some(139.0));
    assert_eq!(evaluator.apply(2, &values).unwrap().value, "exited, exit status 139");
}

#[test]
fn occurrences_are_counts_of_an_interval() {
    let mut evaluator = Evaluator::new("signal or pool-starvation".parse().unwrap());
    let begins = [(0.0, 0.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.5)].map(|(signals, rate)| {
        let values = [(Measure::Signal, signals), (Measure::PoolStarvation, rate)].into_iter().collect();
        evaluator.apply(0, &values).is_some()
    });
    assert_eq!(begins, [false, true, false, true]);
}

#[test]
fn a_clock_that_goes_back_is_no_time() {
    let mut evaluator = Evaluator::new("threads > 5 for 1s".parse().unwrap());
    let values = [(Measure::Threads, 9.0)].into_iter().collect();
    assert!([NS_PER_S, 0, NS_PER_S].iter().all(|now_ns| evaluator.apply(*now_ns, &values).is_none()));
    assert!(evaluator.apply(2 * NS_PER_S, &values).is_some());
}
