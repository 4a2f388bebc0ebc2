//! A set of addresses in code: one bit a byte.

use std::ops::Range;

use crate::Error;

/// The most bytes of code of one program: 16 MiB for a set.
const MAX_CODE_BYTES: u64 = 128 << 20;

/// A set of addresses within ranges of code.
pub(crate) struct AddressSet {
    /// The ranges and the number of bits before each.
    ranges: Vec<(Range<u64>, u64)>,
    words: Vec<u64>,
}

impl AddressSet {
    /// An empty set for the addresses of sorted ranges.
    pub(crate) fn new(code_ranges: &[Range<u64>]) -> Result<Self, Error> {
        let mut bits = 0_u64;
        let mut ranges = Vec::with_capacity(code_ranges.len());
        for range in code_ranges {
            ranges.push((range.clone(), bits));
            bits = bits.saturating_add(range.end.saturating_sub(range.start));
        }
        if bits > MAX_CODE_BYTES {
            return Err(Error::TooLarge);
        }
        Ok(Self { ranges, words: vec![0; bits.div_ceil(64) as usize] })
    }

    /// Adds the addresses from `start` up to `end`, which are in one range.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        let Some((first, range)) = self.position(start) else { return };
        let last = first + (end.min(range.end).saturating_sub(start)) as usize;
        for bit in first..last {
            self.words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Whether an address is in the set.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.position(address).is_some_and(|(bit, _)| self.words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// The number of an address among all of the ranges.
    pub(crate) fn index(&self, address: u64) -> Option<u32> {
        u32::try_from(self.position(address)?.0).ok()
    }

    /// The address with a number.
    pub(crate) fn address(&self, index: u32) -> Option<u64> {
        let following = self.ranges.partition_point(|(_, before)| *before <= index.into());
        let (range, before) = self.ranges.get(following.checked_sub(1)?)?;
        Some(range.start + (u64::from(index) - before))
    }

    /// The first address from `start` on that is not in the set, at most `end`, which is in the same range or at its end.
    pub(crate) fn next_absent(&self, start: u64, end: u64) -> u64 {
        let mut address = start;
        while address < end {
            let Some((bit, _)) = self.position(address) else { return address };
            let present = (self.words[bit / 64] >> (bit % 64)).trailing_ones();
            if u64::from(present) < 64 - bit as u64 % 64 {
                return (address + u64::from(present)).min(end);
            }
            address += u64::from(present);
        }
        end
    }

    /// The number of the address's bit, and the range that contains it.
    fn position(&self, address: u64) -> Option<(usize, Range<u64>)> {
        let following = self.ranges.partition_point(|(range, _)| range.start <= address);
        let (range, before) = self.ranges.get(following.checked_sub(1)?)?;
        range.contains(&address).then(|| ((before + (address - range.start)) as usize, range.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_absent_address_is_behind_those_in_the_set() {
        let ranges = [0x1000..0x1100, 0x2003..0x2200];
        let mut set = AddressSet::new(&ranges).unwrap();
        set.insert(0x1001, 0x1003);
        set.insert(0x2003, 0x2183);
        set.insert(0x2190, 0x2300);
        for range in &ranges {
            for start in range.clone() {
                let expected = (start..range.end).find(|address| !set.contains(*address));
                assert_eq!(set.next_absent(start, range.end), expected.unwrap_or(range.end), "{start:x}");
            }
        }
        let addresses = || ranges.iter().cloned().flatten();
        assert!(addresses().map(|address| set.index(address).unwrap()).eq(0..0x2fd));
        assert!((0..0x2fd).map(|index| set.address(index).unwrap()).eq(addresses()));
        assert_eq!(set.index(0x2000), None);
        assert_eq!(set.next_absent(0x2003, 0x2100), 0x2100);
        assert_eq!(set.next_absent(0x3000, 0x3001), 0x3000);
    }
}
