//! Decodes the records of a jitdump file (Linux, tools/perf/Documentation/jitdump-specification.txt).
//!
//! Numbers have the byte order of the machine, which is little-endian. Another order does not match the magic number.

use profiler_binary_reader::ByteCursor;

/// `JiTD`.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// The flag for timestamps of a processor clock instead of `CLOCK_MONOTONIC`.
const FLAG_ARCH_TIMESTAMP: u64 = 1;
/// The padding of the file header that only V8 writes.
const V8_PADDING: u32 = 0xdead_beef;
/// The size of the ELF header that `perf inject` writes before the code. V8 adds it to the addresses of its line tables.
const V8_LINE_SHIFT_BYTES: u64 = 0x40;

const FILE_HEADER_BYTES: usize = 40;
/// Size of the header of each record.
pub(super) const HEADER_BYTES: usize = 16;
const LOAD_BYTES: usize = 40;
const MOVE_BYTES: usize = 40;
/// Longer names are shortened. The longest names of .NET have several hundred bytes.
pub(super) const MAX_NAME_BYTES: usize = 16 << 10;
/// Bytes of a name from which a shortened one has its checksum.
const MAX_READ_NAME_BYTES: usize = 1 << 20;
/// Larger line tables are skipped: they have more than 200,000 lines for one function.
const MAX_DEBUG_INFO_BYTES: usize = 4 << 20;
/// Longer unwinding information is skipped. That of one function has some 100 bytes.
const MAX_UNWINDING_BYTES: usize = 64 << 10;

/// The file header.
pub(super) struct FileHeader {
    /// The offset of the first record.
    pub(super) total_bytes: u32,
    /// Whether the records' timestamps are `CLOCK_MONOTONIC` nanoseconds.
    pub(super) is_monotonic: bool,
    /// The number that line table addresses are too high by.
    pub(super) line_shift_bytes: u64,
}

/// The header of a record.
pub(super) struct RecordHeader {
    kind: u32,
    /// The size of the record, header included.
    pub(super) total_bytes: u32,
    pub(super) timestamp_ns: u64,
}

/// The parts of a record that symbolization needs.
#[derive(Debug)]
pub(super) enum Record<'a> {
    /// New code: its runtime address, its address in the line table, its size, its name.
    Load { address: u64, code_address: u64, size: u64, name: &'a [u8] },
    /// Code that was moved to another address.
    Move { from: u64, to: u64, size: u64 },
    /// The lines of code whose [`Record::Load`] follows.
    DebugInfo { code_address: u64, lines: Lines<'a> },
    /// The call frame information of code whose [`Record::Load`] follows.
    Unwinding(Unwinding<'a>),
    /// The end of the file, an unknown record, or one that is too long.
    Other,
}

/// An `.eh_frame` section; empty where the record has none, but says that the code maintains a frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unwinding<'a> {
    pub(super) eh_frame: &'a [u8],
    /// The distance to the section from where the unwinding data is, behind the code.
    pub(super) offset: u64,
}

/// Iterates over the entries of a line table.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    bytes: ByteCursor<'a>,
    remaining_lines: u64,
    file: &'a [u8],
}

/// An entry of a line table: the code from `address` on belongs to this line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) address: u64,
    pub(super) line: u32,
    pub(super) file: &'a [u8],
}

impl FileHeader {
    /// Decodes the file header. `None` is an incomplete header.
    pub(super) fn decode(bytes: &[u8]) -> Option<Result<Self, NotJitDump>> {
        let mut bytes = ByteCursor::new(bytes.get(..FILE_HEADER_BYTES)?, 0);
        let mut number = || bytes.u32().ok();
        let (magic, version, total_bytes) = (number()?, number()?, number()?);
        let (_elf_machine, padding, _pid) = (number()?, number()?, number()?);
        let (_timestamp, flags) = (bytes.u64().ok()?, bytes.u64().ok()?);
        if magic != MAGIC || version != VERSION || (total_bytes as usize) < FILE_HEADER_BYTES {
            return Some(Err(NotJitDump));
        }
        let line_shift_bytes = if padding == V8_PADDING { V8_LINE_SHIFT_BYTES } else { 0 };
        Some(Ok(Self { total_bytes, is_monotonic: flags & FLAG_ARCH_TIMESTAMP == 0, line_shift_bytes }))
    }
}

/// The file is no jitdump of this machine and version, or contradicts itself. The rest of it cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotJitDump;

impl RecordHeader {
    /// Decodes the header. `None` is an incomplete header.
    pub(super) fn decode(bytes: &[u8]) -> Option<Result<Self, NotJitDump>> {
        let mut bytes = ByteCursor::new(bytes, 0);
        let (kind, total_bytes) = (bytes.u32().ok()?, bytes.u32().ok()?);
        let header = Self { kind, total_bytes, timestamp_ns: bytes.u64().ok()? };
        Some(if (header.total_bytes as usize) < HEADER_BYTES { Err(NotJitDump) } else { Ok(header) })
    }

    /// The bytes of the record, header included, that [`decode_body`](Self::decode_body) needs. The machine code after them
    /// is not needed.
    pub(super) fn needed_bytes(&self) -> usize {
        let body = match self.kind {
            0 => LOAD_BYTES + MAX_READ_NAME_BYTES,
            1 => MOVE_BYTES,
            2 if self.total_bytes as usize <= MAX_DEBUG_INFO_BYTES => MAX_DEBUG_INFO_BYTES,
            4 if self.total_bytes as usize <= MAX_UNWINDING_BYTES => MAX_UNWINDING_BYTES,
            _ => 0,
        };
        (HEADER_BYTES + body).min(self.total_bytes as usize)
    }

    /// Decodes the record after its header. `None` is a record that is too short.
    pub(super) fn decode_body<'a>(&self, body: &'a [u8]) -> Option<Record<'a>> {
        let mut bytes = ByteCursor::new(body, 0);
        let mut number = || bytes.u64().ok();
        match self.kind {
            0 => {
                let _pid_and_tid = number()?;
                let (address, code_address, size) = (number()?, number()?, number()?);
                let _code_index = number()?;
                // A name that is longer than what is read has no zero.
                let name = bytes.clone().take_until_nul().unwrap_or(bytes.remaining());
                (!name.is_empty()).then_some(Record::Load { address, code_address, size, name })
            }
            1 => {
                let _pid_and_tid = number()?;
                let (to, from, _new_code_address) = (number()?, number()?, number()?);
                let size = number()?;
                Some(Record::Move { from, to, size })
            }
            2 if !body.is_empty() => {
                let (code_address, remaining_lines) = (number()?, number()?);
                Some(Record::DebugInfo { code_address, lines: Lines { bytes, remaining_lines, file: b"" } })
            }
            4 if !body.is_empty() => {
                let (data_bytes, header_bytes, _mapped_bytes) = (number()?, number()?, number()?);
                let data = bytes.remaining().get(..usize::try_from(data_bytes).ok()?)?;
                Some(Record::Unwinding(Unwinding::decode(data, usize::try_from(header_bytes).ok()?)?))
            }
            _ => Some(Record::Other),
        }
    }
}

impl<'a> Unwinding<'a> {
    /// Finds the section beside the `.eh_frame_hdr` in the unwinding data. The specification has the header first; V8,
    /// CPython and perf (`tools/perf/util/genelf.c`) have it last. `None` if there is no section in either place.
    fn decode(data: &'a [u8], header_bytes: usize) -> Option<Self> {
        let section_bytes = data.len().checked_sub(header_bytes)?;
        if section_bytes == 0 {
            return Some(Self { eh_frame: &[], offset: 0 });
        }
        let before_header = data.get(..section_bytes).map(|eh_frame| Self { eh_frame, offset: 0 });
        let behind_header = data.get(header_bytes..);
        let behind_header = behind_header.map(|eh_frame| Self { eh_frame, offset: header_bytes as u64 });
        before_header.into_iter().chain(behind_header).find(|found| begins_with_cie(found.eh_frame))
    }
}

/// Whether a section begins with a CIE: a length within the section, and an id of 0 (Linux Standard Base Core, 10.6.1.1).
fn begins_with_cie(eh_frame: &[u8]) -> bool {
    let mut bytes = ByteCursor::new(eh_frame, 0);
    let (Ok(length), Ok(id)) = (bytes.u32(), bytes.u32()) else { return false };
    id == 0 && (size_of::<u32>()..=eh_frame.len() - size_of::<u32>()).contains(&(length as usize))
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining_lines = self.remaining_lines.checked_sub(1)?;
        let address = self.bytes.u64().ok()?;
        let (line, _discriminator) = (self.bytes.u32().ok()?, self.bytes.u32().ok()?);
        // As in perf, the name 0xff repeats the last name.
        let file = self.bytes.take_until_nul().ok()?;
        if file != b"\xff" {
            self.file = file;
        }
        Some(Line { address, line, file: self.file })
    }
}
