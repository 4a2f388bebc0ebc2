//! Parses hexadecimal numbers in bytes, for perf maps and `/proc/kallsyms` with hundreds of thousands of lines.

/// Parses a number of at most 64 bits without prefix and sign. Any number of leading zeros is allowed.
pub(super) fn parse_hexadecimal(digits: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for &digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        if number >> 60 != 0 {
            return None;
        }
        number = number << 4 | u64::from(value);
    }
    (!digits.is_empty()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_up_to_64_bits_are_read() {
        assert_eq!(parse_hexadecimal(b"0"), Some(0));
        assert_eq!(parse_hexadecimal(b"00007FE3e5a3ADF0"), Some(0x7fe3_e5a3_adf0));
        assert_eq!(parse_hexadecimal(b"0000ffffffffffffffff"), Some(u64::MAX));
    }

    #[test]
    fn other_text_is_not_parsed() {
        for text in ["", "1ffffffffffffffff", "0x1", "-1", "+1", "g", "1 ", "\u{661}"] {
            assert_eq!(parse_hexadecimal(text.as_bytes()), None, "{text}");
        }
    }
}
