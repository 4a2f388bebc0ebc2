//! Conditions of events: the comparison of a field with a number.

use std::str::FromStr;

use profiler_common::event::Comparison;

/// A condition on which an occurrence of a [`CountedEvent`](crate::CountedEvent) counts: `FIELD > NUMBER`, with one of `==`,
/// `!=`, `<`, `<=`, `>`, `>=`.
///
/// ```
/// use profiler_sampler::EventCondition;
///
/// assert!("bytes >= 0x1000".parse::<EventCondition>().is_ok());
/// assert!("bytes".parse::<EventCondition>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventCondition {
    pub(crate) field: String,
    pub(crate) comparison: Comparison,
    pub(crate) number: i64,
}

/// A text that is not a valid condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid condition (FIELD > NUMBER, with ==, !=, <, <=, > or >=)")]
pub struct InvalidCondition {
    text: String,
}

/// Longer operators precede those with which they begin.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl FromStr for EventCondition {
    type Err = InvalidCondition;

    fn from_str(text: &str) -> Result<Self, InvalidCondition> {
        let parse = || {
            let (operator, comparison) =
                COMPARISONS.into_iter().find(|(operator, _)| text.contains(operator))?;
            let (field, number) = text.split_once(operator)?;
            let field = field.trim();
            let is_field = !field.is_empty()
                && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
            let number = parse_number(number.trim())?;
            is_field.then(|| Self { field: field.to_owned(), comparison, number })
        };
        parse().ok_or_else(|| InvalidCondition { text: text.to_owned() })
    }
}

/// Parses a decimal number, or a hexadecimal one that starts with `0x`.
fn parse_number(text: &str) -> Option<i64> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    number.checked_mul(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_a_field_a_comparison_and_a_number() {
        let parsed = |text: &str| {
            let EventCondition { field, comparison, number } = text.parse().unwrap();
            (field, comparison, number)
        };
        let bytes = |comparison, number| ("bytes".to_owned(), comparison, number);
        assert_eq!(parsed("bytes > 4096"), bytes(Comparison::Greater, 4096));
        assert_eq!(parsed("bytes>=0x10"), bytes(Comparison::AtLeast, 16));
        assert_eq!(parsed("bytes != -1"), bytes(Comparison::NotEqual, -1));
        assert_eq!(parsed("prev.pid == 7").0, "prev.pid");
    }

    #[test]
    fn other_texts_are_no_conditions() {
        for text in
            ["", "bytes", "> 5", "bytes >", "bytes = 5", "bytes > x", "bytes > 1 && id < 2", "a b > 1"]
        {
            let error = text.parse::<EventCondition>().unwrap_err().to_string();
            assert!(error.contains("FIELD > NUMBER"), "{error}");
        }
    }
}
