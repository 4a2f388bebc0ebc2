//! Rows computed from the instructions of an ELF file, for parts of its code without call frame information.

use std::{
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Range,
    sync::Arc,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ParseError, RelativeRelocation, Segment, SegmentLayout, WorkBudget};
use profiler_common::unwind::{CfaRule, FramePointerRule, Rule, RuleFlags};
use profiler_elf_symbols::{Elf, Machine};
use profiler_stack_height::{
    Cfa, Confidence, Frame, Hints, MAX_CODE_ADDRESS, Program, SavedFramePointer, StackRow, analyze_in_parts,
    never_returns,
};

use crate::{
    cfi_entries::KEYS,
    rule::{pack_offsets, rule_without_offsets},
};

/// The most code that is analysed: with a quarter of a second for a megabyte, the table of a file takes at most 0.8 seconds.
pub(crate) const MAX_CODE_BYTES: u64 = 3 << 20;

/// The most bytes of a file that are in memory while it is analysed: its segments, because tables of jumps are in its data. Code
/// behind them is not analysed.
pub(crate) const MAX_LOADED_BYTES: u64 = 32 << 20;

const POINTER_BYTES: usize = size_of::<u64>();

/// The most pointers that are taken from data without relocations.
const MAX_POINTERS_IN_DATA: usize = 1 << 18;

/// The offset of the return address from the CFA (System V ABI AMD64, 3.2.2).
pub(crate) const RETURN_ADDRESS_OFFSET: i16 = -8;

/// What the analysis reads of a file.
pub(crate) struct Instructions {
    /// Of all code.
    text: Vec<Range<u64>>,
    /// Of the code in `bytes`. What the file does not have of a segment or section is a claim of a malformed file.
    code_ranges: Vec<Range<u64>>,
    /// The start of the file, up to the end of its segments or the limit.
    bytes: Vec<u8>,
    layout: SegmentLayout,
    relocations: Vec<RelativeRelocation>,
    is_position_independent: bool,
    hints: Hints,
}

impl Instructions {
    /// Whether the code of a file can be analysed.
    pub(crate) fn can_read(elf: &Elf) -> bool {
        elf.machine() == Machine::X86_64
    }

    /// Reads the segments of a file that [can be read](Self::can_read), as far as the limit allows.
    ///
    /// # Errors
    /// When relocations or symbols are malformed.
    pub(crate) fn read(elf: &Elf, text: Vec<Range<u64>>) -> Result<Self, ParseError> {
        let length = elf.loaded_end().0.min(elf.image().length()).min(MAX_LOADED_BYTES);
        let layout = elf.layout();
        let stored = |range| stored_part(&layout, length, range);
        let mut found = Self {
            code_ranges: text.iter().filter_map(|range| stored(range.clone())).collect(),
            text,
            bytes: elf.image().read(0, length, MAX_LOADED_BYTES)?,
            layout,
            relocations: elf.relative_relocations(&Arc::new(WorkBudget::default()))?,
            is_position_independent: elf.is_position_independent(),
            hints: Hints::default(),
        };
        found.hints = found.hints(elf)?;
        Ok(found)
    }

    fn hints(&self, elf: &Elf) -> Result<Hints, ParseError> {
        let mut hints = Hints {
            entry: Some(elf.entry().0),
            has_fixed_addresses: !self.is_position_independent,
            ..Hints::default()
        };
        elf.for_each_function(|address, name| {
            // The compiler's name of the part of a function that is seldom executed.
            if memchr::memmem::find(name, b".cold").is_none() {
                hints.function_starts.push(address.0);
            }
            // It ends a program, and is called by its entry point alone.
            if never_returns(name) && name != b"__libc_start_main" {
                hints.never_return.push(address.0);
            }
        })?;
        hints.code_pointers = self.relocations.iter().map(|relocation| relocation.target.0).collect();
        if !self.is_position_independent {
            hints.code_pointers.extend(self.pointers_in_data());
            hints.code_pointers.sort_unstable();
            hints.code_pointers.dedup();
        }
        hints.function_starts.retain(|address| self.is_code(*address));
        hints.code_pointers.retain(|address| self.is_code(*address));
        Ok(hints)
    }

    /// Aligned words in data that are addresses of code: of functions, of labels, or numbers of the same value.
    fn pointers_in_data(&self) -> impl Iterator<Item = u64> {
        let words = self.layout.segments().iter().filter_map(|segment| self.words_of(segment)).flatten();
        let pointers = words.filter(|(place, word)| self.is_code(*word) && !self.is_code(*place));
        pointers.map(|(_, pointer)| pointer).take(MAX_POINTERS_IN_DATA)
    }

    /// The aligned words of a segment with their addresses.
    fn words_of(&self, segment: &Segment) -> Option<impl Iterator<Item = (u64, u64)>> {
        let first = segment.address.0.checked_next_multiple_of(POINTER_BYTES as u64)?;
        let start = segment.offset.0.checked_add(first - segment.address.0)?;
        let end = segment.offset.0.saturating_add(segment.file_bytes).min(self.bytes.len() as u64);
        let (words, _) = self.bytes.get(start as usize..end as usize)?.as_chunks::<POINTER_BYTES>();
        let places = (first..=u64::MAX).step_by(POINTER_BYTES);
        Some(places.zip(words.iter().map(|word| u64::from_le_bytes(*word))))
    }

    fn is_code(&self, address: u64) -> bool {
        self.code_ranges.iter().any(|range| range.contains(&address))
    }

    /// The address ranges of all code.
    pub(crate) fn text(&self) -> &[Range<u64>] {
        &self.text
    }

    /// The address ranges of the code that can be analysed.
    pub(crate) fn readable_text(&self) -> &[Range<u64>] {
        &self.code_ranges
    }

    /// The rows of ranges of code, which are sorted; none if the analysis exceeds a limit or is cancelled.
    pub(crate) fn rows(&self, wanted: &[Range<u64>], should_continue: &dyn Fn() -> bool) -> Vec<(u64, Rule)> {
        let mut rules = Vec::new();
        let analyzed = analyze_in_parts(self, &self.hints, wanted, should_continue, &mut |rows| {
            rules.extend(rows.iter().map(|row| (row.address, rule(row))));
            Ok(())
        });
        if analyzed.is_ok() { rules } else { Vec::new() }
    }
}

/// The first parts of sorted ranges, which have at most `bytes` together.
pub(crate) fn first_bytes(ranges: &[Range<u64>], bytes: u64) -> Vec<Range<u64>> {
    let mut left = bytes;
    let parts = ranges.iter().map(|range| {
        let end = range.end.min(range.start.saturating_add(left));
        left -= end - range.start;
        range.start..end
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The part of a range of code whose bytes are in a file of this length, at addresses that a process can have.
fn stored_part(layout: &SegmentLayout, file_bytes: u64, range: Range<u64>) -> Option<Range<u64>> {
    let (offset, rest_of_segment) = layout.rest_from(ElfAddress(range.start))?;
    let bytes = file_bytes.checked_sub(offset.0)?.min(rest_of_segment);
    let end = range.end.min(range.start.saturating_add(bytes)).min(MAX_CODE_ADDRESS);
    (range.start < end).then_some(range.start..end)
}

/// The length of ranges.
pub(crate) fn total_bytes(ranges: &[Range<u64>]) -> u64 {
    let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start));
    bytes.fold(0, u64::saturating_add)
}

impl Program for Instructions {
    fn code_ranges(&self) -> &[Range<u64>] {
        &self.code_ranges
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some((offset, rest)) = self.layout.rest_from(ElfAddress(address)) else { return false };
        let start = usize::try_from(offset.0).unwrap_or(usize::MAX);
        let bytes = start.checked_add(into.len()).and_then(|end| self.bytes.get(start..end));
        let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 <= rest) else { return false };
        into.copy_from_slice(bytes);
        true
    }

    fn pointer(&self, address: u64) -> Option<u64> {
        let place = ElfAddress(address);
        if let Ok(index) = self.relocations.binary_search_by_key(&place, |relocation| relocation.place) {
            return self.relocations.get(index).map(|relocation| relocation.target.0);
        }
        let mut bytes = [0; 8];
        (!self.is_position_independent && self.read(address, &mut bytes)).then(|| u64::from_le_bytes(bytes))
    }
}

/// The rows can depend on every byte of the segments, and on symbols that are not in them.
impl Hash for Instructions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KEYS.hash_one((&self.bytes, &self.hints, &self.text)).hash(state);
    }
}

/// The rule of a row; the rule for code without unwind information where its frame is not known.
pub(crate) fn rule(row: &StackRow) -> Rule {
    let Some(Frame { cfa, frame_pointer }) = row.frame else {
        return Rule::default();
    };
    let (cfa, cfa_offset) = match cfa {
        Cfa::StackPointer(offset) => (CfaRule::StackPointer, offset),
        Cfa::FramePointer(offset) => (CfaRule::FramePointer, offset),
        Cfa::StoredAtStackPointer { offset, add } => {
            (CfaRule::StoredAtStackPointer, pack_offsets(offset, add))
        }
        Cfa::StoredAtFramePointer { offset, add } => {
            (CfaRule::StoredAtFramePointer, pack_offsets(offset, add))
        }
        Cfa::SignalFrame => return rule_without_offsets(CfaRule::SignalFrame),
        Cfa::Root => return rule_without_offsets(CfaRule::Root),
    };
    let (frame_pointer, frame_pointer_offset) = match frame_pointer {
        SavedFramePointer::Same => (FramePointerRule::Same, 0),
        SavedFramePointer::AtCfa(offset) => (FramePointerRule::AtCfa, offset),
        SavedFramePointer::AtFramePointer(offset) => (FramePointerRule::AtFramePointer, offset),
        SavedFramePointer::Unknown => (FramePointerRule::Undefined, 0),
    };
    Rule {
        cfa: cfa as u8,
        cfa_offset,
        frame_pointer: frame_pointer as u8,
        frame_pointer_offset,
        return_address: match row.confidence {
            Confidence::Full => RuleFlags::BY_INSTRUCTIONS,
            Confidence::ReturnMustFollowCall => RuleFlags::BY_INSTRUCTIONS | RuleFlags::RETURNS_BEHIND_CALL,
        },
        return_address_offset: RETURN_ADDRESS_OFFSET,
        ..Rule::default()
    }
}
