//! The syntax tree of a condition.

use std::time::Duration;

use crate::{Measure, Truth, Values};

/// A part of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// The value of a measure against a number.
    Comparison(Comparison),
    /// The value of a measure is more than 0.
    Occurrence(Measure),
    Not(Box<Self>),
    /// `and`
    All(Vec<Self>),
    /// `or`
    Any(Vec<Self>),
    /// `for`
    Lasting(Box<Lasting>),
}

/// The comparison of a measure with a number in its base unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) measure: Measure,
    pub(crate) operator: Operator,
    pub(crate) bound: f64,
}

/// An expression that has to be true for a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lasting {
    pub(crate) expression: Expression,
    pub(crate) duration: Duration,
    /// The position among the [`Lasting`] of the condition, in the order of the text.
    pub(crate) index: usize,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    NotEqual,
}

impl Comparison {
    pub(crate) fn truth(&self, values: &Values) -> Truth {
        values
            .get(&self.measure)
            .map_or(Truth::Unknown, |value| self.operator.holds(value, self.bound).into())
    }
}

impl Operator {
    /// The operators with their signs. Longer signs precede those with which they begin.
    pub(crate) const SIGNS: [(&'static str, Self); 6] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        ("<", Self::Less),
        (">", Self::Greater),
    ];

    /// Whether it compares the order of two numbers, not their equality.
    pub(crate) fn is_ordering(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
            Self::Greater => value > bound,
            Self::AtLeast => value >= bound,
            Self::Equal => value == bound,
            Self::NotEqual => value != bound,
        }
    }
}

impl Expression {
    /// Calls `visit` with each measure, in the order of the text.
    pub(crate) fn for_each_measure<'a>(&'a self, visit: &mut impl FnMut(&'a Measure)) {
        match self {
            Self::Comparison(comparison) => visit(&comparison.measure),
            Self::Occurrence(measure) => visit(measure),
            Self::Not(operand) => operand.for_each_measure(visit),
            Self::All(operands) | Self::Any(operands) => {
                operands.iter().for_each(|operand| operand.for_each_measure(visit));
            }
            Self::Lasting(lasting) => lasting.expression.for_each_measure(visit),
        }
    }
}
