//! Code of .NET whose unwind information describes prologues but not epilogues: that of NativeAOT programs and that of the JIT
//! compiler.
//!
//! The *return test* counts the `ret` instructions at which the CFA is not RSP + 8. If it fails, rows from the instructions of
//! epilogues replace those of the CFI there.

use std::{
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Range,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;
use profiler_common::unwind::{CfaRule, FramePointerRule, Rule};
use profiler_elf_symbols::{Elf, Machine, Sections};
use profiler_stack_height::{
    Cfa, Confidence, Epilogue, Frame, SavedFramePointer, StackRow, for_each_epilogue,
};

use crate::{
    cfi_entries::KEYS,
    instruction_rows::{RETURN_ADDRESS_OFFSET, rule},
};

/// The section with the methods of a NativeAOT program. Other files are not tested: their compilers describe epilogues, and
/// to test them, all of their code would be read, decoded and hashed, which takes more time than the rest of a table.
const MANAGED_CODE: &[u8] = b"__managedcode";

/// The largest section that is read: several times that of a web service.
const MAX_CODE_BYTES: u64 = 32 << 20;

/// The return test fails if more than one in so many `ret` instructions has a wrong row.
const RETURNS_PER_WRONG_ROW: usize = 20;

/// The methods of a NativeAOT program, or a function of JIT code.
pub(crate) struct ManagedCode {
    address: u64,
    bytes: Vec<u8>,
}

/// The return test of one function.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionEpilogues {
    /// The rows with those of the epilogues; `None` if none differs.
    pub(crate) rows: Option<Vec<(u64, Rule)>>,
    /// The number of `ret` instructions.
    pub(crate) returns: usize,
    /// Those at which the rows are wrong.
    pub(crate) wrong: usize,
}

impl ManagedCode {
    /// Code from an address on.
    pub(crate) fn new(address: u64, bytes: Vec<u8>) -> Self {
        Self { address, bytes }
    }

    /// Reads the section; `None` if the file has none, or it is too large.
    pub(crate) fn read(elf: &Elf, headers: &Sections) -> Result<Option<Self>, ParseError> {
        let section = headers.find(MANAGED_CODE).filter(|_| elf.machine() == Machine::X86_64);
        let Some(addresses) = section.map(|section| section.addresses()) else { return Ok(None) };
        let length = addresses.end - addresses.start;
        let place = elf.layout().rest_from(ElfAddress(addresses.start));
        let Some((offset, _)) = place.filter(|(_, rest)| length <= (*rest).min(MAX_CODE_BYTES)) else {
            return Ok(None);
        };
        let bytes = elf.image().read(offset.0, length, MAX_CODE_BYTES)?;
        Ok(Some(Self::new(addresses.start, bytes)))
    }

    /// Whether a function is in the section.
    pub(crate) fn contains(&self, function: &Range<u64>) -> bool {
        self.function(function).is_some()
    }

    fn function(&self, function: &Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(function.start.checked_sub(self.address)?).ok()?;
        let end = usize::try_from(function.end.checked_sub(self.address)?).ok()?;
        self.bytes.get(start..end)
    }

    /// Tests the rows of a function, which begin at its start, and replaces those of its epilogues.
    pub(crate) fn test(&self, function: Range<u64>, rows: &[(u64, Rule)]) -> FunctionEpilogues {
        let code = self.function(&function).unwrap_or_default();
        let mut tested = FunctionEpilogues::default();
        let mut replaced = Vec::new();
        for_each_epilogue(code, function.start, |epilogue| {
            let is_wrong = |rule: Rule| {
                rule.cfa != CfaRule::StackPointer as u8
                    || rule.cfa_offset != -i32::from(RETURN_ADDRESS_OFFSET)
            };
            let returns_wrong = epilogue.return_address().map(|address| is_wrong(rule_at(rows, address)));
            tested.returns += usize::from(returns_wrong.is_some());
            if returns_wrong == Some(false) {
                return;
            }
            let frames = frames(epilogue, rule_at(rows, epilogue.start()));
            tested.wrong += usize::from(returns_wrong.is_some());
            if !frames.is_empty() {
                replaced.push((epilogue.end(), frames));
            }
        });
        tested.rows = (!replaced.is_empty()).then(|| with_epilogues(rows, &replaced, function.end));
        tested
    }
}

/// The rows can depend on every byte of the section.
impl Hash for ManagedCode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.address, KEYS.hash_one(&self.bytes)).hash(state);
    }
}

/// The return test of all functions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReturnTest {
    returns: usize,
    wrong: usize,
}

impl ReturnTest {
    pub(crate) fn add(&mut self, function: &FunctionEpilogues) {
        self.returns += function.returns;
        self.wrong += function.wrong;
    }

    /// Whether the call frame information does not describe epilogues.
    pub(crate) fn has_failed(self) -> bool {
        self.wrong.saturating_mul(RETURNS_PER_WRONG_ROW) > self.returns
    }
}

/// The frames of an epilogue after its first instruction, with the rule before it; empty if they do not agree.
fn frames(epilogue: &Epilogue, before: Rule) -> Vec<(u64, Frame)> {
    frame_of(before).and_then(|frame| epilogue.frames(frame)).unwrap_or_default()
}

/// The frame that a rule of the call frame information describes; `None` for one that no epilogue releases.
fn frame_of(rule: Rule) -> Option<Frame> {
    let cfa = match rule.cfa {
        kind if kind == CfaRule::StackPointer as u8 => Cfa::StackPointer(rule.cfa_offset),
        kind if kind == CfaRule::FramePointer as u8 => Cfa::FramePointer(rule.cfa_offset),
        _ => return None,
    };
    let frame_pointer = match rule.frame_pointer {
        kind if kind == FramePointerRule::Same as u8 => SavedFramePointer::Same,
        kind if kind == FramePointerRule::AtCfa as u8 => SavedFramePointer::AtCfa(rule.frame_pointer_offset),
        _ => return None,
    };
    let is_on_stack = rule.return_address == 0 && rule.return_address_offset == RETURN_ADDRESS_OFFSET;
    is_on_stack.then_some(Frame { cfa, frame_pointer })
}

/// The rule at an address, which is not before that of the first row.
fn rule_at(rows: &[(u64, Rule)], address: u64) -> Rule {
    let following = rows.partition_point(|(start, _)| *start <= address);
    following.checked_sub(1).map_or(Rule::default(), |index| rows[index].1)
}

/// Replaces rows by those of epilogues, which are given with the address of the instruction behind each.
fn with_epilogues(
    rows: &[(u64, Rule)],
    epilogues: &[(u64, Vec<(u64, Frame)>)],
    function_end: u64,
) -> Vec<(u64, Rule)> {
    let mut merged = Vec::with_capacity(rows.len() + epilogues.len() * 4);
    let mut kept_from = 0;
    for (end, frames) in epilogues {
        let Some((start, _)) = frames.first() else { continue };
        let kept = rows.iter().filter(|(address, _)| (kept_from..*start).contains(address));
        merged.extend(kept);
        merged.extend(frames.iter().map(|(address, frame)| {
            let row = StackRow { address: *address, frame: Some(*frame), confidence: Confidence::Full };
            (*address, rule(&row))
        }));
        if *end < function_end {
            merged.push((*end, rule_at(rows, *end)));
        }
        kept_from = end.saturating_add(1);
    }
    merged.extend(rows.iter().filter(|(address, _)| *address >= kept_from));
    merged
}

#[cfg(test)]
mod tests;
