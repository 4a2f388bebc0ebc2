//! Reads the UTF-16 strings of EventPipe events and diagnostics messages. Invalid code units are escaped.

use profiler_binary_reader::{ByteCursor, ParseError, text_of_utf16};

/// Reads a string up to a terminating zero, which is consumed too.
pub(super) fn read_terminated(bytes: &mut ByteCursor<'_>) -> Result<String, ParseError> {
    let units = || bytes.remaining().chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let length = units().position(|unit| unit == 0).ok_or(ParseError::Malformed)?;
    let text = text_of_utf16(units().take(length));
    bytes.skip(2 * (length + 1));
    Ok(text)
}

/// Reads a string that follows the number of its code units. The number includes a terminating zero, and is 0 for the
/// empty string.
pub(super) fn read_counted(bytes: &mut ByteCursor<'_>) -> Result<String, ParseError> {
    let units = usize::try_from(bytes.u32()?).map_err(|_| ParseError::Malformed)?;
    match bytes.take(units.checked_mul(2).ok_or(ParseError::Malformed)?)? {
        [] => Ok(String::new()),
        text => read_terminated(&mut ByteCursor::new(text, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminated(bytes: &[u8]) -> Result<String, ParseError> {
        read_terminated(&mut ByteCursor::new(bytes, 0))
    }

    #[test]
    fn a_terminated_string_ends_at_its_zero() {
        let mut bytes = ByteCursor::new(&[b'a', 0, 0xe9, 0, 0, 0, 0, 0], 0);
        assert_eq!(read_terminated(&mut bytes), Ok("a\u{e9}".to_owned()));
        assert_eq!(read_terminated(&mut bytes), Ok(String::new()));
        assert_eq!(read_terminated(&mut bytes), Err(ParseError::Malformed));
        assert_eq!(terminated(&[0, 0xd8, 0, 0]), Ok("\\x{d800}".to_owned()));
        assert_eq!(terminated(&[b'a', 0, 0]), Err(ParseError::Malformed));
    }

    #[test]
    fn a_counted_string_has_the_length_that_it_states() {
        let mut bytes = ByteCursor::new(&[0, 0, 0, 0, 2, 0, 0, 0, b'a', 0, 0, 0, 9], 0);
        assert_eq!(read_counted(&mut bytes), Ok(String::new()));
        assert_eq!(read_counted(&mut bytes), Ok("a".to_owned()));
        assert_eq!(bytes.remaining(), [9]);
        let unterminated = [1, 0, 0, 0, b'a', 0, 0, 0];
        assert_eq!(read_counted(&mut ByteCursor::new(&unterminated, 0)), Err(ParseError::Malformed));
        assert_eq!(read_counted(&mut ByteCursor::new(&[0xff; 8], 0)), Err(ParseError::Malformed));
    }
}
