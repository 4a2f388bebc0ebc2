//! A Rust file as a flat row of words, signs and literals, without comments and tests.

use std::str::FromStr as _;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The tokens of `text` that ship: items under `#[cfg(test)]` are left out. A literal is one token, as it is written.
pub(super) fn tokens(text: &str) -> Result<Vec<String>> {
    let stream = TokenStream::from_str(text).map_err(|error| anyhow!("not Rust: {error}"))?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(sign)
                if sign.as_char() == '#' && trees.peek().is_some_and(is_test_attribute) =>
            {
                skip_item(&mut trees);
            }
            TokenTree::Group(group) => {
                let (open, close) = signs(group.delimiter());
                tokens.push(open.to_owned());
                flatten(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            other => tokens.push(other.to_string()),
        }
    }
}

fn is_test_attribute(tree: &TokenTree) -> bool {
    let TokenTree::Group(attribute) = tree else { return false };
    attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

/// An item ends with its braces or a semicolon.
fn skip_item(trees: &mut impl Iterator<Item = TokenTree>) {
    let _ = trees.find(|tree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        _ => false,
    });
}

fn signs(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_left_out() {
        let text = r#"
            //! use crate::a;
            use crate::b; // crate::c
            const D: &str = "crate::d";
            #[cfg(test)]
            mod tests { use crate::e; }
            #[cfg(test)]
            use crate::f;
            fn g() {}
        "#;
        let code = tokens(text).unwrap().join(" ");
        assert!(code.contains("use crate : : b ;"), "{code}");
        assert!(code.ends_with("fn g ( ) { }"), "{code}");
        for absent in ["a", "c", "d", "e", "f"] {
            assert!(!code.contains(&format!(": : {absent}")), "{code}");
        }
    }

    #[test]
    fn what_is_not_rust_is_an_error() {
        assert!(tokens("fn f( {").is_err());
    }
}
