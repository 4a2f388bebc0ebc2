//! Decodes a table of values by instruction, as Go encodes files and lines: pairs of the difference of the value (zigzag) and of
//! the distance to the next pair, both as variable-length integers. A difference of 0, but in the first pair, ends it.

use profiler_binary_reader::{ByteCursor, ParseError};

/// The size of the largest table that is read. Lines of a function with a hundred thousand instructions have less.
pub(super) const MAX_TABLE_BYTES: u64 = 64 << 10;

/// A table of values.
pub(super) struct PcValues<'a> {
    bytes: ByteCursor<'a>,
    quantum: u8,
}

impl<'a> PcValues<'a> {
    pub(super) fn new(bytes: &'a [u8], quantum: u8) -> Self {
        Self { bytes: ByteCursor::new(bytes, 0), quantum }
    }

    /// The value at a distance from the start of the function; `None` behind the end of the table.
    pub(super) fn find(mut self, within: u64) -> Result<Option<i32>, ParseError> {
        let mut value = -1_i32;
        let mut until = 0_u64;
        let mut is_first = true;
        loop {
            let difference = self.number()?;
            if difference == 0 && !is_first {
                return Ok(None);
            }
            is_first = false;
            value = value.wrapping_add((difference >> 1).cast_signed() ^ -(difference & 1).cast_signed());
            until = until.saturating_add(u64::from(self.number()?) * u64::from(self.quantum));
            if within < until {
                return Ok(Some(value));
            }
        }
    }

    /// A number of up to 32 bits in base 128, the lowest digits first.
    fn number(&mut self) -> Result<u32, ParseError> {
        const MAX_DIGITS: u32 = 5;
        let mut number = 0_u64;
        for digit in 0..MAX_DIGITS {
            let byte = self.bytes.u8()?;
            number |= u64::from(byte & 0x7f) << (7 * digit);
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| ParseError::Malformed);
            }
        }
        Err(ParseError::Malformed)
    }
}
