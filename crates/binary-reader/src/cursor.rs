//! Numbers in bytes: of a fixed size, compressed as in ECMA-335, and of the runtime's native format.

use crate::ParseError;

/// Reads one number after another.
#[derive(Clone, Debug)]
pub struct ByteCursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ByteCursor<'a> {
    /// Begins at a position.
    pub fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub fn position(&self) -> usize {
        self.position
    }

    /// The next byte, which stays.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    pub fn skip(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes);
    }

    pub fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let rest = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk());
        self.position += N;
        rest.copied().ok_or(ParseError::Malformed)
    }

    /// A number of one, two or four bytes, most significant first (ECMA-335 II.23.2).
    pub fn compressed(&mut self) -> Result<u32, ParseError> {
        let first = self.u8()?;
        if first & 0x80 == 0 {
            return Ok(first.into());
        }
        if first & 0x40 == 0 {
            return Ok(u32::from_be_bytes([0, 0, first & 0x3f, self.u8()?]));
        }
        if first & 0x20 == 0 {
            let [second, third, fourth] = self.array()?;
            return Ok(u32::from_be_bytes([first & 0x1f, second, third, fourth]));
        }
        Err(ParseError::Malformed)
    }

    /// A number whose first byte says, by its trailing ones, how many follow (`NativeFormatReader.h`).
    pub fn native_unsigned(&mut self) -> Result<u32, ParseError> {
        let (value, bytes) = self.native()?;
        Ok(if bytes == 5 { value } else { value >> bytes })
    }

    /// As [`native_unsigned`](Self::native_unsigned), of both signs.
    pub fn native_signed(&mut self) -> Result<i32, ParseError> {
        let (value, bytes) = self.native()?;
        let unused_bits = 32_u32.saturating_sub(8 * bytes);
        let value = (value << unused_bits).cast_signed();
        Ok(if bytes == 5 { value } else { value >> (unused_bits + bytes) })
    }

    /// The bits that the number and its length are in, and how many bytes they came from.
    fn native(&mut self) -> Result<(u32, u32), ParseError> {
        let first = self.peek().ok_or(ParseError::Malformed)?;
        let bytes = first.trailing_ones() + 1;
        let mut value = [0; 4];
        match bytes {
            1 => [value[0]] = self.array()?,
            2 => [value[0], value[1]] = self.array()?,
            3 => [value[0], value[1], value[2]] = self.array()?,
            4 => value = self.array()?,
            5 => {
                self.skip(1);
                value = self.array()?;
            }
            _ => return Err(ParseError::Malformed),
        }
        Ok((u32::from_le_bytes(value), bytes))
    }
}

impl<'a> ByteCursor<'a> {
    /// The bytes from the position on.
    pub fn remaining(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Reads `count` bytes. The position stays where it is when fewer remain.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let taken = self.remaining().get(..count).ok_or(ParseError::Malformed)?;
        self.position += count;
        Ok(taken)
    }

    /// Reads bytes up to a zero byte. The zero byte is read too and is no part of the result.
    pub fn take_until_nul(&mut self) -> Result<&'a [u8], ParseError> {
        let length = self.remaining().iter().position(|byte| *byte == 0).ok_or(ParseError::Malformed)?;
        let taken = self.take(length)?;
        self.skip(1);
        Ok(taken)
    }

    /// Reads an unsigned LEB128 number of at most ten bytes. Bits above the 64th are lost.
    pub fn uleb128(&mut self) -> Result<u64, ParseError> {
        const MAX_BYTES: u32 = 10;
        let mut value = 0;
        for index in 0..MAX_BYTES {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ParseError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_numbers_are_those_of_the_standard() {
        for (bytes, value) in [
            (&[0x03][..], 0x03),
            (&[0x7f], 0x7f),
            (&[0x80, 0x80], 0x80),
            (&[0xae, 0x57], 0x2e57),
            (&[0xbf, 0xff], 0x3fff),
            (&[0xc0, 0x00, 0x40, 0x00], 0x4000),
            (&[0xdf, 0xff, 0xff, 0xff], 0x1fff_ffff),
        ] {
            assert_eq!(ByteCursor::at(bytes, 0).compressed(), Ok(value));
            assert_eq!(ByteCursor::at(&bytes[..bytes.len() - 1], 0).compressed(), Err(ParseError::Malformed));
        }
        assert_eq!(ByteCursor::at(&[0xff; 8], 0).compressed(), Err(ParseError::Malformed));
    }

    #[test]
    fn native_numbers_end_where_their_first_byte_says() {
        for (bytes, unsigned, signed) in [
            (&[0x00][..], 0, 0),
            (&[0x54], 42, 42),
            (&[0xfe], 127, -1),
            (&[0x01, 0x02], 0x80, 0x80),
            (&[0xfd, 0xff], 0x3fff, -1),
            (&[0x03, 0x00, 0x01], 0x2000, 0x2000),
            (&[0x07, 0x00, 0x00, 0x10], 0x0100_0000, 0x0100_0000),
            (&[0x0f, 0x78, 0x56, 0x34, 0x12], 0x1234_5678, 0x1234_5678),
            (&[0x0f, 0xfe, 0xff, 0xff, 0xff], 0xffff_fffe, -2),
        ] {
            let mut reader = ByteCursor::at(bytes, 0);
            assert_eq!(reader.native_unsigned(), Ok(unsigned), "{bytes:x?}");
            assert_eq!(reader.position(), bytes.len());
            assert_eq!(ByteCursor::at(bytes, 0).native_signed(), Ok(signed), "{bytes:x?}");
            assert_eq!(ByteCursor::at(&bytes[1..], usize::MAX).native_unsigned(), Err(ParseError::Malformed));
        }
        assert_eq!(ByteCursor::at(&[0x1f; 8], 0).native_unsigned(), Err(ParseError::Malformed));
    }

    #[test]
    fn slices_are_taken_from_the_position_on() {
        let mut cursor = ByteCursor::at(&[1, 2, 3, 0, 4], 1);
        assert_eq!(cursor.take(1), Ok(&[2][..]));
        assert_eq!(cursor.take(4), Err(ParseError::Malformed));
        assert_eq!(cursor.take_until_nul(), Ok(&[3][..]));
        assert_eq!(cursor.take_until_nul(), Err(ParseError::Malformed));
        assert_eq!(cursor.remaining(), [4]);
        cursor.skip(usize::MAX);
        assert_eq!((cursor.remaining(), cursor.take(1)), (&[][..], Err(ParseError::Malformed)));
    }

    #[test]
    fn leb128_numbers_have_at_most_ten_bytes() {
        for (bytes, value) in [
            (&[0x7f][..], Ok(127)),
            (&[0x80, 1], Ok(128)),
            (&[0xff; 9], Err(ParseError::Malformed)),
            (&[0xff; 64], Err(ParseError::Malformed)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(u64::MAX)),
        ] {
            assert_eq!(ByteCursor::at(bytes, 0).uleb128(), value);
        }
    }
}
