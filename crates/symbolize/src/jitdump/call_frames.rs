//! The call frame information of JIT code in a jitdump (`JIT_CODE_UNWINDING_INFO`).

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use profiler_addresses::{MonotonicTime, RuntimeAddress};

use super::record::{Record, Unwinding};

/// Functions of one jitdump with call frame information: CPython has one trampoline for each function of Python.
const MAX_FUNCTIONS: usize = 64 << 10;

/// Bytes of call frame information of one jitdump.
const MAX_BYTES: usize = 16 << 20;

/// The alignment of the unwinding data behind the code (`tools/perf/util/genelf.c`).
const DATA_ALIGNMENT_BYTES: u64 = 8;

/// The call frame information of the current code in a jitdump.
///
/// It is known for code that the last records describe: information of code that was replaced is dropped.
#[derive(Debug, Default)]
pub(super) struct CallFrames {
    /// That of the function whose code is loaded next.
    pending: Option<Frames>,
    /// By the start of the code.
    functions: BTreeMap<u64, Function>,
    bytes: usize,
    has_changed: bool,
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

/// The call frame information of the JIT code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitCallFrames {
    /// All functions that have some, in ascending order.
    pub functions: Vec<JitFunctionFrames>,
    /// The time of the newest code that was known: later code can have replaced that of the functions.
    pub as_of: MonotonicTime,
}

/// The call frame information of one function of JIT code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitFunctionFrames {
    /// The code.
    pub code: Range<RuntimeAddress>,
    /// An `.eh_frame` section of this function, whose addresses are relative to their places.
    pub eh_frame: Arc<[u8]>,
    /// The address at which the section is or would be.
    pub eh_frame_address: RuntimeAddress,
}

impl CallFrames {
    /// Applies a record.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        match *record {
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

    /// Drops that of the file before.
    pub(super) fn restart(&mut self) {
        *self =
            Self { has_changed: !self.functions.is_empty(), truncated: self.truncated, ..Self::default() };
    }

    /// All functions with call frame information, if they have changed since the last call.
    pub(super) fn take_changed(&mut self, as_of: MonotonicTime) -> Option<JitCallFrames> {
        let functions = || self.functions().collect();
        let changed = self.has_changed.then(|| JitCallFrames { functions: functions(), as_of });
        self.has_changed = false;
        changed
    }

    /// All functions with call frame information, in ascending order.
    pub(super) fn functions(&self) -> impl Iterator<Item = JitFunctionFrames> {
        self.functions.iter().map(|(start, function)| {
            let code_bytes = (function.end - start).checked_next_multiple_of(DATA_ALIGNMENT_BYTES);
            let data = start.saturating_add(code_bytes.unwrap_or(u64::MAX));
            JitFunctionFrames {
                code: RuntimeAddress(*start)..RuntimeAddress(function.end),
                eh_frame: Arc::clone(&function.frames.eh_frame),
                eh_frame_address: RuntimeAddress(data.saturating_add(function.frames.offset)),
            }
        })
    }

    /// Whether call frame information was discarded because a limit was reached.
    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.functions.len() * size_of::<(u64, Function)>()
    }

    /// Notes that there is other code at an address, with or without call frame information.
    fn replace(&mut self, start: u64, size: u64, frames: Option<Frames>) {
        let Some(end) = start.checked_add(size).filter(|end| start < *end) else { return };
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
        self.has_changed = true;
        self.functions.insert(start, Function { end, frames });
    }

    fn remove(&mut self, start: u64) -> Option<Function> {
        let function = self.functions.remove(&start)?;
        self.bytes -= function.frames.eh_frame.len();
        self.has_changed = true;
        Some(function)
    }
}
