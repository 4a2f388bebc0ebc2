//! Evaluates a condition over time.

#[cfg(test)]
mod tests;

use crate::{
    Condition, Truth, Values,
    expression::{Expression, Lasting},
};

/// Evaluates a condition over time: how long parts of it have been true (`for`), and whether it becomes true.
///
/// The first incident can be at the first moment. A condition that stays true is one incident: the next one begins
/// when it has been false at one moment at least. A moment at which it is unknown changes nothing.
#[derive(Clone, Debug)]
pub struct Evaluator {
    condition: Condition,
    /// Since when the expression of each `for` has been true.
    true_since_ns: Vec<Option<u64>>,
    truth: Truth,
    /// Whether it has been false since the last incident.
    is_armed: bool,
}

/// The moment at which a condition became true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// When the values were applied: nanoseconds of the caller's clock.
    pub time_ns: u64,
    /// The earliest moment since which the expression of a `for` has been true; `time_ns` in a condition without `for`.
    pub since_ns: u64,
    /// The condition as the user wrote it.
    pub condition: String,
    /// The values of its measures: `cpu 12.3 %, requests 40/s`.
    pub value: String,
}

impl Evaluator {
    /// Begins without any value.
    #[must_use]
    pub fn new(condition: Condition) -> Self {
        let true_since_ns = vec![None; condition.lasting];
        Self { condition, true_since_ns, truth: Truth::Unknown, is_armed: true }
    }

    /// Applies the values of a moment: nanoseconds of a clock that does not go back (`CLOCK_MONOTONIC`). Returns the
    /// incident when the condition becomes true.
    ///
    /// Times of `for` are measured between moments, so that an incident is at most two intervals between moments late
    /// and never early.
    pub fn apply(&mut self, now_ns: u64, values: &Values) -> Option<Incident> {
        let mut moment = Moment { now_ns, values, true_since_ns: &mut self.true_since_ns };
        self.truth = moment.truth(&self.condition.expression);
        let begins = self.truth == Truth::True && self.is_armed;
        match self.truth {
            Truth::True => self.is_armed = false,
            Truth::False => self.is_armed = true,
            Truth::Unknown => {}
        }
        begins.then(|| Incident {
            time_ns: now_ns,
            since_ns: self.true_since_ns.iter().flatten().copied().min().unwrap_or(now_ns),
            condition: self.condition.to_string(),
            value: self.condition.describe(values),
        })
    }

    /// The condition.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Whether the condition held at the last moment.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.truth
    }
}

/// The state of an evaluation at one moment.
struct Moment<'a> {
    now_ns: u64,
    values: &'a Values,
    true_since_ns: &'a mut [Option<u64>],
}

impl Moment<'_> {
    /// Evaluates all operands, because each `for` has to see each moment.
    fn truth(&mut self, expression: &Expression) -> Truth {
        match expression {
            Expression::Comparison(comparison) => comparison.truth(self.values),
            Expression::Occurrence(measure) => {
                self.values.get(measure).map_or(Truth::Unknown, |value| (value > 0.0).into())
            }
            Expression::Not(operand) => !self.truth(operand),
            Expression::All(operands) => Truth::all(self.truths(operands)),
            Expression::Any(operands) => Truth::any(self.truths(operands)),
            Expression::Lasting(lasting) => self.truth_of_lasting(lasting),
        }
    }

    fn truths(&mut self, operands: &[Expression]) -> Vec<Truth> {
        operands.iter().map(|operand| self.truth(operand)).collect()
    }

    fn truth_of_lasting(&mut self, lasting: &Lasting) -> Truth {
        let truth = self.truth(&lasting.expression);
        let Some(since_ns) = self.true_since_ns.get_mut(lasting.index) else { return Truth::Unknown };
        if truth != Truth::True {
            *since_ns = None;
            return truth;
        }
        let since_ns = *since_ns.get_or_insert(self.now_ns);
        (u128::from(self.now_ns.saturating_sub(since_ns)) >= lasting.duration.as_nanos()).into()
    }
}
