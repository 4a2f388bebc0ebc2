//! The values of measures at one moment.

use std::collections::BTreeMap;

use crate::Measure;

/// The values of measures at one moment, in the base units of [`Measure`]. A measure without a value makes comparisons
/// [unknown](crate::Truth::Unknown).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    values: BTreeMap<Measure, f64>,
}

impl Values {
    /// Sets or removes the value of a measure. Infinite values and NaN are no values.
    pub fn set(&mut self, measure: Measure, value: Option<f64>) {
        match value.filter(|value| value.is_finite()) {
            Some(value) => self.values.insert(measure, value),
            None => self.values.remove(&measure),
        };
    }

    /// The value of a measure.
    #[must_use]
    pub fn get(&self, measure: &Measure) -> Option<f64> {
        self.values.get(measure).copied()
    }
}

impl FromIterator<(Measure, f64)> for Values {
    fn from_iter<I: IntoIterator<Item = (Measure, f64)>>(pairs: I) -> Self {
        let mut values = Self::default();
        pairs.into_iter().for_each(|(measure, value)| values.set(measure, Some(value)));
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_finite_and_can_be_removed() {
        let mut values: Values = [(Measure::Cpu, 0.5), (Measure::Rss, f64::NAN)].into_iter().collect();
        assert_eq!((values.get(&Measure::Cpu), values.get(&Measure::Rss)), (Some(0.5), None));
        values.set(Measure::Cpu, Some(f64::INFINITY));
        assert_eq!(values, Values::default());
    }
}
