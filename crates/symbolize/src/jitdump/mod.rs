//! Reads jitdump files (`jit-PID.dump`): the JIT code of a runtime with exact times and line tables.

mod call_frames;
mod record;
mod stream;

use std::{collections::HashMap, ops::Range};

use indexmap::IndexSet;
use profiler_addresses::{CodeMap, InsertError, MonotonicTime};
use profiler_binary_reader::{Name, Names, shortened};

pub use self::call_frames::{JitCallFrames, JitFunctionFrames};
use self::{
    call_frames::CallFrames,
    record::{Lines, MAX_NAME_BYTES, Record},
    stream::{FileRecord, RecordStream},
};

/// Entries of all line tables together.
const MAX_LINES: usize = 2 << 20;
/// Source files of all line tables together.
const MAX_FILES: usize = 16 << 10;
/// Bytes of the paths of all source files.
const MAX_FILES_BYTES: usize = 8 << 20;
/// Longer paths are truncated (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;
/// Line tables whose code is not decoded yet. A runtime writes them directly before the code, so there is one for each
/// compiling thread.
const MAX_PENDING_TABLES: usize = 1024;

/// The code in a jitdump that is read while it grows.
#[derive(Debug, Default)]
pub(crate) struct JitDump {
    code: CodeMap<JitFunction>,
    names: Names,
    lines: Vec<LineStart>,
    files: IndexSet<Box<str>>,
    files_bytes: usize,
    /// Line tables by the address of code that is not decoded yet.
    pending_tables: HashMap<u64, LineTable>,
    records: RecordStream,
    call_frames: CallFrames,
    malformed_records: u64,
    truncated: bool,
}

/// The name and the line table of code.
#[derive(Clone, Copy, Debug)]
struct JitFunction {
    /// `None` where several functions were at the address at unknown times.
    name: Option<Name>,
    lines: LineTable,
}

/// A range of [`JitDump::lines`], sorted by offset.
#[derive(Clone, Copy, Debug, Default)]
struct LineTable {
    start: u32,
    end: u32,
}

/// An entry of a line table.
#[derive(Clone, Copy, Debug)]
struct LineStart {
    /// Relative to the start of the code, which can move.
    offset: u32,
    line: u32,
    file: u32,
}

/// The function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JitSymbol<'a> {
    /// The name as in the file. `None` where several functions were at the address at unknown times.
    pub(crate) name: Option<&'a str>,
    /// Source file and line.
    pub(crate) location: Option<(&'a str, u32)>,
    /// The time from which on the code exists.
    pub(crate) exists_from: MonotonicTime,
}

impl JitDump {
    /// Decodes the next bytes of the file.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut records = std::mem::take(&mut self.records);
        records.feed(bytes, |record| match record {
            Ok(record) => self.add(record),
            Err(_) => self.malformed_records += 1,
        });
        self.records = records;
    }

    /// Begins a new file. The code decoded so far stays valid for the time before.
    pub(crate) fn restart(&mut self) {
        self.records = RecordStream::default();
        self.call_frames.restart();
        self.pending_tables.clear();
    }

    /// The function whose code was at `address` at `time`.
    pub(crate) fn lookup(&self, address: u64, time: MonotonicTime) -> Option<JitSymbol<'_>> {
        let entry = self.code.lookup(address, time)?;
        let JitFunction { name, lines } = entry.payload;
        let location = self.location(lines, address - entry.start);
        let name = name.map(|name| self.names.get(name));
        Some(JitSymbol { name, location, exists_from: entry.exists_from })
    }

    /// Whether the code at an address was replaced after the start of an interval, and until its end.
    pub(crate) fn was_replaced_at(&self, address: u64, during: Range<MonotonicTime>) -> bool {
        let exists_from = |time| Some(self.code.lookup(address, time)?.exists_from);
        let before_and_after = exists_from(during.start).zip(exists_from(during.end));
        // An address that had no code has that which was there first.
        before_and_after.is_some_and(|(before, after)| {
            before <= during.start && during.start < after && after <= during.end
        })
    }

    /// See [`CodeMap::epoch`].
    pub(crate) fn epoch(&self, time: MonotonicTime) -> u32 {
        self.code.epoch(time)
    }

    /// Retires code that was replaced before a time, with its line tables.
    pub(crate) fn retire_replaced(&mut self, before: MonotonicTime) {
        if !self.code.has_mostly_replaced() {
            return;
        }
        let (names, lines) = (std::mem::take(&mut self.names), std::mem::take(&mut self.lines));
        let mut copy_lines = |table: LineTable| {
            let copied = lines.get(table.start as usize..table.end as usize).unwrap_or_default();
            let start = self.lines.len() as u32;
            self.lines.extend_from_slice(copied);
            LineTable { start, end: self.lines.len() as u32 }
        };
        for table in self.pending_tables.values_mut() {
            *table = copy_lines(*table);
        }
        self.code = self.code.retained(before, |function| {
            let name = match function.name {
                Some(name) => Some(self.names.push(names.get(name).as_bytes())?),
                None => None,
            };
            Some(JitFunction { name, lines: copy_lines(function.lines) })
        });
    }

    /// Records that are too short, and one for an invalid file.
    pub(crate) fn malformed_records(&self) -> u64 {
        self.malformed_records
    }

    /// Whether code or lines were discarded because a limit was reached.
    pub(crate) fn truncated(&self) -> bool {
        self.truncated || self.call_frames.truncated()
    }

    /// The call frame information of all functions, if it has changed since the last call.
    pub(crate) fn take_changed_call_frames(&mut self) -> Option<JitCallFrames> {
        self.call_frames.take_changed(self.code.newest_time())
    }

    /// The memory of the code and the line tables.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = size_of_val(&self.lines[..]) + self.files_bytes + self.records.memory_bytes();
        let tables = tables + self.call_frames.memory_bytes();
        self.code.memory_bytes() + self.names.memory_bytes() + tables
    }

    fn add(&mut self, FileRecord { time, line_shift_bytes, record }: FileRecord<'_>) {
        self.call_frames.add(&record);
        match record {
            Record::Load { address, code_address, size, name } => {
                let lines = self.pending_tables.remove(&code_address).unwrap_or_default();
                match self.names.push(&shortened(name, MAX_NAME_BYTES)) {
                    Some(name) => {
                        self.insert(address, size, time, JitFunction { name: Some(name), lines });
                    }
                    None => self.truncated = true,
                }
            }
            Record::Move { from, to, size } => {
                if let Some(function) = self.code.newest_from(from).map(|entry| entry.payload) {
                    self.insert(to, size, time, function);
                }
            }
            Record::DebugInfo { code_address, lines } => {
                self.add_line_table(code_address, line_shift_bytes, lines);
            }
            Record::Unwinding(_) | Record::Other => {}
        }
    }

    fn insert(&mut self, address: u64, size: u64, time: Option<MonotonicTime>, function: JitFunction) {
        let is_ambiguous = time.is_none() && self.has_other_name(address, size, function);
        let function = if is_ambiguous { JitFunction { name: None, ..function } } else { function };
        match self.code.insert(address, size, time.unwrap_or_default(), function) {
            Ok(()) => {}
            Err(InsertError::Wraps) => self.malformed_records += 1,
            Err(InsertError::Full) => self.truncated = true,
        }
    }

    /// Whether there is code with another name at an address.
    fn has_other_name(&self, address: u64, size: u64, function: JitFunction) -> bool {
        let text = |function: JitFunction| function.name.map(|name| self.names.get(name));
        self.code.newest_in(address, size).any(|entry| text(entry.payload) != text(function))
    }

    fn add_line_table(&mut self, code_address: u64, shift_bytes: u64, lines: Lines<'_>) {
        let start = self.lines.len();
        for record::Line { address, line, file } in lines {
            let offset = address.checked_sub(shift_bytes).and_then(|at| at.checked_sub(code_address));
            let Some(offset) = offset.and_then(|offset| u32::try_from(offset).ok()) else { continue };
            let Some(file) = self.add_file(file).filter(|_| self.lines.len() < MAX_LINES) else {
                self.truncated = true;
                break;
            };
            self.lines.push(LineStart { offset, line, file });
        }
        self.lines[start..].sort_by_key(|line| line.offset);
        if self.pending_tables.len() < MAX_PENDING_TABLES {
            let table = LineTable { start: start as u32, end: self.lines.len() as u32 };
            self.pending_tables.insert(code_address, table);
        }
    }

    fn add_file(&mut self, path: &[u8]) -> Option<u32> {
        let path = String::from_utf8_lossy(&path[..path.len().min(MAX_PATH_BYTES)]);
        let index = match self.files.get_index_of(&*path) {
            Some(index) => index,
            None if self.files.len() < MAX_FILES && path.len() <= MAX_FILES_BYTES - self.files_bytes => {
                self.files_bytes += path.len();
                self.files.insert_full(path.into()).0
            }
            None => return None,
        };
        u32::try_from(index).ok()
    }

    fn location(&self, table: LineTable, offset: u64) -> Option<(&str, u32)> {
        let lines = self.lines.get(table.start as usize..table.end as usize)?;
        let after = lines.partition_point(|line| u64::from(line.offset) <= offset);
        let line = lines.get(after.checked_sub(1)?)?;
        let file = self.files.get_index(line.file as usize)?;
        Some((file, line.line))
    }
}

/// Checks that a jitdump in two parts has the same functions as the whole file.
#[cfg(fuzzing)]
pub fn check_split(first: &[u8], second: &[u8], addresses: impl Iterator<Item = u64>) {
    let (mut whole, mut parts) = (JitDump::default(), JitDump::default());
    whole.feed(&[first, second].concat());
    parts.feed(first);
    parts.feed(second);
    assert_eq!(whole.malformed_records(), parts.malformed_records());
    for address in addresses {
        for time in [0, address, u64::MAX].map(MonotonicTime) {
            assert_eq!(whole.lookup(address, time), parts.lookup(address, time));
        }
    }
    let functions = || whole.call_frames.functions();
    assert!(functions().eq(parts.call_frames.functions()));
    assert!(functions().is_sorted_by(|function, next| function.code.end <= next.code.start));
}

#[cfg(test)]
mod tests;
