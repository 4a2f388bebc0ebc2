//! Finds the start of the method that contains an address: the nibble map of a code heap.
//!
//! A code heap is divided into buckets of 32 bytes, in which at most one method starts. Each bucket has four bits of the map:
//! 0, or one more than the index of the word of four bytes in the bucket where the method starts. Units of the map have eight
//! buckets, the first one in the highest bits.
//!
//! In the version with constant lookup, a unit whose lowest four bits are 9 to 12 has a pointer: the method that spans all of
//! its buckets starts at the distance in the other bits, to which the lowest four add up to three words.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/ExecutionManager.md`, "NibbleMap"; `vm/nibblemapmacros.h`.

use crate::{error::LookupError, layout::NibbleMapKind};

const BUCKET_BYTES: u64 = 32;
const BUCKETS_PER_UNIT: u64 = 8;
const WORD_BYTES: u64 = 4;
const UNIT_BYTES: u64 = 4;

/// Units of one read of a search.
const UNITS_PER_READ: u64 = 256;

/// The largest method: 64 MiB. The JIT compiles no method of that size.
const MAX_UNITS: u64 = (64 << 20) / (BUCKET_BYTES * BUCKETS_PER_UNIT);

/// Finds the distance of a method's start from the base of the map, given the distance of an address in it. `read` reads
/// the map: it fills a buffer with the bytes from an offset.
///
/// # Errors
/// [`LookupError::NoMethod`] when no method starts before, and the errors of `read`.
pub(crate) fn find_start(
    kind: NibbleMapKind,
    distance: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), LookupError>,
) -> Result<u64, LookupError> {
    let bucket = distance / BUCKET_BYTES;
    let unit = bucket / BUCKETS_PER_UNIT;
    let mut bytes = [0; UNIT_BYTES as usize];
    read(unit.saturating_mul(UNIT_BYTES), &mut bytes)?;
    let value = u32::from_le_bytes(bytes);
    if let Some(start) = pointed_start(kind, value) {
        return Ok(start);
    }
    if let Some(start) = last_start(unit, value, distance) {
        return Ok(start);
    }
    match kind {
        // A method that spans a whole unit has a pointer there: its start is in this unit or in the one before.
        NibbleMapKind::Constant => {
            let before = unit.checked_sub(1).ok_or(LookupError::NoMethod)?;
            read(before.saturating_mul(UNIT_BYTES), &mut bytes)?;
            let value = u32::from_le_bytes(bytes);
            let start = pointed_start(kind, value).or_else(|| last_start(before, value, u64::MAX));
            start.ok_or(LookupError::NoMethod)
        }
        NibbleMapKind::Linear => find_before(unit, read),
    }
}

/// The starts of methods in the units of a map, as distances from its base. `first_unit` is the index of the first one.
pub(crate) fn starts(kind: NibbleMapKind, first_unit: u64, units: &[u8]) -> impl Iterator<Item = u64> {
    let values = (first_unit..).zip(units.as_chunks::<4>().0);
    let values = values.map(|(unit, value)| (unit, u32::from_le_bytes(*value)));
    values.filter(move |(_, value)| pointed_start(kind, *value).is_none()).flat_map(|(unit, value)| {
        (0..BUCKETS_PER_UNIT).filter_map(move |index| start_in_bucket(unit, value, index))
    })
}

/// The bytes of a map for code of a length.
pub(crate) const fn map_bytes(code_bytes: u64) -> u64 {
    code_bytes.div_ceil(BUCKET_BYTES * BUCKETS_PER_UNIT) * UNIT_BYTES
}

/// Searches the units before `unit`, last to first.
fn find_before(
    unit: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), LookupError>,
) -> Result<u64, LookupError> {
    let first = unit.saturating_sub(MAX_UNITS);
    let mut end = unit;
    let mut bytes = [0; (UNITS_PER_READ * UNIT_BYTES) as usize];
    while end > first {
        let begin = end.saturating_sub(UNITS_PER_READ).max(first);
        let chunk = &mut bytes[..((end - begin) * UNIT_BYTES) as usize];
        read(begin.saturating_mul(UNIT_BYTES), chunk)?;
        for (index, value) in chunk.as_chunks::<4>().0.iter().enumerate().rev() {
            if let Some(start) = last_start(begin + index as u64, u32::from_le_bytes(*value), u64::MAX) {
                return Ok(start);
            }
        }
        end = begin;
    }
    Err(LookupError::NoMethod)
}

/// The start that a unit points to.
fn pointed_start(kind: NibbleMapKind, value: u32) -> Option<u64> {
    const FIRST_POINTER: u32 = 9;
    const LAST_POINTER: u32 = 12;
    let low = value & 0xf;
    let is_pointer = kind == NibbleMapKind::Constant && (FIRST_POINTER..=LAST_POINTER).contains(&low);
    is_pointer.then(|| u64::from(value & !0xf) + u64::from(low - FIRST_POINTER) * WORD_BYTES)
}

/// The last start in a unit that is not behind a distance.
fn last_start(unit: u64, value: u32, distance: u64) -> Option<u64> {
    let buckets = (0..BUCKETS_PER_UNIT).rev();
    buckets.filter_map(|index| start_in_bucket(unit, value, index)).find(|start| *start <= distance)
}

/// The start in a bucket of a unit.
fn start_in_bucket(unit: u64, value: u32, index: u64) -> Option<u64> {
    const LAST_WORD: u64 = BUCKET_BYTES / WORD_BYTES;
    let nibble = u64::from(value >> (28 - 4 * index) & 0xf);
    let bucket = unit.checked_mul(BUCKETS_PER_UNIT)?.checked_add(index)?;
    let start = bucket.checked_mul(BUCKET_BYTES)?.checked_add(nibble.checked_sub(1)? * WORD_BYTES)?;
    (nibble <= LAST_WORD).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(kind: NibbleMapKind, units: &[u32], distance: u64) -> Result<u64, LookupError> {
        find_start(kind, distance, |offset, into| {
            for (at, byte) in (offset..).zip(into) {
                let unit = units.get((at / 4) as usize).ok_or(LookupError::Malformed("test map"))?;
                *byte = unit.to_le_bytes()[(at % 4) as usize];
            }
            Ok(())
        })
    }

    const BOTH: [NibbleMapKind; 2] = [NibbleMapKind::Linear, NibbleMapKind::Constant];

    #[test]
    fn a_start_is_the_last_one_that_is_not_behind_the_address() {
        // The example of the document: a method at 0x130, in bucket 9.
        for kind in BOTH {
            let units = [0, 0x0500_0000, 0];
            assert_eq!(find(kind, &units, 0x130), Ok(0x130));
            assert_eq!(find(kind, &units, 0x132), Ok(0x130));
            assert_eq!(find(kind, &units, 0x1ff), Ok(0x130));
            assert_eq!(find(kind, &units, 0x2ff), Ok(0x130), "in the next unit");
            assert_eq!(find(kind, &units, 0x12f), Err(LookupError::NoMethod));
            assert_eq!(find(kind, &units, 0), Err(LookupError::NoMethod));
        }
    }

    #[test]
    fn one_unit_can_have_several_methods() {
        for kind in BOTH {
            // Starts at 0x00, 0x3c and 0xe0.
            let units = [0x1800_0001];
            for (distance, start) in [(0, 0), (0x3b, 0), (0x3c, 0x3c), (0xdf, 0x3c), (0xe0, 0xe0)] {
                assert_eq!(find(kind, &units, distance), Ok(start), "{distance:x}");
            }
        }
    }

    #[test]
    fn all_starts_of_a_map_are_listed() {
        // A start in each of two units, and a pointer between them.
        let units = [0x0500_0000_u32, 0x130 | 9, 0x1800_0001].map(u32::to_le_bytes).concat();
        let listed: Vec<_> = starts(NibbleMapKind::Constant, 1, &units).collect();
        assert_eq!(listed, [0x130, 0x300, 0x33c, 0x3e0]);
        assert_eq!(map_bytes(0x301), 16);
    }

    #[test]
    fn a_long_method_is_found_by_its_pointer_or_by_the_search() {
        let mut units = vec![0; 600];
        units[1] = 0x0500_0000;
        assert_eq!(find(NibbleMapKind::Linear, &units, 599 * 256), Ok(0x130));
        assert_eq!(find(NibbleMapKind::Constant, &units, 599 * 256), Err(LookupError::NoMethod));
        // 0x130 is 0x130 and no further words.
        units[599] = 0x130 | 9;
        units[598] = 0x130 | 12;
        assert_eq!(find(NibbleMapKind::Constant, &units, 599 * 256), Ok(0x130));
        units[599] = 0;
        assert_eq!(find(NibbleMapKind::Constant, &units, 599 * 256), Ok(0x13c), "from the unit before");
    }

    #[test]
    fn a_search_is_bounded() {
        let mut reads = 0;
        let found = find_start(NibbleMapKind::Linear, 1 << 40, |_, into| {
            into.fill(0);
            reads += 1;
            Ok(())
        });
        assert_eq!(found, Err(LookupError::NoMethod));
        assert!(reads <= 1 + MAX_UNITS / UNITS_PER_READ, "{reads}");
    }

    #[test]
    fn random_maps_have_no_start_behind_the_address() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let units: Vec<u32> = (0..8).map(|_| random.u32(..) & random.u32(..)).collect();
            let distance = random.u64(..8 * 256);
            if let Ok(start) = find(NibbleMapKind::Linear, &units, distance) {
                assert!(start <= distance, "{start:x} {distance:x} {units:x?}");
            }
            let _ = find(NibbleMapKind::Constant, &units, distance);
        }
        for kind in BOTH {
            assert!(find(kind, &[], u64::MAX).is_err());
        }
    }
}
