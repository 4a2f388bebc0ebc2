//! Splits the text of a condition into tokens.

use std::ops::Range;

use crate::{condition_error::Fault, expression::Operator};

/// A symbol of the grammar and its place in the text, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) place: Range<usize>,
}

/// A symbol of the grammar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind<'a> {
    /// A name, a keyword or a unit.
    Word(&'a str),
    Number(f64),
    /// The content of a string.
    Text(String),
    Operator(Operator),
    Tilde,
    Open,
    Close,
    /// The end of the text.
    End,
}

/// Reads one token after the other.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// Reads the next token; at the end of the text, [`TokenKind::End`] again and again.
    pub(crate) fn next_token(&mut self) -> Result<Token<'a>, Fault> {
        self.skip_while(char::is_whitespace);
        let start = self.position;
        let kind = self.kind()?;
        Ok(Token { kind, place: start..self.position })
    }

    /// Reads a name: a string, or all up to a blank, a parenthesis or a quote; `None` where there is no name.
    pub(crate) fn name(&mut self) -> Result<Option<String>, Fault> {
        self.skip_while(char::is_whitespace);
        if let Some(quote) = self.quote() {
            return self.string(quote).map(Some);
        }
        let start = self.position;
        self.skip_while(|character| {
            !character.is_whitespace() && !['(', ')', '"', '\''].contains(&character)
        });
        Ok(self.text.get(start..self.position).filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// The place behind what was read.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The text at a place of a token.
    pub(crate) fn text_at(&self, place: &Range<usize>) -> &'a str {
        self.text.get(place.clone()).unwrap_or_default()
    }

    fn kind(&mut self) -> Result<TokenKind<'a>, Fault> {
        let Some(first) = self.rest().chars().next() else { return Ok(TokenKind::End) };
        if let Some((sign, operator)) =
            Operator::SIGNS.into_iter().find(|(sign, _)| self.rest().starts_with(sign))
        {
            self.position += sign.len();
            return Ok(TokenKind::Operator(operator));
        }
        if let Some(quote) = self.quote() {
            return self.string(quote).map(TokenKind::Text);
        }
        if first.is_ascii_digit() || first == '-' {
            return self.number();
        }
        if first.is_alphabetic() || first == '/' {
            return Ok(TokenKind::Word(self.word(first)));
        }
        let start = self.position;
        self.position += first.len_utf8();
        match first {
            '%' => Ok(TokenKind::Word("%")),
            '~' => Ok(TokenKind::Tilde),
            '(' => Ok(TokenKind::Open),
            ')' => Ok(TokenKind::Close),
            _ => Err(Fault { place: start..self.position, message: unexpected(first) }),
        }
    }

    /// A letter or a slash, and letters, digits, hyphens and full stops.
    fn word(&mut self, first: char) -> &'a str {
        let start = self.position;
        self.position += first.len_utf8();
        self.skip_while(|character| character.is_alphanumeric() || ['-', '.', '_'].contains(&character));
        self.text.get(start..self.position).unwrap_or_default()
    }

    /// Digits, perhaps with a sign before and a fraction behind.
    fn number(&mut self) -> Result<TokenKind<'a>, Fault> {
        let start = self.position;
        if self.rest().starts_with('-') {
            self.position += 1;
        }
        self.skip_while(|character| character.is_ascii_digit());
        let fraction = self.rest().strip_prefix('.');
        if fraction.is_some_and(|fraction| fraction.starts_with(|character: char| character.is_ascii_digit()))
        {
            self.position += 1;
            self.skip_while(|character| character.is_ascii_digit());
        }
        let digits = self.text.get(start..self.position).unwrap_or_default();
        let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
        let invalid = || Fault { place: start..self.position, message: "expected a number".to_owned() };
        number.map(TokenKind::Number).ok_or_else(invalid)
    }

    /// The quote at the position, when there is one.
    fn quote(&self) -> Option<char> {
        self.rest().chars().next().filter(|character| ['"', '\''].contains(character))
    }

    /// A string from its opening quote on.
    fn string(&mut self, quote: char) -> Result<String, Fault> {
        let start = self.position;
        let mut content = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.position += at + quote.len_utf8();
                return Ok(content);
            }
            if character != '\\' {
                content.push(character);
                continue;
            }
            let Some((_, escaped)) = characters.next() else { break };
            if escaped != quote {
                content.push('\\');
            }
            content.push(escaped);
        }
        let message = format!("expected the closing quote `{quote}` of this string");
        Err(Fault { place: start..start + quote.len_utf8(), message })
    }

    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches(is_skipped).len();
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }
}

fn unexpected(character: char) -> String {
    match character {
        '=' => "expected `==`, `!=`, `<`, `<=`, `>` or `>=`, found `=`".to_owned(),
        '&' => "expected `and`, found `&`".to_owned(),
        '|' => "expected `or`, found `|`".to_owned(),
        '!' => "expected `not` or `!=`, found `!`".to_owned(),
        _ => format!("unexpected character `{}`", character.escape_debug()),
    }
}
