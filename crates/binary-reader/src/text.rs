//! Text of names that can have any bytes or code units.

use std::{borrow::Cow, fmt::Write};

/// The prefix of an escaped byte or code unit.
const ESCAPE: &str = "\\x{";

/// The text of a name that should be UTF-8. Each invalid byte becomes `\x{..}` with its value, so that different names stay
/// different; so does the backslash of a name that has such a text itself.
///
/// ```
/// use profiler_binary_reader::text_of;
/// assert_eq!(text_of(b"a\xffb"), "a\\x{ff}b");
/// ```
#[must_use]
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.contains(ESCAPE)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        push_text(&mut text, chunk.valid());
        chunk.invalid().iter().for_each(|byte| push_value(&mut text, (*byte).into()));
    }
    Cow::Owned(text)
}

/// The text of a name that should be UTF-16, as [`text_of`] for UTF-8.
pub fn text_of_utf16(units: impl IntoIterator<Item = u16>) -> String {
    let mut text = String::new();
    for unit in char::decode_utf16(units) {
        match unit {
            Ok(c) => text.push(c),
            Err(unpaired) => push_value(&mut text, unpaired.unpaired_surrogate().into()),
        }
    }
    text
}

fn push_text(text: &mut String, valid: &str) {
    let mut parts = valid.split(ESCAPE);
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        push_value(text, u32::from(b'\\'));
        text.push_str(&ESCAPE[1..]);
        text.push_str(part);
    }
}

fn push_value(text: &mut String, value: u32) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{ESCAPE}{value:02x}}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_stay_unchanged() {
        for name in ["", "main", "h\u{e9}\u{10ffff}", "App\\x\\{"] {
            assert!(matches!(text_of(name.as_bytes()), Cow::Borrowed(text) if text == name), "{name}");
            assert_eq!(text_of_utf16(name.encode_utf16()), name);
        }
    }

    #[test]
    fn names_with_different_invalid_bytes_are_different() {
        let names: [&[u8]; 6] =
            [b"a\xff", b"a\xfe", b"a\xff\xff", b"a\\x{ff}", b"a\xed\xa0\x80", b"a\\x{5c}x{ff}"];
        let texts: std::collections::BTreeSet<_> = names.iter().map(|name| text_of(name)).collect();
        assert_eq!(texts.len(), names.len(), "{texts:?}");
        assert_eq!(text_of(b"\xff\\x{0}\xe9"), "\\x{ff}\\x{5c}x{0}\\x{e9}");
        assert_eq!(text_of_utf16([0x61, 0xd800, 0x62]), "a\\x{d800}b");
        assert_ne!(text_of_utf16([0xdc00]), text_of_utf16([0xd800]));
    }
}
