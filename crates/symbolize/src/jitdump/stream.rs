//! Splits a jitdump that is read while it grows into records.

use profiler_addresses::MonotonicTime;

use super::record::{FileHeader, HEADER_BYTES, NotJitDump, Record, RecordHeader};

/// The state between two parts of a file.
#[derive(Debug, Default)]
pub(super) struct RecordStream {
    position: Position,
    /// The undecoded bytes: at most an incomplete record.
    undecoded: Vec<u8>,
    /// Bytes of machine code that follow and are skipped.
    skip_bytes: u64,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, Default)]
enum Position {
    #[default]
    FileHeader,
    Record {
        is_monotonic: bool,
        line_shift_bytes: u64,
    },
    /// The file is no jitdump of this machine, or contradicts itself. The rest is skipped.
    Invalid,
}

/// A record, and what the file header says about its numbers.
#[derive(Debug)]
pub(super) struct FileRecord<'a> {
    /// `None` for times of another clock, which are not comparable.
    pub(super) time: Option<MonotonicTime>,
    /// The number that line table addresses are too high by.
    pub(super) line_shift_bytes: u64,
    pub(super) record: Record<'a>,
}

/// A record that is too short, or a file that is invalid from here on.
#[derive(Debug)]
pub(super) struct MalformedRecord;

impl RecordStream {
    /// Decodes the next bytes of the file, and gives each record to `each`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Result<FileRecord<'_>, MalformedRecord>),
    ) {
        let skipped = bytes.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
        self.skip_bytes -= skipped as u64;
        let mut undecoded = std::mem::take(&mut self.undecoded);
        undecoded.extend_from_slice(&bytes[skipped..]);
        let mut position = 0;
        while let Some(length) = self.decode_next(&undecoded[position..], &mut each) {
            let available = length.min(undecoded.len() - position);
            self.skip_bytes = (length - available) as u64;
            position += available;
        }
        undecoded.drain(..position);
        self.undecoded = undecoded;
    }

    /// The memory of undecoded bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.undecoded.len()
    }

    /// Decodes the header or record at the start of `bytes`, and returns its length. `None` is an incomplete one.
    fn decode_next(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Result<FileRecord<'_>, MalformedRecord>),
    ) -> Option<usize> {
        let decoded = match self.position {
            Position::FileHeader => self.decode_file_header(bytes)?,
            Position::Record { is_monotonic, line_shift_bytes } => {
                decode_record(bytes, is_monotonic, line_shift_bytes, each)?
            }
            Position::Invalid => (!bytes.is_empty()).then_some(Ok(bytes.len()))?,
        };
        Some(decoded.unwrap_or_else(|NotJitDump| {
            self.position = Position::Invalid;
            each(Err(MalformedRecord));
            bytes.len()
        }))
    }

    fn decode_file_header(&mut self, bytes: &[u8]) -> Option<Result<usize, NotJitDump>> {
        Some(FileHeader::decode(bytes)?.map(|header| {
            let FileHeader { total_bytes, is_monotonic, line_shift_bytes } = header;
            self.position = Position::Record { is_monotonic, line_shift_bytes };
            total_bytes as usize
        }))
    }
}

fn decode_record(
    bytes: &[u8],
    is_monotonic: bool,
    line_shift_bytes: u64,
    each: &mut impl FnMut(Result<FileRecord<'_>, MalformedRecord>),
) -> Option<Result<usize, NotJitDump>> {
    let header = match RecordHeader::decode(bytes)? {
        Ok(header) => header,
        Err(error) => return Some(Err(error)),
    };
    let body = bytes.get(HEADER_BYTES..header.needed_bytes())?;
    let time = is_monotonic.then_some(MonotonicTime(header.timestamp_ns));
    let record = header.decode_body(body).ok_or(MalformedRecord);
    each(record.map(|record| FileRecord { time, line_shift_bytes, record }));
    Some(Ok(header.total_bytes as usize))
}
