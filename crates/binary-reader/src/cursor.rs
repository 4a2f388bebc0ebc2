//! A byte cursor: little-endian integers, compressed integers of ECMA-335, and integers of the .NET native format.

use crate::error::ParseError;

/// Reads one integer after another from a slice.
#[derive(Clone, Debug)]
pub struct ByteCursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> ByteCursor<'a> {
    /// A cursor at a position of `bytes`.
    pub fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    /// The offset of the next byte in the slice.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next byte, without advancing.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    /// Advances by `bytes`, possibly beyond the end.
    pub fn skip(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes);
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let rest = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk());
        self.skip(N);
        rest.copied().ok_or(ParseError::Malformed)
    }

    /// Reads an integer of one, two or four bytes, big-endian (ECMA-335, II.23.2).
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

    /// Reads an integer whose first byte states, by its trailing ones, how many bytes follow (dotnet/runtime,
    /// `NativeFormatReader.h`).
    pub fn native_unsigned(&mut self) -> Result<u32, ParseError> {
        let (value, bytes) = self.native_bits()?;
        Ok(if bytes == 5 { value } else { value >> bytes })
    }

    /// Reads an integer of the same format as [`native_unsigned`](Self::native_unsigned), signed.
    pub fn native_signed(&mut self) -> Result<i32, ParseError> {
        let (value, bytes) = self.native_bits()?;
        let unused_bits = 32_u32.saturating_sub(8 * bytes);
        let value = (value << unused_bits).cast_signed();
        Ok(if bytes == 5 { value } else { value >> (unused_bits + bytes) })
    }

    /// Reads the bits of the integer and of its length prefix, and the number of bytes that hold them.
    fn native_bits(&mut self) -> Result<(u32, u32), ParseError> {
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
    fn compressed_integers_are_those_of_the_standard() {
        for (bytes, value) in [
            (&[0x03][..], 0x03),
            (&[0x7f], 0x7f),
            (&[0x80, 0x80], 0x80),
            (&[0xae, 0x57], 0x2e57),
            (&[0xbf, 0xff], 0x3fff),
            (&[0xc0, 0x00, 0x40, 0x00], 0x4000),
            (&[0xdf, 0xff, 0xff, 0xff], 0x1fff_ffff),
        ] {
            assert_eq!(ByteCursor::new(bytes, 0).compressed(), Ok(value));
            assert_eq!(
                ByteCursor::new(&bytes[..bytes.len() - 1], 0).compressed(),
                Err(ParseError::Malformed)
            );
        }
        assert_eq!(ByteCursor::new(&[0xff; 8], 0).compressed(), Err(ParseError::Malformed));
    }

    #[test]
    fn native_integers_have_the_length_that_their_first_byte_states() {
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
            let mut cursor = ByteCursor::new(bytes, 0);
            assert_eq!(cursor.native_unsigned(), Ok(unsigned), "{bytes:x?}");
            assert_eq!(cursor.position(), bytes.len());
            assert_eq!(ByteCursor::new(bytes, 0).native_signed(), Ok(signed), "{bytes:x?}");
            assert_eq!(
                ByteCursor::new(&bytes[1..], usize::MAX).native_unsigned(),
                Err(ParseError::Malformed)
            );
        }
        assert_eq!(ByteCursor::new(&[0x1f; 8], 0).native_unsigned(), Err(ParseError::Malformed));
    }

    #[test]
    fn slices_are_taken_from_the_position_on() {
        let mut cursor = ByteCursor::new(&[1, 2, 3, 0, 4], 1);
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
            assert_eq!(ByteCursor::new(bytes, 0).uleb128(), value);
        }
    }
}
