//! Reads sparse arrays and hash tables of the runtime's native format (dotnet/runtime,
//! src/coreclr/vm/nativeformatreader.h).

use profiler_binary_reader::{ByteCursor, ParseError};

/// Elements of an array per tree.
const BLOCK_ELEMENTS: u32 = 16;

/// The index and position of each element of the sparse array in `bytes`.
pub(super) fn array_elements(bytes: &[u8]) -> Result<impl Iterator<Item = (u32, usize)>, ParseError> {
    let mut header = ByteCursor::new(bytes, 0);
    let value = header.native_unsigned()?;
    let (elements, width) = (value >> 2, OffsetWidth::from_code(value & 3)?);
    let base = header.position();
    // Each block has an offset, so the length of the table bounds the number of elements.
    let blocks = elements.div_ceil(BLOCK_ELEMENTS) as usize;
    if blocks.saturating_mul(width as usize) > bytes.len() {
        return Err(ParseError::Malformed);
    }
    Ok((0..elements).filter_map(move |index| Some((index, array_element(bytes, base, width, index)?))))
}

/// Descends the binary tree of a block. Each node tells which of its halves exist, and where the second one begins.
fn array_element(bytes: &[u8], base: usize, width: OffsetWidth, index: u32) -> Option<usize> {
    const FIRST_HALF: u32 = 1;
    const SECOND_HALF: u32 = 2;
    let block = (index / BLOCK_ELEMENTS) as usize;
    let mut position = base.checked_add(width.read(bytes, base + block * width as usize).ok()?)?;
    let mut bit = BLOCK_ELEMENTS / 2;
    while bit > 0 {
        let mut node = ByteCursor::new(bytes, position);
        let value = node.native_unsigned().ok()?;
        if index & bit != 0 && value & SECOND_HALF != 0 {
            position = position.checked_add((value >> 2) as usize)?;
        } else if index & bit == 0 && value & FIRST_HALF != 0 {
            position = node.position();
        } else if value & (FIRST_HALF | SECOND_HALF) == 0 && value >> 2 == index % BLOCK_ELEMENTS {
            // A leaf: the only element of its block.
            return Some(node.position());
        } else {
            return None;
        }
        bit /= 2;
    }
    Some(position)
}

/// The positions of the entries of the hash table in `bytes`, at most `limit` of them.
pub(super) fn hash_table_entries(bytes: &[u8], limit: usize) -> Result<Vec<usize>, ParseError> {
    let header = ByteCursor::new(bytes, 0).u8()?;
    let (bucket_bits, width) = (u32::from(header >> 2), OffsetWidth::from_code(u32::from(header & 3))?);
    let buckets = 1_usize.checked_shl(bucket_bits).ok_or(ParseError::Malformed)?;
    let base = 1;
    if buckets.saturating_mul(width as usize) > bytes.len() {
        return Err(ParseError::Malformed);
    }
    let mut entries = Vec::new();
    for bucket in 0..buckets {
        let start = width.read(bytes, base + bucket * width as usize)?;
        let end = width.read(bytes, base + (bucket + 1) * width as usize)?;
        let mut reader = ByteCursor::new(bytes, base.saturating_add(start));
        while reader.position() < base.saturating_add(end) {
            if entries.len() >= limit {
                return Err(ParseError::TooLarge);
            }
            let _low_hash = reader.u8()?;
            let position = reader.position();
            let distance = reader.native_signed()?;
            entries.push(position.checked_add_signed(distance as isize).ok_or(ParseError::Malformed)?);
        }
    }
    Ok(entries)
}

/// The size of an offset in bytes.
#[derive(Clone, Copy, Debug)]
enum OffsetWidth {
    One = 1,
    Two = 2,
    Four = 4,
}

impl OffsetWidth {
    fn from_code(code: u32) -> Result<Self, ParseError> {
        [Self::One, Self::Two, Self::Four].get(code as usize).copied().ok_or(ParseError::Malformed)
    }

    fn read(self, bytes: &[u8], position: usize) -> Result<usize, ParseError> {
        let mut reader = ByteCursor::new(bytes, position);
        Ok(match self {
            Self::One => reader.u8()?.into(),
            Self::Two => reader.u16()?.into(),
            Self::Four => reader.u32()? as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readytorun::tests::random_bytes;

    #[test]
    fn a_sparse_array_has_the_elements_of_its_trees() {
        // Two blocks: one with elements 0 and 1, one with element 21 alone.
        let header = (22 << 2) << 1;
        let trees = [
            2,                    // block 0 begins after the offsets
            8,                    // block 1
            0b01 << 1,            // 0..8
            0b01 << 1,            // 0..4
            0b01 << 1,            // 0..2
            (0b11 | 2 << 2) << 1, // 0 and, two further, 1
            0xaa,
            0xbb,
            (5 << 2) << 1, // 16 + 5 alone
            0xcc,
        ];
        let bytes: Vec<u8> = [header as u8].into_iter().chain(trees).collect();
        let found: Vec<_> = array_elements(&bytes).unwrap().map(|(index, at)| (index, bytes[at])).collect();
        assert_eq!(found, [(0, 0xaa), (1, 0xbb), (21, 0xcc)]);
    }

    #[test]
    fn a_hash_table_has_the_entries_of_all_its_buckets() {
        // Two buckets of one and two entries; 3 offsets of one byte.
        let bytes = [1 << 2, 3, 5, 9, 0x11, 5 << 1, 0x22, 4 << 1, 0x33, 3 << 1, 0xaa, 0xbb];
        assert_eq!(hash_table_entries(&bytes, 10).unwrap(), [10, 11, 12]);
        assert_eq!(hash_table_entries(&bytes, 2), Err(ParseError::TooLarge));
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let bytes = random_bytes(&mut random, 64);
            let _ = array_elements(&bytes).map(Iterator::count);
            let _ = hash_table_entries(&bytes, 1000);
        }
    }
}
