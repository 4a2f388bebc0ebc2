//! Filter values: regular expressions, process and thread ids or names, minimum shares.

use std::str::FromStr;

use regex::Regex;

use crate::FilterError;

/// A regular expression that matches anywhere in a name, as pprof's do, in the syntax of the
/// [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate (that of RE2).
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
}

impl Pattern {
    /// A pattern that matches this text and no other.
    ///
    /// # Errors
    /// [`FilterError::Pattern`] when the text is too long for a regular expression.
    pub fn exact(text: &str) -> Result<Self, FilterError> {
        format!("^{}$", regex::escape(text)).parse()
    }

    /// Whether it matches anywhere in a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The source text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }
}

impl FromStr for Pattern {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let refused = |error: regex::Error| {
            let reason = match error {
                regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
                // The last line of the message is the cause; the lines before it show the position.
                error => error.to_string().lines().last().unwrap_or_default().trim().replace("error: ", ""),
            };
            FilterError::Pattern { text: text.to_owned(), reason }
        };
        Ok(Self { regex: Regex::new(text).map_err(refused)? })
    }
}

/// Selects a thread or process by id, or several by name.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The thread or process with this id.
    Id(u32),
    /// All whose name matches.
    Name(Pattern),
}

impl Choice {
    pub(super) fn matches(&self, id: u32, name: &str) -> bool {
        match self {
            Self::Id(chosen) => *chosen == id,
            Self::Name(pattern) => pattern.matches(name),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Name(pattern) => pattern.as_str().to_owned(),
        }
    }
}

impl FromStr for Choice {
    type Err = FilterError;

    /// Parses a number as an id and any other text as a pattern for names.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

/// A share of all samples, 0 to 100 percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    percent: f64,
}

impl Share {
    /// A share of `percent`, clamped to 0 to 100.
    #[must_use]
    pub fn from_percent(percent: f64) -> Self {
        Self { percent: if percent.is_nan() { 0.0 } else { percent.clamp(0.0, 100.0) } }
    }

    /// The share in percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        self.percent
    }

    pub(super) fn is_reached_by(self, count: u64, total: u64) -> bool {
        count as f64 * 100.0 >= self.percent * total as f64
    }
}

impl FromStr for Share {
    type Err = FilterError;

    /// Parses `0.5%`; the percent sign is optional.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let percent = number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(Self::from_percent).ok_or_else(|| FilterError::Share { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_anywhere_and_is_case_sensitive() {
        let pattern: Pattern = "Main$|^std::".parse().unwrap();
        assert!(pattern.matches("app!Program.Main") && pattern.matches("std::fmt"));
        assert!(!pattern.matches("main") && !pattern.matches("Mainly"));
    }

    #[test]
    fn an_invalid_pattern_is_a_one_line_error() {
        for text in ["(", "a{2,1}", "[z-a]", "a{1000}{1000}{1000}"] {
            let message = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("`{text}` is not a valid regular expression: ")),
                "{message}"
            );
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn a_number_is_parsed_as_an_id() {
        let id: Choice = "12".parse().unwrap();
        assert!(id.matches(12, "x") && !id.matches(1, "12"));
        let name: Choice = "^work".parse().unwrap();
        assert!(name.matches(12, "worker") && !name.matches(12, "a worker"));
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!("0.5%".parse::<Share>().unwrap(), Share::from_percent(0.5));
        assert_eq!("10".parse::<Share>().unwrap(), Share::from_percent(10.0));
        for text in ["", "%", "-1%", "101%", "nan", "inf", "a", "5%%"] {
            assert!(text.parse::<Share>().unwrap_err().to_string().contains("0.5%"), "{text}");
        }
        assert!(
            Share::from_percent(0.5).is_reached_by(1, 200) && !Share::from_percent(0.5).is_reached_by(1, 201)
        );
        assert!(Share::default().is_reached_by(0, 5));
        assert_eq!(Share::from_percent(f64::NAN), Share::default());
    }
}
