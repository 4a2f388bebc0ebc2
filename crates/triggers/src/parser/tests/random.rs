//! Random conditions: the text of an expression is parsed to it, and no text makes the parser fail.

use super::*;

/// A linear congruential generator, and the number of `for` so far.
struct Random {
    state: u64,
    lasting: usize,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { state: seed, lasting: 0 }
    }

    /// The next number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap() % limit
    }

    fn choice<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn blank(&mut self) -> &'static str {
        self.choice(&["", " ", "\t", "\n  "])
    }

    /// A rule of the grammar that joins one or more operands by a word.
    fn joined(
        &mut self,
        word: &str,
        operand: impl Fn(&mut Self) -> (String, Expression),
    ) -> (String, Vec<Expression>) {
        let (mut text, first) = operand(self);
        let mut operands = vec![first];
        while self.below(3) == 0 {
            let (next, expression) = operand(self);
            text += &format!(" {word} {next}");
            operands.push(expression);
        }
        (text, operands)
    }

    fn condition(&mut self, depth: usize) -> (String, Expression) {
        let (text, operands) = self.joined("or", |random| random.conjunction(depth));
        (text, only_or(operands, Expression::Any))
    }

    fn conjunction(&mut self, depth: usize) -> (String, Expression) {
        let (text, operands) = self.joined("and", |random| random.negation(depth));
        (text, only_or(operands, Expression::All))
    }

    fn negation(&mut self, depth: usize) -> (String, Expression) {
        if self.below(4) > 0 {
            return self.lasting(depth);
        }
        let (text, operand) = self.negation(depth);
        (format!("not {text}"), Expression::Not(Box::new(operand)))
    }

    fn lasting(&mut self, depth: usize) -> (String, Expression) {
        let (text, expression) = self.primary(depth);
        if self.below(4) > 0 {
            return (text, expression);
        }
        let seconds = 1 + self.below(3600);
        let duration = Duration::from_secs(seconds as u64);
        let lasting = Lasting { expression, duration, index: self.lasting };
        self.lasting += 1;
        (format!("{text} for{}{seconds}s", self.choice(&[" ", "  "])), Expression::Lasting(Box::new(lasting)))
    }

    fn primary(&mut self, depth: usize) -> (String, Expression) {
        if depth == 0 || self.below(3) > 0 {
            return self.leaf();
        }
        let (text, expression) = self.condition(depth - 1);
        (format!("({}{text}{})", self.blank(), self.blank()), expression)
    }

    fn leaf(&mut self) -> (String, Expression) {
        let measure = self.measure();
        if measure.is_occurrence() && (!measure.is_comparable() || self.below(2) == 0) {
            return (measure.to_string(), Expression::Occurrence(measure));
        }
        let orderings = if measure == Measure::ExitStatus { 6 } else { 4 };
        let mut operators = Operator::SIGNS;
        operators.sort_by_key(|(_, operator)| !operator.is_ordering());
        let (sign, operator) = self.choice(&operators[..orderings]);
        let number = self.below(1_000_000);
        let (unit, bound) = match measure.dimension().units() {
            [] => ("", number as f64),
            units => {
                let unit = self.choice(units);
                (unit.name, unit.in_base_unit(number as f64))
            }
        };
        let [before, behind, inside] = [self.blank(), self.blank(), self.blank()];
        let text = format!("{measure}{before}{sign}{behind}{number}{inside}{unit}");
        let is_exit = measure == Measure::ExitStatus;
        let comparison = Expression::Comparison(Comparison { measure, operator, bound });
        if is_exit {
            return (text, Expression::All(vec![Expression::Occurrence(Measure::Exit), comparison]));
        }
        (text, comparison)
    }

    fn measure(&mut self) -> Measure {
        let texts = ["a", "request \"x\"", "\\\\\"", "\\d+", "µ (b)", "and", "c\\."];
        match self.below(10) {
            0 => Measure::ExitStatus,
            1 => Measure::Counter { name: self.choice(&texts).to_owned() },
            2 => Measure::Event { name: self.choice(&texts).to_owned() },
            3 => Measure::File(LinePattern::new(self.choice(&texts)).unwrap()),
            _ => {
                let named: Vec<_> =
                    Measure::summaries().filter_map(|(name, _)| Measure::named(name)).collect();
                self.choice(&named)
            }
        }
    }
}

#[test]
fn the_text_of_an_expression_is_parsed_to_it() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let (text, expression) = random.condition(3);
        let condition = Condition::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(condition.expression, expression, "seed {seed}: {text}");
        assert_eq!(condition.lasting, random.lasting, "seed {seed}: {text}");
        let again = Condition::parse(&condition.to_string()).unwrap();
        assert_eq!(again.expression, expression, "seed {seed}: {text}");
    }
}

#[test]
fn a_damaged_text_is_parsed_or_its_fault_is_in_the_text() {
    let pieces = [
        "", "(", ")", "not", "for", "5", "%", "\"", "'", "\\", "µ", "counter(", "~", "-", ".", "\u{1b}",
        "exit",
    ];
    let mut faults = 0;
    for seed in 0..5_000 {
        let mut random = Random::new(seed);
        let mut text = random.condition(2).0;
        for _ in 0..=random.below(3) {
            let boundaries: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (start, end) = (random.choice(&boundaries), random.choice(&boundaries));
            let end = end.clamp(start, (start + 3).min(text.len()));
            let end = (end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
            text.replace_range(start..end, random.choice(&pieces));
        }
        let Err(fault) = parse(&text) else { continue };
        faults += 1;
        let place = text.get(fault.place.clone());
        assert!(place.is_some(), "seed {seed}: {text}: {fault:?}");
        let error = ConditionError::new(&text, &fault).to_string();
        assert_eq!(error.lines().count(), 3, "seed {seed}: {error}");
        assert!(!error.chars().any(|shown| shown.is_control() && shown != '\n'), "seed {seed}: {error:?}");
    }
    assert!((1_000..5_000).contains(&faults), "{faults} faults");
}
