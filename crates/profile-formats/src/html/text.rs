//! The interned strings of the page's document.

use std::borrow::Cow;

use indexmap::IndexSet;
use serde::{Serialize, Serializer};

use crate::label;

/// Interned strings; index 0 is the empty string.
pub(super) struct Texts<'a>(IndexSet<Cow<'a, str>>);

impl<'a> Texts<'a> {
    pub(super) fn new() -> Self {
        Self(IndexSet::from([Cow::Borrowed("")]))
    }

    /// The index of a text, [`escaped`](crate::escaped).
    pub(super) fn number(&mut self, text: impl Into<Cow<'a, str>>) -> usize {
        let text = match text.into() {
            Cow::Borrowed(text) => label::escaped(text),
            Cow::Owned(text) => Cow::Owned(label::escaped(&text).into_owned()),
        };
        self.0.insert_full(text).0
    }

    /// The index of a text whose names are escaped.
    pub(super) fn number_of_escaped(&mut self, text: String) -> usize {
        self.0.insert_full(Cow::Owned(text)).0
    }
}

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_interned_and_escaped() {
        let mut texts = Texts::new();
        assert_eq!(texts.number(""), 0);
        assert_eq!(texts.number("a;\u{202e}b"), texts.number(String::from("a;\u{202e}b")));
        assert_eq!(serde_json::to_string(&texts).unwrap(), r#"["","a;\\u{202e}b"]"#);
    }
}
