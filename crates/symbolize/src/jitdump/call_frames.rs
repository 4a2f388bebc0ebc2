//! The call frame information of JIT code in a jitdump (`JIT_CODE_UNWINDING_INFO`).

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{
    record::{Record, Unwinding},
    stream::{FileRecord, RecordStream},
};

/// Functions of one jitdump with call frame information: CPython has one trampoline for each function of Python.
const MAX_FUNCTIONS: usize = 64 << 10;

/// Bytes of call frame information of one jitdump.
const MAX_BYTES: usize = 16 << 20;

/// The alignment of the unwinding data behind the code (`tools/perf/util/genelf.c`).
const DATA_ALIGNMENT_BYTES: u64 = 8;

/// The call frame information of the current code in a jitdump that is read while it grows.
///
/// It is known for code that the last records describe: information of code that was replaced is dropped.
#[derive(Debug, Default)]
pub struct JitCallFrames {
    records: RecordStream,
    /// That of the function whose code is loaded next.
    pending: Option<Frames>,
    /// By the start of the code.
    functions: BTreeMap<u64, Function>,
    bytes: usize,
    malformed_records: u64,
    truncated: bool,
}

#[derive(Clone, Debug)]
struct Frames {
    eh_frame: Arc<[u8]>,
    /// The distance from the unwinding data.
    offset: u64,
}

#[derive(Debug)]
struct Function {
    end: u64,
    frames: Frames,
}

/// The call frame information of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitFunctionFrames<'a> {
    /// The runtime addresses of the code.
    pub code: Range<u64>,
    /// An `.eh_frame` section of this function, whose addresses are relative to their places.
    pub eh_frame: &'a [u8],
    /// The runtime address at which the section is or would be.
    pub eh_frame_address: u64,
}

impl JitCallFrames {
    /// Decodes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut records = std::mem::take(&mut self.records);
        records.feed(bytes, |record| match record {
            Ok(record) => self.add(record),
            Err(_) => self.malformed_records += 1,
        });
        self.records = records;
    }

    /// Begins a new file.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// The functions with call frame information in a range of runtime addresses, in ascending order.
    pub fn functions_in(&self, range: Range<u64>) -> impl Iterator<Item = JitFunctionFrames<'_>> {
        let starts = range.start..range.end.max(range.start);
        self.functions.range(starts).map(|(start, function)| {
            let code_bytes = (function.end - start).checked_next_multiple_of(DATA_ALIGNMENT_BYTES);
            let data = start.saturating_add(code_bytes.unwrap_or(u64::MAX));
            JitFunctionFrames {
                code: *start..function.end,
                eh_frame: &function.frames.eh_frame,
                eh_frame_address: data.saturating_add(function.frames.offset),
            }
        })
    }

    /// Records that are too short, and one for an invalid file.
    pub fn malformed_records(&self) -> u64 {
        self.malformed_records
    }

    /// Whether call frame information was discarded because a limit was reached.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    fn add(&mut self, record: FileRecord<'_>) {
        match record.record {
            Record::Unwinding(Unwinding { eh_frame, offset }) => {
                self.pending = (!eh_frame.is_empty()).then(|| Frames { eh_frame: eh_frame.into(), offset });
            }
            Record::Load { address, size, .. } => {
                let frames = self.pending.take();
                self.replace(address, size, frames);
            }
            Record::Move { from, to, size } => {
                let moved = self.remove(from);
                self.replace(to, size, moved.map(|function| function.frames));
            }
            Record::DebugInfo { .. } | Record::Other => {}
        }
    }

    /// Notes that there is other code at an address, with or without call frame information.
    fn replace(&mut self, start: u64, size: u64, frames: Option<Frames>) {
        let Some(end) = start.checked_add(size) else {
            self.malformed_records += 1;
            return;
        };
        if start == end {
            return;
        }
        while let Some((other, function)) = self.functions.range(..end).next_back()
            && function.end > start
        {
            let other = *other;
            self.remove(other);
        }
        let Some(frames) = frames else { return };
        let bytes = self.bytes + frames.eh_frame.len();
        if self.functions.len() >= MAX_FUNCTIONS || bytes > MAX_BYTES {
            self.truncated = true;
            return;
        }
        self.bytes = bytes;
        self.functions.insert(start, Function { end, frames });
    }

    fn remove(&mut self, start: u64) -> Option<Function> {
        let function = self.functions.remove(&start)?;
        self.bytes -= function.frames.eh_frame.len();
        Some(function)
    }
}

/// Checks that a jitdump in two parts has the same call frame information as the whole file.
#[cfg(fuzzing)]
pub(super) fn check_split(first: &[u8], second: &[u8]) {
    let (mut whole, mut parts) = (JitCallFrames::default(), JitCallFrames::default());
    whole.feed(&[first, second].concat());
    parts.feed(first);
    parts.feed(second);
    assert_eq!(whole.malformed_records(), parts.malformed_records());
    assert!(whole.functions_in(0..u64::MAX).eq(parts.functions_in(0..u64::MAX)));
    assert!(whole.functions_in(0..u64::MAX).is_sorted_by(|one, next| one.code.end <= next.code.start));
}
