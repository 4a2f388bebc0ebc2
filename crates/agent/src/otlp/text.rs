//! Texts of the profiled programs: safe for a terminal and bounded in length.

use std::borrow::Cow;

use profiler_profile_formats::escaped;

/// Pyroscope shortens longer texts (`max_profile_symbol_value_length`).
const MAX_BYTES: usize = 65_535;

/// The escaped text of a name or path. One that is too long has a checksum in place of its end, so that two of them with the
/// same start stay different.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let escaped = escaped(text);
    if escaped.len() <= MAX_BYTES {
        return escaped;
    }
    let end = format!("...{:08x}", crc32fast::hash(text.as_bytes()));
    Cow::Owned(format!("{}{end}", shortened(&escaped, MAX_BYTES - end.len())))
}

/// The name of a function; `[unknown]` for an empty one, because a function without a name is no function.
pub(super) fn function_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() { Cow::Borrowed("[unknown]") } else { clean(name) }
}

/// The start of a text, of whole characters.
pub(super) fn shortened(text: &str, max_bytes: usize) -> &str {
    let is_end = |end: &usize| text.is_char_boundary(*end);
    (0..=max_bytes.min(text.len())).rev().find(is_end).map_or("", |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_shortened_between_characters() {
        assert_eq!((clean("a\nb"), function_name("")), ("a\\u{a}b".into(), "[unknown]".into()));
        assert_eq!([0, 1, 2, 3, 9].map(|max| shortened("ah\u{e9}", max)), ["", "a", "ah", "ah", "ah\u{e9}"]);
        let [one, other] = ["b", "c"].map(|end| clean(&format!("{}{end}", "a".repeat(100_000))).into_owned());
        assert!(one.len() == MAX_BYTES && other.len() == MAX_BYTES && one != other);
        assert!(clean(&"\n".repeat(60_000)).len() <= MAX_BYTES);
    }
}
