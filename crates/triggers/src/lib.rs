//! Conditions on what a process does, evaluated over time.
//!
//! A [`Condition`] is a text such as `cpu < 20% for 10s and requests > 0`. It reads [measures](Measure): quantities of
//! a process, of its cgroup and of its runtime. [`ProcessMeasures`] reads those that the kernel shows of any process,
//! from `/proc` and from cgroups of both versions, and [`LogLines`] counts lines of a log; the caller adds those of
//! the runtime and of signals to the [`Values`] of a moment. An [`Evaluator`] applies the values of one moment after
//! the other and returns an [`Incident`] when the condition becomes true.
//!
//! ```
//! use profiler_triggers::{Condition, Evaluator, Measure, Values};
//!
//! let condition: Condition = "cpu < 20% for 10s and requests > 0".parse()?;
//! let mut evaluator = Evaluator::new(condition);
//! let values: Values = [(Measure::Cpu, 0.123), (Measure::Requests, 40.0)].into_iter().collect();
//! let second = |number: u64| number * 1_000_000_000;
//! assert!((0..10).all(|number| evaluator.apply(second(number), &values).is_none()));
//! let incident = evaluator.apply(second(10), &values).expect("ten seconds have passed");
//! assert_eq!(incident.value, "cpu 12.3 %, requests 40/s");
//! # Ok::<(), profiler_triggers::ConditionError>(())
//! ```
//!
//! # Grammar
//!
//! EBNF of ISO/IEC 14977. Blanks separate words and are permitted between all symbols.
//!
#![doc = "```text"]
#![doc = include_str!("grammar.ebnf")]
#![doc = "```"]
//!
//! * `not` binds tighter than `and`, `and` tighter than `or`. `for` belongs to the comparison or the parentheses
//!   before it.
//! * Each [`Measure`] has one dimension, and the unit must be of that dimension. A number without a unit is permitted
//!   for 0, for counts and for counters; only a counter can be compared with a negative number.
//! * In a string, a backslash before the quote is removed. Before any other character it is part of the string, so
//!   that a regular expression needs no second backslash.
//! * A condition has at most [`MAX_CONDITION_BYTES`], and at most [`MAX_NESTING`] parentheses and `not` around one
//!   another.
//!
//! # Evaluation
//!
//! The logic has three values. A comparison of a measure without a value is [unknown](Truth::Unknown). `not` of
//! unknown is unknown, `and` is unknown unless one operand is false, `or` is unknown unless one operand is true (the
//! logic of Kleene). Only true starts an incident.
//!
//! `X for 10s` is true when `X` was true at every moment of the last ten seconds at which values were applied, from a
//! moment that is at least ten seconds ago. It is false while `X` is false or has not been true for so long, and
//! unknown while `X` is unknown: the time begins anew after both.
//!
//! A condition that stays true is one incident. After an incident, the condition must be false at one moment at least
//! before the next incident; unknown is not enough.

mod cgroup_measures;
mod cgroups;
mod condition;
mod condition_error;
mod dimension;
mod evaluator;
mod expression;
mod lexer;
mod line_pattern;
mod log_lines;
mod machine_measures;
mod measure;
mod online_cpus;
mod parser;
mod process_measures;
mod rate;
mod run_queue;
mod sys;
mod truth;
mod values;

/// The grammar of conditions, in the EBNF of ISO/IEC 14977.
pub const GRAMMAR: &str = include_str!("grammar.ebnf");

pub use self::{
    cgroup_measures::CgroupMeasures,
    condition::Condition,
    condition_error::ConditionError,
    evaluator::{Evaluator, Incident},
    line_pattern::LinePattern,
    log_lines::LogLines,
    machine_measures::MachineMeasures,
    measure::{Measure, MeasureSource},
    parser::{MAX_CONDITION_BYTES, MAX_NESTING},
    process_measures::ProcessMeasures,
    truth::Truth,
    values::Values,
};
