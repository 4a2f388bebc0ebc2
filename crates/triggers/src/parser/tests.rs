//! Tests of the grammar: examples, places of mistakes, and random conditions.

mod random;

use super::*;
use crate::{Condition, ConditionError};

/// The structure of an expression: parentheses around each operation, bounds in base units.
fn structure(expression: &Expression) -> String {
    let joined = |operands: &[Expression], word: &str| {
        let operands: Vec<_> = operands.iter().map(structure).collect();
        format!("({})", operands.join(word))
    };
    match expression {
        Expression::Comparison(Comparison { measure, operator, bound }) => {
            let sign = Operator::SIGNS.iter().find(|(_, known)| known == operator).unwrap().0;
            format!("{measure} {sign} {bound}")
        }
        Expression::Occurrence(measure) => measure.to_string(),
        Expression::Not(operand) => format!("(not {})", structure(operand)),
        Expression::All(operands) => joined(operands, " and "),
        Expression::Any(operands) => joined(operands, " or "),
        Expression::Lasting(lasting) => {
            format!("({} for {:?})", structure(&lasting.expression), lasting.duration)
        }
    }
}

#[test]
fn examples_of_the_grammar() {
    for (text, wanted) in [
        ("cpu < 20% for 10s and requests > 0", "((cpu < 0.2 for 10s) and requests > 0)"),
        ("gc-pause > 200ms", "gc-pause > 0.2"),
        ("exceptions > 50/s", "exceptions > 50"),
        ("exceptions > 30/m", "exceptions > 0.5"),
        ("cpu-of-quota>=95%", "cpu-of-quota >= 0.95"),
        ("cpu-of-machine <= 50 %", "cpu-of-machine <= 0.5"),
        ("throttled > 10% for 1m", "(throttled > 0.1 for 60s)"),
        ("runnable > 200% for 1.5s", "(runnable > 2 for 1.5s)"),
        ("rss > 1.5GiB", "rss > 1610612736"),
        ("rss > 500 MB or memory > 90%", "(rss > 500000000 or memory > 0.9)"),
        ("threads > 100 and fds > 1000", "(threads > 100 and fds > 1000)"),
        (
            "psi.cpu > 0 and psi.memory > 5% and psi.io > 5%",
            "(psi.cpu > 0 and psi.memory > 0.05 and psi.io > 0.05)",
        ),
        ("file ~ \"time(d )?out\"", "file ~ \"time(d )?out\""),
        ("file~'say \"no\" or \\d+'", "file ~ \"say \\\"no\\\" or \\d+\""),
        ("signal", "signal"),
        ("exit", "exit"),
        ("exit != 0", "(exit and exit != 0)"),
        ("exit >= 128 or signal", "((exit and exit >= 128) or signal)"),
        ("gc-share > 10% or heap > 2GB", "(gc-share > 0.1 or heap > 2000000000)"),
        ("pool-queue > 50 for 2s", "(pool-queue > 50 for 2s)"),
        ("pool-starvation", "pool-starvation"),
        ("pool-starvation > 1/s", "pool-starvation > 1"),
        ("contention > 100/s", "contention > 100"),
        ("request-time p99 > 1s", "request-time p99 > 1"),
        ("counter(active-timer-count) > 5", "counter(\"active-timer-count\") > 5"),
        ("counter( System.Runtime/cpu-usage ) < -1.5", "counter(\"System.Runtime/cpu-usage\") < -1.5"),
        ("counter(\"queue length\") > 3", "counter(\"queue length\") > 3"),
        ("event(tcp:tcp_retransmit_skb) > 5/s", "event(\"tcp:tcp_retransmit_skb\") > 5"),
        ("signal or exit and not pool-starvation", "(signal or (exit and (not pool-starvation)))"),
        ("(signal or exit) and fds > 3", "((signal or exit) and fds > 3)"),
        ("(cpu > 1% and fds > 3) for 2s", "((cpu > 0.01 and fds > 3) for 2s)"),
        ("not cpu > 1% for 2s", "(not (cpu > 0.01 for 2s))"),
        ("not not signal", "(not (not signal))"),
        ("((signal))", "signal"),
        ("\n\tsignal\u{2003}or\nexit ", "(signal or exit)"),
    ] {
        let parsed = parse(text).unwrap_or_else(|fault| panic!("{}", ConditionError::new(text, &fault)));
        assert_eq!(structure(&parsed.expression), wanted, "{text}");
    }
}

#[test]
fn a_mistake_is_shown_at_its_place() {
    for (text, message, marked) in [
        ("", "expected a measure such as `cpu`, `not` or `(`, found the end", ""),
        ("cpu", "expected `<`, `<=`, `>` or `>=`, found the end", ""),
        ("cpu <", "expected a number, as in `cpu < 20%`, found the end", ""),
        ("cpu < 20", "expected the unit `%` as in `cpu < 20%`, found no unit", "20"),
        ("cpu < 20MB for 10s", "expected the unit `%` as in `cpu < 20%`, found `MB`", "MB"),
        ("cpu == 20%", "expected `<`, `<=`, `>` or `>=`, found `==`", "=="),
        ("cpu = 20%", "expected `==`, `!=`, `<`, `<=`, `>` or `>=`, found `=`", "="),
        ("cpu < -1%", "expected a number of at least 0, found `-1`", "-1"),
        ("cpu < 20% for", "expected a number, as in `for 200ms`, found the end", ""),
        (
            "cpu < 20% for 10",
            "expected a unit (`ns`, `us`, `ms`, `s`, `m`, `h`) as in `for 200ms`, found no unit",
            "10",
        ),
        (
            "cpu < 20% for 10%",
            "expected a unit (`ns`, `us`, `ms`, `s`, `m`, `h`) as in `for 200ms`, found `%`",
            "%",
        ),
        ("cpu < 20% for 0s", "expected a time of more than 0 and at most 24h", "0"),
        ("cpu < 20% for 25h", "expected a time of more than 0 and at most 24h", "25"),
        ("cpu < 20% for 1s for 2s", "expected `and`, `or`, `for` or the end, found `for`", "for"),
        ("cpu < 20% requests > 0", "expected `and`, `or`, `for` or the end, found `requests`", "requests"),
        ("cpu < 20% && signal", "expected `and`, found `&`", "&"),
        ("cpu < 20% || signal", "expected `or`, found `|`", "|"),
        ("!signal", "expected `not` or `!=`, found `!`", "!"),
        ("cpu < 20%; signal", "unexpected character `;`", ";"),
        ("threads > 5s", "expected no unit, as in `threads > 100`, found `s`", "s"),
        (
            "exceptions > 5",
            "expected a unit (`/s`, `/m`, `/h`) as in `exceptions > 50/s`, found no unit",
            "5",
        ),
        ("counter(x) > 5%", "expected no unit, as in `counter(\"x\") > 100`, found `%`", "%"),
        ("counter > 5", "expected `(` and the name of a counter, found `>`", ">"),
        ("counter() > 5", "expected the name of a counter", ""),
        ("event() > 5", "expected the name of an event", ""),
        ("event > 5", "expected `(` and the name of an event, found `>`", ">"),
        ("counter(a b) > 5", "expected `)` behind the name, found `b`", "b"),
        ("counter(a", "expected `)` behind the name, found the end", ""),
        ("request-time > 1s", "expected `p99`, found `>`", ">"),
        ("file", "expected `~` and a regular expression in quotes, found the end", ""),
        ("file ~ timeout", "expected a regular expression in quotes, found `timeout`", "timeout"),
        ("file ~ \"a", "expected the closing quote `\"` of this string", "\""),
        ("file ~ \"a\\", "expected the closing quote `\"` of this string", "\""),
        ("file ~ \"a(\"", "expected a regular expression: unclosed group", "\"a(\""),
        ("signal > 2", "expected `and`, `or`, `for` or the end, found `>`", ">"),
        ("exit != x", "expected a number, as in `exit != 100`, found `x`", "x"),
        ("(signal or exit", "expected `and`, `or`, `for` or `)`, found the end", ""),
        ("signal)", "expected `and`, `or`, `for` or the end, found `)`", ")"),
        ("signal and and exit", "expected a measure such as `cpu`, `not` or `(`, found `and`", "and"),
        ("signal \"x\"", "expected `and`, `or`, `for` or the end, found a string", "\"x\""),
        ("µs > 5", "unexpected", "µs"),
        ("rss > 1e9B", "expected a unit", "e9B"),
        ("rss > -", "expected a number", "-"),
    ] {
        let fault = parse(text).unwrap_err();
        assert_eq!(text.get(fault.place.clone()), Some(marked), "{text}: {fault:?}");
        if marked == "µs" {
            assert!(fault.message.starts_with("expected a measure (cpu, cpu-of-quota, "), "{fault:?}");
            assert!(fault.message.ends_with("file ~ \"REGEX\"), found `µs`"), "{fault:?}");
        } else {
            assert!(fault.message.starts_with(message), "{text}: {}", fault.message);
        }
    }
}

#[test]
fn an_error_shows_the_text_and_the_place() {
    let error = "cpu < 20% and rss > 5s".parse::<Condition>().unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    assert!(lines[0].contains("`MiB`") && lines[0].ends_with("as in `rss > 500MiB`, found `s`"), "{error}");
    assert_eq!(lines[1..], ["  cpu < 20% and rss > 5s", "                       ^"]);
}

#[test]
fn numbers_are_finite() {
    let text = format!("rss > {}B", "9".repeat(400));
    assert_eq!(parse(&text).unwrap_err().message, "expected a number");
    let text = format!("rss > {}TiB", "9".repeat(308));
    assert!(parse(&text).unwrap_err().message.starts_with("expected a smaller number"));
}

#[test]
fn length_and_nesting_are_limited() {
    let long = format!("signal{}", " ".repeat(MAX_CONDITION_BYTES - "signal".len()));
    assert!(parse(&long).is_ok());
    let too_long = parse(&(long + " ")).unwrap_err();
    assert_eq!(too_long.place, MAX_CONDITION_BYTES..MAX_CONDITION_BYTES);

    let nested = |depth: usize| format!("{}signal{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(MAX_NESTING)).is_ok());
    let too_deep = parse(&nested(MAX_NESTING + 1)).unwrap_err();
    assert_eq!(too_deep.place, MAX_NESTING..MAX_NESTING + 1);
    assert!(parse(&("not ".repeat(MAX_NESTING) + "signal")).is_ok());
    assert!(parse(&("not ".repeat(MAX_NESTING + 1) + "signal")).is_err());
    // Parentheses side by side are not nested.
    assert!(parse(&vec!["(signal)"; 2 * MAX_NESTING].join(" or ")).is_ok());
}

#[test]
fn every_measure_has_a_name_in_the_grammar_and_a_summary() {
    for (name, summary) in Measure::summaries() {
        let word = name.split([' ', '(']).next().unwrap();
        assert!(crate::GRAMMAR.contains(&format!("\"{word}\"")), "{name}");
        assert!(!summary.is_empty());
        if let Some(measure) = Measure::named(name) {
            assert_eq!(measure.to_string(), name);
        }
    }
}

#[test]
fn measures_are_those_of_the_text() {
    let condition =
        Condition::parse("exit != 0 and (cpu < 1% or not cpu > 2% for 1s) and file ~ 'a'").unwrap();
    let names: Vec<_> = condition.measures().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["cpu", "file ~ \"a\"", "exit", "exit"]);
    let described = condition.describe(&[(Measure::Cpu, 0.015), (Measure::Exit, 1.0)].into_iter().collect());
    assert_eq!(described, "exited, exit status unknown, cpu 1.5 %, file ~ \"a\" unknown");
}
