//! Rows of small gaps between functions with call frame information, computed from the bytes of the gaps alone: functions in assembly,
//! which the rest of the file calls.

use std::{
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Range,
};

use profiler_addresses::ElfAddress;
use profiler_common::unwind::Rule;
use profiler_elf_symbols::Elf;
use profiler_stack_height::{Hints, MAX_CODE_ADDRESS, Program, analyze_in_parts, behind_padding};

use crate::{cfi_entries::KEYS, instruction_rows::rule};

/// Larger gaps are analysed together with the functions and the data of their file.
pub(crate) const MAX_GAP_BYTES: u64 = 4 << 10;

/// The most gaps of a file that have rows. Real files have at most a few dozen.
pub(crate) const MAX_GAPS: usize = 64;

/// The most gaps that are read: most are alignment of sections.
const MAX_READ_GAPS: usize = 1024;

/// The small gaps of one file.
pub(crate) struct SmallGaps {
    /// Sorted.
    ranges: Vec<Range<u64>>,
    /// The bytes of each.
    code: Vec<Vec<u8>>,
    hints: Hints,
}

impl SmallGaps {
    /// Reads the first small ones of sorted gaps in the code of a file for x86-64; `None` if it has only padding there.
    pub(crate) fn read(elf: &Elf, gaps: &[Range<u64>]) -> Option<Self> {
        let mut found = Self { ranges: Vec::new(), code: Vec::new(), hints: Hints::default() };
        let is_small = |gap: &&Range<u64>| gap.end <= MAX_CODE_ADDRESS && gap.end - gap.start < MAX_GAP_BYTES;
        for gap in gaps.iter().filter(is_small).take(MAX_READ_GAPS) {
            let Some(code) = bytes_of(elf, gap) else { continue };
            let Some(start) = behind_padding(&code) else { continue };
            // It may be a function: its instructions decide.
            found.hints.code_pointers.push(gap.start.saturating_add(start as u64));
            found.ranges.push(gap.clone());
            found.code.push(code);
            if found.ranges.len() == MAX_GAPS {
                break;
            }
        }
        (!found.ranges.is_empty()).then_some(found)
    }

    /// The address ranges of the gaps.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The rows of all gaps; none if the analysis exceeds a limit or is cancelled.
    pub(crate) fn rows(&self, should_continue: &dyn Fn() -> bool) -> Vec<(u64, Rule)> {
        let mut rules = Vec::new();
        let analyzed = analyze_in_parts(self, &self.hints, &self.ranges, should_continue, &mut |rows| {
            rules.extend(rows.iter().map(|row| (row.address, rule(row))));
            Ok(())
        });
        if analyzed.is_ok() { rules } else { Vec::new() }
    }
}

/// The bytes of a range of code, if the file has all of them.
fn bytes_of(elf: &Elf, range: &Range<u64>) -> Option<Vec<u8>> {
    let (offset, rest) = elf.layout().rest_from(ElfAddress(range.start))?;
    let bytes = (range.end - range.start).min(rest);
    let code = elf.image().read(offset.0, bytes, MAX_GAP_BYTES).ok()?;
    (code.len() as u64 == range.end - range.start).then_some(code)
}

impl Program for SmallGaps {
    fn code_ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let index = self.ranges.partition_point(|range| range.end <= address);
        let bytes = self.ranges.get(index).zip(self.code.get(index)).and_then(|(range, code)| {
            let start = address.checked_sub(range.start)? as usize;
            code.get(start..start.checked_add(into.len())?)
        });
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    fn pointer(&self, _: u64) -> Option<u64> {
        None
    }
}

impl Hash for SmallGaps {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KEYS.hash_one((&self.ranges, &self.code)).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use object::elf;
    use profiler_binary_reader::Image;
    use profiler_common::unwind::{CfaRule, RuleFlags};
    use profiler_elf_symbols::test_file::TestFile;

    use super::*;
    use crate::{
        elf_source::ElfSource,
        table::UnwindTable,
        test_cfi::{CODE_ADDRESS, TestCfi},
    };

    /// The code of a function with call frame information.
    const DESCRIBED: [u8; 16] = [0x90; 16];
    /// `push %rbp; pop %rbp; ret`.
    const FUNCTION: [u8; 3] = [0x55, 0x5d, 0xc3];
    /// `sub $8, %rsp; add $8, %rsp; ret`.
    const OTHER_FUNCTION: [u8; 9] = [0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3];

    /// A file with functions that have call frame information, and one of these gaps behind each.
    fn file(gaps: &[Vec<u8>]) -> TestFile {
        let (mut code, mut cfi) = (Vec::new(), TestCfi::x86_64());
        for gap in gaps {
            cfi = cfi.function(CODE_ADDRESS + code.len() as u64, DESCRIBED.len() as u64, &[]);
            code.extend(DESCRIBED.iter().chain(gap));
        }
        cfi = cfi.function(CODE_ADDRESS + code.len() as u64, DESCRIBED.len() as u64, &[]);
        code.extend(DESCRIBED);
        // As much call frame information as describes the code.
        while code.len() > 16 * cfi.bytes.len() {
            cfi = cfi.function(CODE_ADDRESS + code.len() as u64, 1, &[]);
            code.push(0x90);
        }
        TestFile::with_code().code_at(".code", CODE_ADDRESS, code).with(
            ".eh_frame",
            elf::SHT_PROGBITS,
            cfi.bytes,
        )
    }

    fn table(image: Vec<u8>) -> UnwindTable {
        let elf = Elf::parse(Image::Memory(image)).unwrap();
        let table = ElfSource::read(&elf, |_| None).and_then(|source| source.compile(&|| true)).unwrap();
        table.assert_valid();
        table
    }

    /// The CFA of a row from instructions at an offset in the code, as its distance from the stack pointer.
    fn distance(table: &UnwindTable, offset: usize) -> Option<i32> {
        let pages: Vec<_> = table.pages().collect();
        let rule = table.find_rule(&pages, CODE_ADDRESS + offset as u64);
        let is_computed = rule.return_address & RuleFlags::BY_INSTRUCTIONS != 0;
        assert!(!is_computed || rule.cfa == CfaRule::StackPointer as u8, "{rule:?}");
        is_computed.then_some(rule.cfa_offset)
    }

    /// The gap `index` of equal ones, each with a function at its start: whether that has rows.
    fn has_rows(table: &UnwindTable, gap: &[u8], index: usize) -> bool {
        let start = index * (DESCRIBED.len() + gap.len()) + DESCRIBED.len();
        let distances = [0, 1, 2].map(|offset| distance(table, start + offset));
        assert!([[Some(8), Some(16), Some(8)], [None; 3]].contains(&distances), "{distances:?}");
        distances[0].is_some()
    }

    /// A gap of one function and padding.
    fn gap() -> Vec<u8> {
        [&FUNCTION[..], &[0xcc; 29]].concat()
    }

    #[test]
    fn functions_in_a_small_gap_have_rows() {
        // The second one is not aligned, and nothing leads to it.
        let gap = [&FUNCTION[..], &OTHER_FUNCTION, &[0x90; 20], &FUNCTION, &[0xcc; 13]].concat();
        let table = table(file(&[gap]).bytes());
        let distances = |start: usize, bytes: usize| {
            let offsets = (start..start + bytes).map(|offset| DESCRIBED.len() + offset);
            offsets.map(|offset| distance(&table, offset).unwrap_or(0)).collect::<Vec<_>>()
        };
        assert_eq!(distances(0, 3), [8, 16, 8]);
        assert_eq!(distances(3, 9), [8, 8, 8, 8, 16, 16, 16, 16, 8]);
        assert_eq!(distances(32, 3), [8, 16, 8]);
    }

    #[test]
    fn gaps_up_to_a_limit_have_rows_and_padding_does_not_count() {
        let gaps = vec![gap(); MAX_GAPS + 1];
        let with_functions = table(file(&gaps).bytes());
        let found: Vec<_> = (0..=MAX_GAPS).map(|index| has_rows(&with_functions, &gap(), index)).collect();
        assert_eq!(found, [&[true; MAX_GAPS][..], &[false]].concat());
        let paddings = [0xcc, 0x90, 0].map(|byte| vec![byte; gap().len()]).into_iter();
        let paddings = paddings.cycle().take(2 * MAX_GAPS);
        let gaps: Vec<_> = std::iter::once(gap()).chain(paddings).chain([gap()]).collect();
        let among_padding = table(file(&gaps).bytes());
        let all = [0, 1, 2, 3, gaps.len() - 1].map(|index| has_rows(&among_padding, &gap(), index));
        assert_eq!(all, [true, false, false, false, true]);
    }

    #[test]
    fn a_large_gap_leaves_the_rows_of_small_ones() {
        // More than is analysed of a file, and data in the middle of its code rather than functions.
        let data = [&FUNCTION[..], &[0xcc; 96 << 10]].concat();
        let described = vec![Vec::new(); 56 << 10];
        let file = file(&[&[gap(), data][..], &described].concat());
        let table = table(file.bytes());
        assert!(has_rows(&table, &gap(), 0));
        let behind = 2 * DESCRIBED.len() + gap().len();
        assert_eq!(distance(&table, behind), None);
    }

    #[test]
    fn files_with_other_code_in_a_gap_have_other_hashes() {
        let hash = |gap: Vec<u8>| {
            let elf = Elf::parse(Image::Memory(file(&[gap]).bytes())).unwrap();
            KEYS.hash_one(ElfSource::read(&elf, |_| None).unwrap())
        };
        let mut other = gap();
        other[1] = 0x90;
        assert_ne!(hash(gap()), hash(other));
        assert_eq!(hash(gap()), hash(gap()));
    }
}
