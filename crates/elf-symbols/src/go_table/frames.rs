//! The sizes of the frames of a Go program, from which its runtime unwinds stacks: `pcsp` of `_func` (`runtime/runtime2.go`).

use std::ops::Range;

use profiler_binary_reader::{Image, ParseError};

use super::{
    GoTable, Record,
    layout::Version,
    names::RuntimeNames,
    pc_values::{self, PcValues},
};
use crate::elf::Elf;

/// The size of most tables of values; a longer one is read again.
const USUAL_TABLE_BYTES: u64 = 256;

/// The functions whose frames are read, several times those of the largest programs: each takes a few microseconds.
const MAX_FRAMES: usize = 1 << 19;

/// A stack begins with the function (`FuncFlagTopFrame` in `internal/abi/symtab.go`, since 1.17).
const IS_TOP_FRAME: u8 = 1;

/// The function writes to the stack pointer in assembly (`FuncFlagSPWrite` in `internal/abi/symtab.go`, since 1.17).
const WRITES_STACK_POINTER: u8 = 2;

/// The functions that have the second flag since then.
const SWITCHING_FUNCTIONS: [&str; 9] = [
    "runtime.asmcgocall",
    "runtime.cgocallback",
    "runtime.cgocallback_gofunc",
    "runtime.gogo",
    "runtime.mcall",
    "runtime.morestack",
    "runtime.rt0_go",
    "runtime.sigtramp",
    "runtime.systemstack",
];

/// The functions that have the first flag since then: with them, goroutines, threads and programs start (`runtime/asm_amd64.s`).
const TOP_FUNCTIONS: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go"];

/// The frame of a Go function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFrame {
    /// The addresses of its code.
    pub code: Range<u64>,
    /// Whether it puts another address into the stack pointer, as switches to another stack do: then the sizes do not hold.
    pub writes_stack_pointer: bool,
    /// Its name, read only for such a function, for those that the runtime makes a goroutine call, for those that preempt it, and for
    /// the return trampoline of signal handlers: `runtime.asyncPreempt`, `runtime.debugCallV2`, `runtime.gopreempt_m`,
    /// `runtime.goschedImpl`, `runtime.newstack`, `runtime.preemptPark`, `runtime.sigpanic`, `runtime.sigpanic0`, and
    /// `runtime.sigreturn` or `runtime.sigreturn__sigaction`.
    pub name: Option<String>,
    /// Whether a stack begins with it: what is above its frame is no return address.
    pub is_top_frame: bool,
    /// The bytes between the stack pointer and the return address, from an address on. The first one is the start of the code.
    pub sizes: Vec<(u64, u32)>,
}

impl GoTable {
    /// The range of addresses of the code of Go.
    #[must_use]
    pub fn code(&self) -> Range<u64> {
        self.text..self.text.saturating_add(self.end.into())
    }

    /// Calls `each` with the frame of each function, by address. A function without a valid table is left out, and so are those behind
    /// the first 524,288.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn for_each_frame<E>(
        &self,
        elf: &Elf,
        mut each: impl FnMut(GoFrame) -> Result<(), E>,
    ) -> Result<(), E> {
        let names = RuntimeNames::find(self, elf.image());
        for (index, &(start, record)) in self.functions.iter().take(MAX_FRAMES).enumerate() {
            let end = self.functions.get(index + 1).map_or(self.end, |(next, _)| *next);
            let address = |relative: u32| self.text.saturating_add(relative.into());
            if let Ok(Some(frame)) = self.frame(elf.image(), &names, address(start)..address(end), record) {
                each(frame)?;
            }
        }
        Ok(())
    }

    fn frame(
        &self,
        image: &Image,
        names: &RuntimeNames,
        code: Range<u64>,
        record: u32,
    ) -> Result<Option<GoFrame>, ParseError> {
        let record = self.record(image, record)?;
        let sizes = self.frame_sizes(image, &record, &code)?;
        if sizes.is_empty() {
            return Ok(None);
        }
        let name = || self.string(image, self.layout.names, record.name);
        let (writes_stack_pointer, is_top_frame) =
            if matches!(self.layout.version, Version::V18 | Version::V20) {
                (record.flags & WRITES_STACK_POINTER != 0, record.flags & IS_TOP_FRAME != 0)
            } else {
                let name = name()?;
                let is_one_of = |names: &[&str]| names.contains(&name.as_str());
                (is_one_of(&SWITCHING_FUNCTIONS), is_one_of(&TOP_FUNCTIONS))
            };
        let name = if writes_stack_pointer || names.contain(record.name) { name().ok() } else { None };
        Ok(Some(GoFrame { code, writes_stack_pointer, name, is_top_frame, sizes }))
    }

    fn frame_sizes(
        &self,
        image: &Image,
        record: &Record,
        code: &Range<u64>,
    ) -> Result<Vec<(u64, u32)>, ParseError> {
        let at = self.layout.pc_values.checked_add(record.frame_sizes.into()).ok_or(ParseError::Malformed)?;
        for bytes in [USUAL_TABLE_BYTES, pc_values::MAX_TABLE_BYTES] {
            let table = self.place.read_up_to(image, at, bytes)?;
            match self.decode_sizes(&table, code) {
                Err(ParseError::Malformed) if bytes < pc_values::MAX_TABLE_BYTES => {}
                result => return result,
            }
        }
        Err(ParseError::Malformed)
    }

    fn decode_sizes(&self, table: &[u8], code: &Range<u64>) -> Result<Vec<(u64, u32)>, ParseError> {
        let mut values = PcValues::new(table, self.layout.quantum);
        let (mut sizes, mut address) = (Vec::new(), code.start);
        while let Some((size, until)) = values.next()? {
            let size = u32::try_from(size).map_err(|_| ParseError::Malformed)?;
            sizes.push((address, size));
            address = code.start.saturating_add(until);
            if address >= code.end {
                break;
            }
        }
        Ok(sizes)
    }
}
