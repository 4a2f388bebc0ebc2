//! Makes values of attributes of texts that targets or files choose.

use std::borrow::Cow;

use profiler_profile_formats::printable;

/// Longest value of an attribute, bytes: that of the names of pods, which are DNS subdomains (RFC 1123).
pub(super) const MAX_VALUE_BYTES: usize = 253;

/// A text as value of an attribute: without control characters and blanks around it, and cut at [`MAX_VALUE_BYTES`]. `None`
/// for an empty one.
pub(super) fn value(text: &str) -> Option<String> {
    let text: Cow<'_, str> = printable(text);
    let text = text.trim();
    let end = (0..=text.len().min(MAX_VALUE_BYTES)).rev().find(|end| text.is_char_boundary(*end))?;
    Some(text[..end].trim_end().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printable_bounded_and_not_empty() {
        assert_eq!(value("web").as_deref(), Some("web"));
        assert_eq!(value("\u{1b}[31mweb\n\u{202e} ").as_deref(), Some("[31mweb"));
        for empty in ["", " ", "\n\u{7}"] {
            assert_eq!(value(empty), None);
        }
        let long = value(&format!("x{}", "\u{e9}".repeat(1_000))).unwrap();
        assert!((MAX_VALUE_BYTES - 1..=MAX_VALUE_BYTES).contains(&long.len()));
    }
}
