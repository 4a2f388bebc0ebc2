//! Decodes a table of values by instruction, as Go encodes files, lines and the sizes of frames: pairs of the difference of the value (zigzag) and of
//! the distance to the next pair, both as variable-length integers. A difference of 0, but in the first pair, ends it.

use profiler_binary_reader::{ByteCursor, ParseError};

/// The size of the largest table that is read. Lines of a function with a hundred thousand instructions have less.
pub(super) const MAX_TABLE_BYTES: u64 = 64 << 10;

/// A table of values.
pub(super) struct PcValues<'a> {
    bytes: ByteCursor<'a>,
    quantum: u8,
    value: i32,
    until: u64,
    is_first: bool,
}

impl<'a> PcValues<'a> {
    pub(super) fn new(bytes: &'a [u8], quantum: u8) -> Self {
        Self { bytes: ByteCursor::new(bytes, 0), quantum, value: -1, until: 0, is_first: true }
    }

    /// The value at a distance from the start of the function; `None` behind the end of the table.
    pub(super) fn find(mut self, within: u64) -> Result<Option<i32>, ParseError> {
        while let Some((value, until)) = self.next()? {
            if within < until {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The next value, and the distance from the start of the function up to which it applies.
    pub(super) fn next(&mut self) -> Result<Option<(i32, u64)>, ParseError> {
        let difference = self.number()?;
        if difference == 0 && !self.is_first {
            return Ok(None);
        }
        self.is_first = false;
        let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
        self.value = self.value.wrapping_add(difference);
        self.until = self.until.saturating_add(u64::from(self.number()?) * u64::from(self.quantum));
        Ok(Some((self.value, self.until)))
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
