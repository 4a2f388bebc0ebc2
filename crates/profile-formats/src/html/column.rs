//! Columns of numbers as Base64 VLQ text (ECMA-426), as in source maps: digits of five bits, lowest first, with a
//! continuation bit. A browser parses one string much faster than a million JSON numbers.

use std::fmt;

use serde::Serializer;

/// Serializes unsigned numbers.
pub(super) fn numbers<T, S>(column: &[T], serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + TryInto<u64>,
    S: Serializer,
{
    serializer.collect_str(&Packed(column, |number| number.try_into().unwrap_or(u64::MAX)))
}

/// Serializes signed numbers, with the sign as lowest bit.
pub(super) fn signed<S: Serializer>(column: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer
        .collect_str(&Packed(column, |number| (number << 1 ^ number >> (i64::BITS - 1)).cast_unsigned()))
}

struct Packed<'a, T>(&'a [T], fn(T) -> u64);

impl<T: Copy> fmt::Display for Packed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Bytes that are passed to the JSON serializer at once.
        const PIECE_BYTES: usize = 8 << 10;
        let Self(column, bits_of) = self;
        let mut piece = String::with_capacity(PIECE_BYTES);
        for number in *column {
            push_digits(bits_of(*number), &mut piece);
            if piece.len() > PIECE_BYTES - MAX_DIGITS {
                f.write_str(&piece)?;
                piece.clear();
            }
        }
        f.write_str(&piece)
    }
}

const DIGIT_BITS: u32 = 5;

/// Digits of a 64-bit number.
const MAX_DIGITS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn push_digits(mut rest: u64, text: &mut String) {
    const MORE: u64 = 1 << DIGIT_BITS;
    loop {
        let (digit, above) = (rest % MORE, rest >> DIGIT_BITS);
        let more = if above > 0 { MORE } else { 0 };
        let letter = usize::try_from(digit | more).ok().and_then(|at| LETTERS.get(at)).copied();
        text.push(char::from(letter.unwrap_or(b'A')));
        if above == 0 {
            return;
        }
        rest = above;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::Serializer as ToValue;

    use super::*;

    #[test]
    fn numbers_are_base64_vlq() {
        let text = numbers(&[0_u32, 1, 31, 32, 1000], ToValue).unwrap();
        assert_eq!(text, "ABfgBof");
        assert_eq!(numbers(&[u64::MAX], ToValue).unwrap(), "////////////P");
        assert_eq!(numbers::<u32, _>(&[], ToValue).unwrap(), "");
    }

    #[test]
    fn a_column_is_one_string() {
        let text = numbers(&[1_u64 << 40; 10_000], ToValue).unwrap();
        assert_eq!(text, "ggggggggB".repeat(10_000));
    }

    #[test]
    fn the_sign_is_the_lowest_bit() {
        assert_eq!(signed(&[0, -1, 1, -2, 16], ToValue).unwrap(), "ABCDgB");
        assert_eq!(signed(&[i64::MIN], ToValue).unwrap(), "////////////P");
    }
}
