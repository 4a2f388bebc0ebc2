//! Regular expressions that match lines of a log file.

use std::{cmp::Ordering, fmt, sync::Arc};

use regex::bytes::{Regex, RegexBuilder};

/// Bytes of a compiled expression.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression that matches anywhere in a line, in the syntax of the
/// [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate (that of RE2). Two patterns are equal when their texts
/// are.
#[derive(Clone)]
pub struct LinePattern {
    regex: Arc<Regex>,
}

impl LinePattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason on one line, when the text is not a regular expression or the compiled expression is too large.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        match RegexBuilder::new(text).size_limit(MAX_COMPILED_BYTES).build() {
            Ok(regex) => Ok(Self { regex: Arc::new(regex) }),
            Err(regex::Error::CompiledTooBig(_)) => Err("it is too large".to_owned()),
            // The last line of the message is the cause; the lines before it show the position.
            Err(error) => {
                Err(error.to_string().lines().last().unwrap_or_default().trim().replace("error: ", ""))
            }
        }
    }

    /// Whether it matches anywhere in a line, which does not have to be UTF-8.
    #[must_use]
    pub fn matches(&self, line: &[u8]) -> bool {
        self.regex.is_match(line)
    }

    /// The source text of the expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }
}

impl fmt::Debug for LinePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LinePattern").field(&self.as_str()).finish()
    }
}

impl PartialEq for LinePattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for LinePattern {}

impl PartialOrd for LinePattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LinePattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_anywhere_in_a_line_of_bytes() {
        let pattern = LinePattern::new("time(d )?out|refused").unwrap();
        assert!(pattern.matches(b"\xff connection refused\xff") && !pattern.matches(b"Refused"));
        assert_eq!(format!("{pattern:?}"), "LinePattern(\"time(d )?out|refused\")");
    }

    #[test]
    fn an_invalid_or_large_expression_is_refused_with_a_reason_on_one_line() {
        for text in ["(", "a{2,1}", "[z-a]", "a{1000}{1000}"] {
            let reason = LinePattern::new(text).unwrap_err();
            assert!(!reason.is_empty() && !reason.contains('\n'), "{reason}");
        }
    }
}
