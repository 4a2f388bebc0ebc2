//! Counts the lines of a log that match patterns.

use std::collections::BTreeSet;

use crate::{LinePattern, Measure, Values};

/// Bytes of a line that are searched.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Counts the lines of a log that match the patterns of conditions (`file ~ "REGEX"`). The caller reads the log: a file
/// that grows, or a pipe.
///
/// ```
/// use profiler_triggers::{Condition, LogLines, Values};
///
/// let measures = Condition::parse("file ~ 'timeout|refused'")?.measures();
/// let (mut lines, mut values) = (LogLines::new(&measures), Values::default());
/// lines.push(b"connection refused\nrequest served\nconn");
/// lines.set_counts(&mut values);
/// assert!(measures.iter().all(|measure| values.get(measure) == Some(1.0)));
/// # Ok::<(), profiler_triggers::ConditionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogLines {
    /// The patterns, and the lines that matched.
    counts: Vec<(LinePattern, u64)>,
    /// The beginning of a line whose end is still to be pushed.
    partial: Vec<u8>,
}

impl LogLines {
    /// Begins with the patterns among `measures`, at the start of a line.
    #[must_use]
    pub fn new(measures: &BTreeSet<Measure>) -> Self {
        let pattern = |measure: &Measure| match measure {
            Measure::File(pattern) => Some((pattern.clone(), 0)),
            _ => None,
        };
        Self { counts: measures.iter().filter_map(pattern).collect(), partial: Vec::new() }
    }

    /// Whether there is a pattern.
    #[must_use]
    pub fn has_patterns(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Adds the next bytes of the log. Of a line, the first 64 KiB are searched when its end is added.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let content = piece.strip_suffix(b"\n");
            let capacity = MAX_LINE_BYTES.saturating_sub(self.partial.len());
            self.partial.extend(content.unwrap_or(piece).iter().take(capacity));
            if content.is_some() {
                self.end_line();
            }
        }
    }

    /// Sets the values of all patterns to the lines that matched since the last call.
    pub fn set_counts(&mut self, values: &mut Values) {
        for (pattern, count) in &mut self.counts {
            values.set(Measure::File(pattern.clone()), Some(*count as f64));
            *count = 0;
        }
    }

    fn end_line(&mut self) {
        for (pattern, count) in &mut self.counts {
            *count += u64::from(pattern.matches(&self.partial));
        }
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;

    /// The counts of `a+` and `^b$` after bytes were pushed.
    fn counts(lines: &mut LogLines, pushed: &[&[u8]]) -> [f64; 2] {
        let mut values = Values::default();
        pushed.iter().for_each(|bytes| lines.push(bytes));
        lines.set_counts(&mut values);
        ["a+", "^b$"].map(|text| values.get(&Measure::File(LinePattern::new(text).unwrap())).unwrap())
    }

    fn lines() -> LogLines {
        LogLines::new(&Condition::parse("file ~ 'a+' or file ~ '^b$' or signal").unwrap().measures())
    }

    #[test]
    fn lines_are_counted_when_they_end() {
        let mut lines = lines();
        assert!(lines.has_patterns());
        assert_eq!(counts(&mut lines, &[b"aa a\nb\nc\n\nb"]), [1.0, 1.0]);
        assert_eq!(counts(&mut lines, &[b"", b"\nx", b"a", b"\xffa\n"]), [1.0, 1.0]);
        assert_eq!(counts(&mut lines, &[]), [0.0, 0.0]);
    }

    #[test]
    fn the_beginning_of_a_long_line_is_searched() {
        let mut lines = lines();
        let long = vec![b'x'; MAX_LINE_BYTES - 1];
        assert_eq!(counts(&mut lines, &[&long, b"a\n", &long, b"xa\nb\n"]), [1.0, 1.0]);
        assert!(lines.partial.capacity() <= 2 * MAX_LINE_BYTES);
    }

    #[test]
    fn conditions_without_patterns_have_no_counts() {
        let measures = Condition::parse("signal").unwrap().measures();
        assert!(!LogLines::new(&measures).has_patterns());
    }
}
