//! Parses numbers of bytes of the command line: `500M`, `2G`.

/// Parses `4096`, `64K`, `500M`, `2G`, `1T`, also with `B` or `iB` at the end. Units are powers of 1,024.
pub(super) fn parse_byte_size(text: &str) -> Result<u64, String> {
    let invalid = || format!("`{text}` is not a number of bytes such as 4096, 500M or 2G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let unit = unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(invalid()),
    };
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in
            [("4096", 4096), ("64K", 64 << 10), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1TB", 1 << 40)]
        {
            assert_eq!(parse_byte_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "1.5G", "G", "5X", "99999999T", "5 M"] {
            assert!(parse_byte_size(text).unwrap_err().contains("500M"), "{text}");
        }
    }
}
