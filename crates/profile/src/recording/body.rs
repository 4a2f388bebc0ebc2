//! Encodes and decodes the body of a section: LEB128 numbers, texts and byte strings.

use super::codes::VariantCode;

/// The encoder of a section body.
#[derive(Debug, Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
}

impl Body {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Seven bits a byte, the lowest first; all bytes but the last have their highest bit set (LEB128: DWARF 5,
    /// section 7.6).
    pub(super) fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest > 0x7f {
            self.bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    pub(super) fn index(&mut self, index: usize) {
        self.number(index as u64);
    }

    /// The index plus 1; 0 for none.
    pub(super) fn optional_index(&mut self, index: Option<usize>) {
        self.number(index.map_or(0, |index| index as u64 + 1));
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        self.index(data.len());
        self.bytes.extend(data);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.data(text.as_bytes());
    }
}

/// The decoder of a section body. Methods return `None` where the bytes are invalid.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn number_u32(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn index(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    /// The entry of an optional index; the outer `None` is a decoding failure.
    pub(super) fn optional<T: Copy>(&mut self, table: &[T]) -> Option<Option<T>> {
        match self.index()?.checked_sub(1) {
            None => Some(None),
            Some(index) => table.get(index).copied().map(Some),
        }
    }

    /// A variant; the inner `None` where the number is 0.
    pub(super) fn optional_variant<T: VariantCode>(&mut self) -> Option<Option<T>> {
        match self.number()? {
            0 => Some(None),
            code => T::from_code(code).map(Some),
        }
    }

    /// The entry of an index.
    pub(super) fn entry<T: Copy>(&mut self, table: &[T]) -> Option<T> {
        table.get(self.index()?).copied()
    }

    pub(super) fn data(&mut self) -> Option<&'a [u8]> {
        let length = self.index()?;
        let (data, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(data)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.data()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_inverts_encoding() {
        let numbers = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut body = Body::default();
        numbers.into_iter().for_each(|number| body.number(number));
        body.text("h\u{e9}");
        body.optional_index(None);
        body.optional_index(Some(1));
        let mut fields = Fields::new(body.bytes());
        assert!(numbers.into_iter().all(|number| fields.number() == Some(number)));
        assert_eq!(fields.text(), Some("h\u{e9}"));
        assert_eq!(fields.optional(&['a', 'b']), Some(None));
        assert_eq!(fields.optional(&['a', 'b']), Some(Some('b')));
        assert!(fields.is_empty());
    }

    #[test]
    fn numbers_without_end_or_beyond_64_bits_are_refused() {
        assert_eq!(Fields::new(&[0x80; 20]).number(), None);
        assert_eq!(Fields::new(&[0x80]).number(), None);
        assert_eq!(Fields::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        assert_eq!(Fields::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).number_u32(), None);
    }

    #[test]
    fn lengths_and_indices_beyond_the_end_are_refused() {
        assert_eq!(Fields::new(&[3, 1, 2]).data(), None);
        assert_eq!(Fields::new(&[2, 0xc3, 0x28]).text(), None);
        assert_eq!(Fields::new(&[2]).entry(&[1, 2]), None);
        assert_eq!(Fields::new(&[3]).optional(&[1, 2]), None);
    }
}
