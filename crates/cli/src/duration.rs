//! Parses durations of the command line: `30`, `1.5s`, `500ms`, `2m`.

use std::time::Duration;

/// The longest duration: a leap year.
const MAX_HOURS: u32 = 366 * 24;
const MAX_SECONDS: f64 = MAX_HOURS as f64 * 3600.0;

/// Parses `30`, `1.5`, `500ms`, `30s`, `2m`, `1h`. The default unit is seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is not a duration such as 30, 1.5, 500ms or 2m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_seconds = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(invalid()),
    };
    // Excludes signs, exponents, `inf` and `nan`, which f64::from_str accepts.
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = digits.parse().map_err(|_| invalid())?;
    let seconds = number * unit_seconds;
    if !is_decimal {
        return Err(invalid());
    }
    if seconds > MAX_SECONDS {
        return Err(format!("`{text}` is too long: the longest time is {MAX_HOURS}h, a leap year"));
    }
    match Duration::from_secs_f64(seconds) {
        Duration::ZERO => {
            Err(format!("`{text}` is too short: give a time above 0, such as 1.5, 500ms or 2m"))
        }
        duration => Ok(duration),
    }
}

/// As [`parse_duration`], or 0.
pub(super) fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_optional() {
        for (text, milliseconds) in [
            ("30", 30_000),
            ("1.5", 1_500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("3s", 3_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused_with_examples() {
        for text in ["", "-1", "s", "5x", "1e3", "inf", "nan", "1.2.3", "5 s"] {
            assert!(
                parse_duration(text).unwrap_err().contains("not a duration such as 30, 1.5, 500ms"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_bounds_are_named() {
        for text in ["0", "0ms", "0.0", "0.0000001us"] {
            assert!(parse_duration(text).unwrap_err().contains("too short: give a time above 0"), "{text}");
        }
        assert_eq!(parse_duration("8784h").unwrap().as_secs(), 366 * 24 * 3600);
        for text in ["8785h", "99999999999999999999999999h"] {
            assert!(parse_duration(text).unwrap_err().contains("the longest time is 8784h"), "{text}");
        }
    }
}
