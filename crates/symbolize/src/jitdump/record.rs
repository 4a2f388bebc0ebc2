//! The records of a jitdump file, from bytes (Linux, tools/perf/Documentation/jitdump-specification.txt).
//!
//! Numbers are in the byte order of the machine that wrote them, which is this one: another order does not
//! match the magic number.

/// `JiTD` in native byte order.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// Timestamps are not `CLOCK_MONOTONIC` but of a clock of the processor.
const FLAG_ARCH_TIMESTAMP: u64 = 1;
/// What V8 writes into the padding of the file header, as nobody else does.
const V8_PADDING: u32 = 0xdead_beef;
/// V8 counts the addresses of its line tables from behind an ELF header that `perf inject` is going to put
/// before the code.
const V8_LINE_SHIFT_BYTES: u64 = 0x40;

const FILE_HEADER_BYTES: usize = 40;
/// Bytes of the header of each record.
pub(super) const HEADER_BYTES: usize = 16;
const LOAD_BYTES: usize = 40;
const MOVE_BYTES: usize = 40;
/// A name is cut here; the longest that .NET writes have several hundred bytes.
const MAX_NAME_BYTES: usize = 16 << 10;
/// A line table beyond this is passed over: it would have 200,000 lines for one function.
const MAX_DEBUG_INFO_BYTES: usize = 4 << 20;

/// What the file says about itself.
pub(super) struct FileHeader {
    /// Where the first record stands.
    pub(super) total_bytes: u32,
    /// Whether the records' timestamps are `CLOCK_MONOTONIC` nanoseconds.
    pub(super) monotonic: bool,
    /// What to subtract from the addresses of line tables.
    pub(super) line_shift_bytes: u64,
}

/// What stands before each record.
pub(super) struct RecordHeader {
    kind: u32,
    /// The record's length with this header.
    pub(super) total_bytes: u32,
    pub(super) timestamp_ns: u64,
}

/// A record, as far as names need it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// New code: where it runs, where its line table has it, how long it is.
    Load { address: u64, code_address: u64, size: u64, name: &'a [u8] },
    /// Code that is somewhere else from now on.
    Move { from: u64, to: u64, size: u64 },
    /// The lines of code whose [`Record::Load`] follows.
    DebugInfo { code_address: u64, lines: Lines<'a> },
    /// Unwind information, the end of the runtime, or what is not known here.
    Other,
}

/// The entries of a line table, decoded one by one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines<'a> {
    bytes: Bytes<'a>,
    left: u64,
    file: &'a [u8],
}

/// From `address` on, the code belongs to this line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) address: u64,
    pub(super) line: u32,
    pub(super) file: &'a [u8],
}

impl FileHeader {
    /// `None` when there are too few bytes yet, an error when this is no jitdump file of this machine.
    pub(super) fn decode(bytes: &[u8]) -> Option<Result<Self, NotJitDump>> {
        let mut bytes = Bytes(bytes.get(..FILE_HEADER_BYTES)?);
        let (magic, version, total_bytes) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let (_elf_machine, padding, _pid) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let (_timestamp, flags) = (bytes.u64()?, bytes.u64()?);
        if magic != MAGIC || version != VERSION || (total_bytes as usize) < FILE_HEADER_BYTES {
            return Some(Err(NotJitDump));
        }
        let line_shift_bytes = if padding == V8_PADDING { V8_LINE_SHIFT_BYTES } else { 0 };
        Some(Ok(Self { total_bytes, monotonic: flags & FLAG_ARCH_TIMESTAMP == 0, line_shift_bytes }))
    }
}

/// The file is something else, another version, or contradicts itself: what follows cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotJitDump;

impl RecordHeader {
    /// `None` when there are too few bytes yet.
    pub(super) fn decode(bytes: &[u8]) -> Option<Result<Self, NotJitDump>> {
        let mut bytes = Bytes(bytes);
        let header = Self { kind: bytes.u32()?, total_bytes: bytes.u32()?, timestamp_ns: bytes.u64()? };
        Some(if (header.total_bytes as usize) < HEADER_BYTES { Err(NotJitDump) } else { Ok(header) })
    }

    /// How many bytes of the record, its header included, [`decode_body`](Self::decode_body) wants to see.
    /// The machine code behind them is never needed.
    pub(super) fn wanted_bytes(&self) -> usize {
        let body = match self.kind {
            0 => LOAD_BYTES + MAX_NAME_BYTES,
            1 => MOVE_BYTES,
            2 if self.total_bytes as usize <= MAX_DEBUG_INFO_BYTES => MAX_DEBUG_INFO_BYTES,
            _ => 0,
        };
        (HEADER_BYTES + body).min(self.total_bytes as usize)
    }

    /// `None` when the record ends before what it must hold.
    pub(super) fn decode_body<'a>(&self, body: &'a [u8]) -> Option<Record<'a>> {
        let mut bytes = Bytes(body);
        match self.kind {
            0 => {
                let _pid_and_tid = bytes.u64()?;
                let (address, code_address, size) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let _code_index = bytes.u64()?;
                let name = bytes.text_or_rest();
                (!name.is_empty()).then_some(Record::Load { address, code_address, size, name })
            }
            1 => {
                let _pid_and_tid = bytes.u64()?;
                let (to, from, _new_code_address) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
                let size = bytes.u64()?;
                Some(Record::Move { from, to, size })
            }
            2 if !body.is_empty() => {
                let (code_address, left) = (bytes.u64()?, bytes.u64()?);
                Some(Record::DebugInfo { code_address, lines: Lines { bytes, left, file: b"" } })
            }
            _ => Some(Record::Other),
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (address, line, _discriminator) = (self.bytes.u64()?, self.bytes.u32()?, self.bytes.u32()?);
        // As perf reads it: a name of one byte 0xff stands for the name before.
        let file = self.bytes.text()?;
        if file != b"\xff" {
            self.file = file;
        }
        Some(Line { address, line, file: self.file })
    }
}

/// Bytes that have not been decoded yet.
#[derive(Debug, PartialEq, Eq)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*bytes))
    }

    /// Up to a NUL.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(text)
    }

    /// Up to a NUL, or all there is.
    fn text_or_rest(&mut self) -> &'a [u8] {
        let end = memchr::memchr(0, self.0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}
