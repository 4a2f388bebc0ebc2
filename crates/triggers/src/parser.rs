//! Parses conditions by recursive descent.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    LinePattern, Measure,
    condition_error::Fault,
    dimension::Dimension,
    expression::{Comparison, Expression, Lasting, Operator},
    lexer::{Lexer, Token, TokenKind},
};

/// Bytes of the text of a condition.
pub const MAX_CONDITION_BYTES: usize = 4 << 10;

/// Parentheses and `not` around one another in a condition.
pub const MAX_NESTING: usize = 32;

/// The longest time of `for`: a day.
const MAX_LASTING_SECONDS: f64 = 24.0 * 3600.0;

/// The words that are no names of measures.
const KEYWORDS: [&str; 4] = ["and", "or", "not", "for"];

/// What follows a complete comparison.
const CONTINUATION: &str = "`and`, `or`, `for` or the end";

/// What follows a measure that is compared.
const ORDERING: &str = "`<`, `<=`, `>` or `>=`";

/// A parsed text.
#[derive(Debug, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) expression: Expression,
    /// The number of [`Expression::Lasting`].
    pub(crate) lasting: usize,
}

/// Parses the text of a condition.
pub(crate) fn parse(text: &str) -> Result<Parsed, Fault> {
    if text.len() > MAX_CONDITION_BYTES {
        let message = format!("expected at most {MAX_CONDITION_BYTES} bytes, found {}", text.len());
        return Err(Fault { place: MAX_CONDITION_BYTES..MAX_CONDITION_BYTES, message });
    }
    let mut lexer = Lexer::new(text);
    let token = lexer.next_token()?;
    let mut parser = Parser { lexer, token, nesting: 0, lasting: 0 };
    let expression = parser.condition()?;
    if parser.token.kind != TokenKind::End {
        return Err(parser.expected(CONTINUATION));
    }
    Ok(Parsed { expression, lasting: parser.lasting })
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token that is parsed next.
    token: Token<'a>,
    /// Parentheses and `not` around the token.
    nesting: usize,
    /// `for` before the token.
    lasting: usize,
}

impl Parser<'_> {
    fn condition(&mut self) -> Result<Expression, Fault> {
        let mut operands = vec![self.conjunction()?];
        while self.is_at("or") {
            self.advance()?;
            operands.push(self.conjunction()?);
        }
        Ok(only_or(operands, Expression::Any))
    }

    fn conjunction(&mut self) -> Result<Expression, Fault> {
        let mut operands = vec![self.negation()?];
        while self.is_at("and") {
            self.advance()?;
            operands.push(self.negation()?);
        }
        Ok(only_or(operands, Expression::All))
    }

    fn negation(&mut self) -> Result<Expression, Fault> {
        if !self.is_at("not") {
            return self.lasting();
        }
        let operand = self.nested(Self::negation)?;
        Ok(Expression::Not(Box::new(operand)))
    }

    fn lasting(&mut self) -> Result<Expression, Fault> {
        let expression = self.primary()?;
        if !self.is_at("for") {
            return Ok(expression);
        }
        self.advance()?;
        let place = self.token.place.clone();
        let seconds = self.quantity(&Expected { dimension: Dimension::Time, subject: "for".to_owned() })?;
        let is_valid = seconds > 0.0 && seconds <= MAX_LASTING_SECONDS;
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|_| is_valid);
        let invalid =
            || Fault { place, message: "expected a time of more than 0 and at most 24h".to_owned() };
        let lasting = Lasting { expression, duration: duration.ok_or_else(invalid)?, index: self.lasting };
        self.lasting += 1;
        Ok(Expression::Lasting(Box::new(lasting)))
    }

    fn primary(&mut self) -> Result<Expression, Fault> {
        match self.token.kind {
            TokenKind::Open => {
                let expression = self.nested(Self::condition)?;
                if self.token.kind != TokenKind::Close {
                    return Err(self.expected("`and`, `or`, `for` or `)`"));
                }
                self.advance()?;
                Ok(expression)
            }
            TokenKind::Word(word) if !KEYWORDS.contains(&word) => {
                let measure = self.measure(word)?;
                self.comparison_or_occurrence(measure)
            }
            _ => Err(self.expected("a measure such as `cpu`, `not` or `(`")),
        }
    }

    fn measure(&mut self, word: &str) -> Result<Measure, Fault> {
        let place = self.token.place.clone();
        self.advance()?;
        match word {
            "file" => self.pattern().map(Measure::File),
            "counter" => self.name_of("a counter").map(|name| Measure::Counter { name }),
            "event" => self.name_of("an event").map(|name| Measure::Event { name }),
            "request-time" if self.is_at("p99") => {
                self.advance()?;
                Ok(Measure::RequestTimeP99)
            }
            "request-time" => Err(self.expected("`p99`")),
            _ => {
                let names = || Measure::summaries().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
                let unknown = || format!("expected a measure ({}), found `{word}`", names());
                Measure::named(word).ok_or_else(|| Fault { place, message: unknown() })
            }
        }
    }

    /// `~` and a string.
    fn pattern(&mut self) -> Result<LinePattern, Fault> {
        if self.token.kind != TokenKind::Tilde {
            return Err(self.expected("`~` and a regular expression in quotes"));
        }
        self.advance()?;
        let TokenKind::Text(text) = &self.token.kind else {
            return Err(self.expected("a regular expression in quotes"));
        };
        let invalid = |reason| format!("expected a regular expression: {reason}");
        let pattern = LinePattern::new(text)
            .map_err(|reason| Fault { place: self.token.place.clone(), message: invalid(reason) })?;
        self.advance()?;
        Ok(pattern)
    }

    /// A name in parentheses. `named`: `a counter`.
    fn name_of(&mut self, named: &str) -> Result<String, Fault> {
        if self.token.kind != TokenKind::Open {
            return Err(self.expected(&format!("`(` and the name of {named}")));
        }
        let name = self.lexer.name()?.ok_or_else(|| {
            let end = self.lexer.position();
            Fault { place: end..end, message: format!("expected the name of {named}") }
        })?;
        self.advance()?;
        if self.token.kind != TokenKind::Close {
            return Err(self.expected("`)` behind the name"));
        }
        self.advance()?;
        Ok(name)
    }

    fn comparison_or_occurrence(&mut self, measure: Measure) -> Result<Expression, Fault> {
        match self.token.kind {
            TokenKind::Operator(operator) if measure == Measure::Exit => self.exit_status(operator),
            TokenKind::Operator(operator) if measure.is_comparable() => {
                if !operator.is_ordering() {
                    return Err(self.expected(ORDERING));
                }
                self.comparison(measure, operator).map(Expression::Comparison)
            }
            _ if measure.is_occurrence() => Ok(Expression::Occurrence(measure)),
            _ => Err(self.expected(ORDERING)),
        }
    }

    /// The comparison of the exit status: false until the process has ended.
    fn exit_status(&mut self, operator: Operator) -> Result<Expression, Fault> {
        let comparison = self.comparison(Measure::ExitStatus, operator)?;
        Ok(Expression::All(vec![Expression::Occurrence(Measure::Exit), Expression::Comparison(comparison)]))
    }

    /// The operator at hand and a quantity.
    fn comparison(&mut self, measure: Measure, operator: Operator) -> Result<Comparison, Fault> {
        let sign = self.lexer.text_at(&self.token.place);
        let expected = Expected { dimension: measure.dimension(), subject: format!("{measure} {sign}") };
        self.advance()?;
        let bound = self.quantity(&expected)?;
        Ok(Comparison { measure, operator, bound })
    }

    /// A number and its unit, in the base unit.
    fn quantity(&mut self, expected: &Expected) -> Result<f64, Fault> {
        let TokenKind::Number(number) = self.token.kind else {
            return Err(self.expected(&expected.number()));
        };
        if number < 0.0 && expected.dimension != Dimension::Number {
            return Err(self.expected("a number of at least 0"));
        }
        let place = self.token.place.clone();
        self.advance()?;
        match self.token.kind {
            TokenKind::Word(unit) if !KEYWORDS.contains(&unit) => {
                let known = expected.dimension.units().iter().find(|known| known.name == unit);
                let unit = known.ok_or_else(|| self.expected(&expected.unit()))?;
                let quantity = unit.in_base_unit(number);
                if !quantity.is_finite() {
                    return Err(Fault { place, message: "expected a smaller number".to_owned() });
                }
                self.advance()?;
                Ok(quantity)
            }
            _ if number == 0.0 || expected.dimension.units().is_empty() => Ok(number),
            _ => Err(Fault { place, message: format!("expected {}, found no unit", expected.unit()) }),
        }
    }

    /// The result of `parse`, which goes on behind the token at hand: a parenthesis or `not`.
    fn nested(&mut self, parse: fn(&mut Self) -> Result<Expression, Fault>) -> Result<Expression, Fault> {
        if self.nesting == MAX_NESTING {
            let message = format!("expected at most {MAX_NESTING} parentheses and `not` around one another");
            return Err(Fault { place: self.token.place.clone(), message });
        }
        self.nesting += 1;
        self.advance()?;
        let parsed = parse(self)?;
        self.nesting -= 1;
        Ok(parsed)
    }

    fn is_at(&self, word: &str) -> bool {
        self.token.kind == TokenKind::Word(word)
    }

    fn advance(&mut self) -> Result<(), Fault> {
        self.token = self.lexer.next_token()?;
        Ok(())
    }

    /// The fault that the token at hand is not what the grammar permits.
    fn expected(&self, what: &str) -> Fault {
        let found = match self.token.kind {
            TokenKind::End => "the end".to_owned(),
            TokenKind::Text(_) => "a string".to_owned(),
            _ => format!("`{}`", self.lexer.text_at(&self.token.place)),
        };
        Fault { place: self.token.place.clone(), message: format!("expected {what}, found {found}") }
    }
}

/// What a quantity has to be.
struct Expected {
    dimension: Dimension,
    /// The text before the quantity, for messages.
    subject: String,
}

impl Expected {
    fn number(&self) -> String {
        format!("a number, as in `{} {}`", self.subject, self.dimension.example())
    }

    fn unit(&self) -> String {
        let example = format!("`{} {}`", self.subject, self.dimension.example());
        let units: Vec<_> = self.dimension.units().iter().map(|unit| format!("`{}`", unit.name)).collect();
        match units.as_slice() {
            [] => format!("no unit, as in {example}"),
            [only] => format!("the unit {only} as in {example}"),
            _ => format!("a unit ({}) as in {example}", units.join(", ")),
        }
    }
}

/// The only operand, or the group of several.
fn only_or(mut operands: Vec<Expression>, group: fn(Vec<Expression>) -> Expression) -> Expression {
    match operands.pop() {
        Some(only) if operands.is_empty() => only,
        last => {
            operands.extend(last);
            group(operands)
        }
    }
}
