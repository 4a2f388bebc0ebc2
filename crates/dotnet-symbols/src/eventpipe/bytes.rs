//! Reading little-endian values from the front of a slice.

/// There are fewer bytes than the value takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// The bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow. What has more than 64 bits loses
    /// those beyond.
    pub fn variable(&mut self) -> Result<u64, Short> {
        const BYTES_OF_64_BITS: u32 = 10;
        let mut value = 0;
        for index in 0..BYTES_OF_64_BITS {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Short)
    }

    /// UTF-16 text up to a terminating zero, which is taken too; what is no UTF-16 is replaced.
    pub fn text(&mut self) -> Result<String, Short> {
        let units = || self.0.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let length = units().position(|unit| unit == 0).ok_or(Short)?;
        let text = char::decode_utf16(units().take(length));
        let text = text.map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.take(2 * (length + 1))?;
        Ok(text)
    }

    /// UTF-16 text behind the number of its units, a terminating zero included.
    pub fn counted_text(&mut self) -> Result<String, Short> {
        let bytes = usize::try_from(self.u32()?).ok().and_then(|units| units.checked_mul(2)).ok_or(Short)?;
        match self.take(bytes)? {
            [] => Ok(String::new()),
            text => Bytes(text).text(),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_the_front() {
        let mut bytes = Bytes(&[1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!((bytes.u8(), bytes.u16(), bytes.u32(), bytes.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(bytes.u16(), Err(Short));
        assert_eq!(bytes.take(1), Ok(&[9][..]));
    }

    #[test]
    fn variable_lengths_end_where_no_more_follows() {
        assert_eq!(Bytes(&[0x7f]).variable(), Ok(127));
        assert_eq!(Bytes(&[0x80, 1]).variable(), Ok(128));
        assert_eq!(Bytes(&[0xff; 9]).variable(), Err(Short));
        assert_eq!(Bytes(&[0xff; 64]).variable(), Err(Short));
        assert_eq!(
            Bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).variable(),
            Ok(u64::MAX)
        );
    }

    #[test]
    fn text_ends_at_its_zero() {
        let mut bytes = Bytes(&[b'a', 0, 0xe9, 0, 0, 0, 0, 0]);
        assert_eq!((bytes.text(), bytes.text()), (Ok("a\u{e9}".to_owned()), Ok(String::new())));
        assert_eq!(bytes.text(), Err(Short));
        assert_eq!(Bytes(&[0, 0xd8, 0, 0]).text(), Ok("\u{fffd}".to_owned()));
        assert_eq!(Bytes(&[b'a', 0, 0]).text(), Err(Short));
    }

    #[test]
    fn text_may_say_how_long_it_is() {
        let mut bytes = Bytes(&[0, 0, 0, 0, 2, 0, 0, 0, b'a', 0, 0, 0, 9]);
        assert_eq!((bytes.counted_text(), bytes.counted_text()), (Ok(String::new()), Ok("a".to_owned())));
        assert_eq!(bytes.0, [9]);
        assert_eq!(Bytes(&[1, 0, 0, 0, b'a', 0, 0, 0]).counted_text(), Err(Short), "no zero within");
        assert_eq!(Bytes(&[0xff; 8]).counted_text(), Err(Short));
    }
}
