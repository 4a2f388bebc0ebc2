//! Stores many names in one allocation.

use std::borrow::Cow;

use crate::text_of;

/// Bytes of names per source. The perf maps of the largest .NET programs have 20 MB.
const MAX_BYTES: usize = 24 << 20;

/// Concatenated names.
#[derive(Debug, Default)]
pub struct Names {
    text: String,
}

/// The position of a name in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its first byte in the text.
    pub offset: u32,
    /// The number of its bytes.
    pub length: u32,
}

impl Names {
    /// Adds a name. Invalid UTF-8 is escaped. `None` means that the limit is reached.
    pub fn push(&mut self, name: &[u8]) -> Option<Name> {
        let name = text_of(name);
        if name.len() > MAX_BYTES - self.text.len() {
            return None;
        }
        let offset = u32::try_from(self.text.len()).ok()?;
        let length = u32::try_from(name.len()).ok()?;
        self.text.push_str(&name);
        Some(Name { offset, length })
    }

    /// The text of a name.
    pub fn get(&self, name: Name) -> &str {
        let start = name.offset as usize;
        self.text.get(start..start + name.length as usize).unwrap_or_default()
    }

    /// The memory of the names.
    pub fn memory_bytes(&self) -> usize {
        self.text.len()
    }

    /// Frees the unused capacity.
    pub fn shrink_to_fit(&mut self) {
        self.text.shrink_to_fit();
    }
}

/// A name of at most `max_bytes`. A longer one ends with a checksum of the whole, so that different names stay different.
pub fn shortened(name: &[u8], max_bytes: usize) -> Cow<'_, [u8]> {
    if name.len() <= max_bytes {
        return name.into();
    }
    let end = format!("...{:08x}", crc32fast::hash(name));
    let mut length = max_bytes.saturating_sub(end.len());
    // A character of several bytes stays whole.
    while name.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) && length > 0 {
        length -= 1;
    }
    [name.get(..length).unwrap_or_default(), end.as_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_that_differ_stay_different() {
        let long = |end: &str| format!("{}{end}", "\u{e9}".repeat(50));
        let [one, other] = ["one", "other"].map(|end| shortened(long(end).as_bytes(), 60).into_owned());
        assert_ne!(one, other);
        for name in [one, other] {
            assert!(name.len() <= 60 && std::str::from_utf8(&name).is_ok(), "{name:?}");
        }
        assert_eq!(*shortened(b"short", 5), *b"short");
    }

    #[test]
    fn names_are_returned_unchanged() {
        let mut names = Names::default();
        let first = names.push(b"first").unwrap();
        let empty = names.push(b"").unwrap();
        let second = names.push("zweit\u{e9}".as_bytes()).unwrap();
        assert_eq!([names.get(first), names.get(empty), names.get(second)], ["first", "", "zweit\u{e9}"]);
    }

    #[test]
    fn invalid_utf_8_is_escaped() {
        let mut names = Names::default();
        let name = names.push(b"a\xff\xfeb").unwrap();
        assert_eq!(names.get(name), "a\\x{ff}\\x{fe}b");
    }

    #[test]
    fn names_beyond_the_limit_are_rejected() {
        let mut names = Names::default();
        let big = vec![b'x'; MAX_BYTES / 2];
        assert!(names.push(&big).is_some());
        assert!(names.push(&big).is_some());
        assert_eq!(names.push(b"x"), None);
        assert!(names.push(b"").is_some());
    }
}
