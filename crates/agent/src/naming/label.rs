//! Labels that the user adds to every resource.

use std::str::FromStr;

use super::text::{self, MAX_VALUE_BYTES};

/// Longest name of a label, bytes.
const MAX_NAME_BYTES: usize = 100;

/// A label of all resources: `K=V`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub(super) name: String,
    pub(super) value: String,
}

/// A text that is not a valid label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a valid label: give `NAME=VALUE` with a name of letters, digits, `_` and `.` that begins with a letter, and a value \
     of 1 to {MAX_VALUE_BYTES} bytes",
    profiler_profile_formats::printable(.text)
)]
pub struct InvalidLabel {
    text: String,
}

impl FromStr for Label {
    type Err = InvalidLabel;

    fn from_str(text: &str) -> Result<Self, InvalidLabel> {
        let invalid = || InvalidLabel { text: text.to_owned() };
        let (name, value) = text.split_once('=').ok_or_else(invalid)?;
        let is_kept = text::value(value).is_some_and(|kept| kept == value);
        if !is_name(name) || !is_kept {
            return Err(invalid());
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// Whether a name is valid in OpenTelemetry and, with underscores for dots, in Prometheus and Pyroscope.
fn is_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_checked() {
        let label: Label = "deployment.environment.name=prod=1".parse().unwrap();
        assert_eq!((&*label.name, &*label.value), ("deployment.environment.name", "prod=1"));
        let long = format!("a={}", "x".repeat(MAX_VALUE_BYTES + 1));
        for invalid in ["", "a", "=b", "a=", "1a=b", "__name__=b", "a-b=c", "a=\n", "a= b", "\u{e9}=b", &long]
        {
            let error = invalid.parse::<Label>().unwrap_err().to_string();
            assert!(error.contains("NAME=VALUE"), "{error}");
        }
    }
}
