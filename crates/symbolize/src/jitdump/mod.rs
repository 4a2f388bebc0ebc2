//! `jit-PID.dump`: the binary file in which a JIT runtime records its code with exact times and line tables.

mod record;

use std::collections::HashMap;

use indexmap::IndexSet;

use self::record::{FileHeader, HEADER_BYTES, Lines, NotJitDump, Record, RecordHeader};
use super::{
    code_map::{CodeMap, Rejected},
    names::{Name, Names},
};

/// Lines of all line tables together.
const MAX_LINES: usize = 2 << 20;
/// Source files of all line tables together.
const MAX_FILES: usize = 16 << 10;
/// Bytes of their paths.
const MAX_FILES_BYTES: usize = 8 << 20;
/// Paths are cut here: no longer one can be opened.
const MAX_PATH_BYTES: usize = 4096;
/// Line tables whose code has not come yet. They are written directly before it, one for each thread that
/// compiles.
const MAX_WAITING_TABLES: usize = 1024;

/// A jitdump that is read while it grows.
#[derive(Debug, Default)]
pub struct JitDump {
    code: CodeMap<Method>,
    names: Names,
    lines: Vec<LineStart>,
    files: IndexSet<Box<str>>,
    files_bytes: usize,
    /// Line tables by the address of code that has not come yet.
    waiting: HashMap<u64, Table>,
    position: Position,
    /// Bytes from the position on, never more than one record wants and what was fed last.
    unread: Vec<u8>,
    /// Bytes still to come that are of no interest: machine code.
    skip_bytes: u64,
    malformed_records: u64,
    truncated: bool,
}

/// What the next byte belongs to.
#[derive(Debug, Default)]
enum Position {
    #[default]
    FileHeader,
    Record {
        monotonic: bool,
        line_shift_bytes: u64,
    },
    /// Not a jitdump of this machine, or one that contradicts itself: the rest means nothing.
    Lost,
}

/// What is known of a piece of code.
#[derive(Clone, Copy, Debug)]
struct Method {
    name: Name,
    lines: Table,
}

/// A range of [`JitDump::lines`], ordered by offset.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    start: u32,
    end: u32,
}

/// Where the code of a line begins.
#[derive(Clone, Copy, Debug)]
struct LineStart {
    /// Bytes from the start of the code, which may move.
    offset: u32,
    line: u32,
    file: u32,
}

/// What a jitdump knows of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitSymbol<'a> {
    pub name: &'a str,
    /// File and line.
    pub location: Option<(&'a str, u32)>,
    /// Since when the code is there, `CLOCK_MONOTONIC`.
    pub exists_from_ns: u64,
}

impl JitDump {
    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let skipped = bytes.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
        self.skip_bytes -= skipped as u64;
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(&bytes[skipped..]);
        let mut at = 0;
        while let Some(taken) = self.take_next(&unread[at..]) {
            let there = taken.min(unread.len() - at);
            self.skip_bytes = (taken - there) as u64;
            at += there;
        }
        unread.drain(..at);
        self.unread = unread;
    }

    /// The file begins anew: what it said so far holds for the time before.
    pub fn restart(&mut self) {
        self.position = Position::FileHeader;
        self.unread.clear();
        self.skip_bytes = 0;
        self.waiting.clear();
    }

    /// What stood at `address` at `time_ns`.
    pub fn lookup(&self, address: u64, time_ns: u64) -> Option<JitSymbol<'_>> {
        let entry = self.code.lookup(address, time_ns)?;
        let Method { name, lines } = entry.payload;
        let location = self.location(lines, address - entry.start);
        Some(JitSymbol { name: self.names.get(name), location, exists_from_ns: entry.exists_from_ns })
    }

    /// See [`CodeMap::epoch`].
    pub fn epoch(&self, time_ns: u64) -> u32 {
        self.code.epoch(time_ns)
    }

    /// Records that end before what they must hold, and one for a file that stopped making sense.
    pub fn malformed_records(&self) -> u64 {
        self.malformed_records
    }

    /// Whether a limit kept code or lines out.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// How much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let tables = size_of_val(&self.lines[..]) + self.files_bytes + self.unread.len();
        self.code.memory_bytes() + self.names.memory_bytes() + tables
    }

    /// Takes the header or record at the start of `bytes`; how long it is, or `None` when more of it has to
    /// come first.
    fn take_next(&mut self, bytes: &[u8]) -> Option<usize> {
        let taken = match self.position {
            Position::FileHeader => self.take_file_header(bytes)?,
            Position::Record { monotonic, line_shift_bytes } => {
                self.take_record(bytes, monotonic, line_shift_bytes)?
            }
            Position::Lost => (!bytes.is_empty()).then_some(Ok(bytes.len()))?,
        };
        Some(taken.unwrap_or_else(|NotJitDump| {
            self.position = Position::Lost;
            self.malformed_records += 1;
            bytes.len()
        }))
    }

    fn take_file_header(&mut self, bytes: &[u8]) -> Option<Result<usize, NotJitDump>> {
        Some(FileHeader::decode(bytes)?.map(|header| {
            let FileHeader { total_bytes, monotonic, line_shift_bytes } = header;
            self.position = Position::Record { monotonic, line_shift_bytes };
            total_bytes as usize
        }))
    }

    fn take_record(
        &mut self,
        bytes: &[u8],
        monotonic: bool,
        line_shift_bytes: u64,
    ) -> Option<Result<usize, NotJitDump>> {
        let header = match RecordHeader::decode(bytes)? {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        let body = bytes.get(HEADER_BYTES..header.wanted_bytes())?;
        // A time of another clock orders nothing: then the newest record holds for all times.
        let time_ns = if monotonic { header.timestamp_ns } else { 0 };
        match header.decode_body(body) {
            Some(Record::Load { address, code_address, size, name }) => {
                let lines = self.waiting.remove(&code_address).unwrap_or_default();
                match self.names.push(name) {
                    Some(name) => self.insert(address, size, time_ns, Method { name, lines }),
                    None => self.truncated = true,
                }
            }
            Some(Record::Move { from, to, size }) => {
                if let Some(method) = self.code.newest_from(from).map(|entry| entry.payload) {
                    self.insert(to, size, time_ns, method);
                }
            }
            Some(Record::DebugInfo { code_address, lines }) => {
                self.keep_table(code_address, line_shift_bytes, lines);
            }
            Some(Record::Other) => {}
            None => self.malformed_records += 1,
        }
        Some(Ok(header.total_bytes as usize))
    }

    fn insert(&mut self, address: u64, size: u64, time_ns: u64, method: Method) {
        match self.code.insert(address, size, time_ns, method) {
            Ok(()) => {}
            Err(Rejected::Wraps) => self.malformed_records += 1,
            Err(Rejected::Full) => self.truncated = true,
        }
    }

    fn keep_table(&mut self, code_address: u64, shift_bytes: u64, lines: Lines<'_>) {
        let start = self.lines.len();
        for record::Line { address, line, file } in lines {
            let offset = address.checked_sub(shift_bytes).and_then(|at| at.checked_sub(code_address));
            let Some(offset) = offset.and_then(|offset| u32::try_from(offset).ok()) else { continue };
            let Some(file) = self.keep_file(file).filter(|_| self.lines.len() < MAX_LINES) else {
                self.truncated = true;
                break;
            };
            self.lines.push(LineStart { offset, line, file });
        }
        self.lines[start..].sort_by_key(|line| line.offset);
        if self.waiting.len() < MAX_WAITING_TABLES {
            let table = Table { start: start as u32, end: self.lines.len() as u32 };
            self.waiting.insert(code_address, table);
        }
    }

    fn keep_file(&mut self, path: &[u8]) -> Option<u32> {
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

    fn location(&self, table: Table, offset: u64) -> Option<(&str, u32)> {
        let lines = self.lines.get(table.start as usize..table.end as usize)?;
        let behind = lines.partition_point(|line| u64::from(line.offset) <= offset);
        let line = lines.get(behind.checked_sub(1)?)?;
        let file = self.files.get_index(line.file as usize)?;
        Some((file, line.line))
    }
}

#[cfg(test)]
mod tests;
