//! The error of a text that is not a condition, with the place in the text.

use std::{fmt, ops::Range};

/// Characters that are shown before and after the place.
const MAX_CONTEXT_CHARS: usize = 60;

/// Characters of the place that are marked.
const MAX_MARKED_CHARS: usize = 40;

/// A mistake in a text: the place, in bytes, and what was expected there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Range<usize>,
    pub(crate) message: String,
}

/// A text that is not a condition.
///
/// It is displayed in three lines: what was expected, the text, and carets below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionError {
    message: String,
    /// The part of the text around the place, on one line.
    excerpt: String,
    /// Characters of the excerpt before the place.
    before: usize,
    /// Characters of the place.
    marked: usize,
}

impl ConditionError {
    pub(crate) fn new(text: &str, fault: &Fault) -> Self {
        let characters_before = |end: usize| text.char_indices().take_while(|(at, _)| *at < end).count();
        let (start, end) = (characters_before(fault.place.start), characters_before(fault.place.end));
        let marked = end.saturating_sub(start).clamp(1, MAX_MARKED_CHARS);
        let first = start.saturating_sub(MAX_CONTEXT_CHARS);
        let last = start + marked + MAX_CONTEXT_CHARS;
        // The text of a place is on one line, and moves no cursor of a terminal.
        let visible = |character: char| if character.is_control() { ' ' } else { character };
        let mut excerpt: String = text.chars().take(last).skip(first).map(visible).collect();
        let mut before = start - first;
        if first > 0 {
            excerpt.insert(0, '…');
            before += 1;
        }
        if text.chars().nth(last).is_some() {
            excerpt.push('…');
        }
        Self { message: fault.message.clone(), excerpt, before, marked }
    }
}

impl fmt::Display for ConditionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (spaces, carets) = (" ".repeat(self.before), "^".repeat(self.marked));
        write!(formatter, "{}\n  {}\n  {spaces}{carets}", self.message, self.excerpt)
    }
}

impl std::error::Error for ConditionError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: Range<usize>) -> String {
        ConditionError::new(text, &Fault { place, message: "wrong".to_owned() }).to_string()
    }

    #[test]
    fn carets_are_below_the_place() {
        assert_eq!(shown("cpu < 20", 6..8), "wrong\n  cpu < 20\n        ^^");
        assert_eq!(shown("cpu <", 5..5), "wrong\n  cpu <\n       ^");
        assert_eq!(shown("", 0..0), "wrong\n  \n  ^");
    }

    #[test]
    fn places_are_counted_in_characters() {
        assert_eq!(shown("µµ cpu", 5..8), "wrong\n  µµ cpu\n     ^^^");
    }

    #[test]
    fn the_text_is_shown_on_one_line() {
        assert_eq!(shown("a\n\x1b[31m b", 8..9), "wrong\n  a  [31m b\n          ^");
    }

    #[test]
    fn a_long_text_is_shown_around_the_place() {
        let text = format!("{}b{}", "a".repeat(1000), "c".repeat(1000));
        let excerpt = format!("…{}b{}…", "a".repeat(MAX_CONTEXT_CHARS), "c".repeat(MAX_CONTEXT_CHARS));
        let caret = format!("{}^", " ".repeat(MAX_CONTEXT_CHARS + 1));
        assert_eq!(shown(&text, 1000..1001), format!("wrong\n  {excerpt}\n  {caret}"));
        let all_marked = shown(&text, 0..text.len());
        assert!(all_marked.ends_with(&format!("\n  {}", "^".repeat(MAX_MARKED_CHARS))), "{all_marked}");
    }
}
