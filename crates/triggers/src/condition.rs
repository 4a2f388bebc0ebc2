//! Conditions as a user writes them.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{ConditionError, Measure, Values, expression::Expression, parser};

/// A condition as the user wrote it. The [crate documentation](crate#grammar) has the grammar.
///
/// ```
/// use profiler_triggers::{Condition, Measure};
///
/// let condition = Condition::parse("gc-pause > 200ms or psi.memory > 10%")?;
/// assert!(condition.measures().contains(&Measure::GcPause));
///
/// let error = Condition::parse("cpu < 20MB").unwrap_err();
/// let lines = ["expected the unit `%` as in `cpu < 20%`, found `MB`", "  cpu < 20MB", "          ^^"];
/// assert_eq!(error.to_string(), lines.join("\n"));
/// # Ok::<(), profiler_triggers::ConditionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    text: Box<str>,
    pub(crate) expression: Expression,
    /// The number of `for`.
    pub(crate) lasting: usize,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// When the text is not a condition. The message shows the place.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let parsed = parser::parse(text).map_err(|fault| ConditionError::new(text, &fault))?;
        Ok(Self { text: text.into(), expression: parsed.expression, lasting: parsed.lasting })
    }

    /// The measures that the condition reads. `exit != 0` reads [`Measure::Exit`] and [`Measure::ExitStatus`].
    #[must_use]
    pub fn measures(&self) -> BTreeSet<Measure> {
        self.measures_in_order().into_iter().cloned().collect()
    }

    /// The values of the measures that the condition reads, in the order of the text: `cpu 12.3 %, requests 40/s`.
    #[must_use]
    pub fn describe(&self, values: &Values) -> String {
        let described =
            self.measures_in_order().into_iter().map(|measure| measure.describe(values.get(measure)));
        described.collect::<Vec<_>>().join(", ")
    }

    /// Each measure once, in the order of the text.
    fn measures_in_order(&self) -> Vec<&Measure> {
        let (mut seen, mut measures) = (BTreeSet::new(), Vec::new());
        self.expression.for_each_measure(&mut |measure| {
            if seen.insert(measure) {
                measures.push(measure);
            }
        });
        measures
    }
}

impl fmt::Display for Condition {
    /// Writes the text as the user wrote it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        Self::parse(text)
    }
}
