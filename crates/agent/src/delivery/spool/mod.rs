//! The spool: messages on disk, each in a file, oldest first.
//!
//! | name | meaning |
//! |---|---|
//! | `SEQUENCE.partial` | being written; removed at the start |
//! | `SEQUENCE.message` | a whole message |
//! | `SEQUENCE.sending` | the message of the current request; at the start, its outcome is unknown |
//!
//! A process that is killed leaves whole messages and at most one file of each other kind. The directory belongs to one process
//! at a time, and no other user can access it.

mod directory;
mod file;
#[cfg(test)]
mod tests;

#[cfg(fuzzing)]
use std::path::Path;
use std::{collections::VecDeque, io};

use bytes::Bytes;
use rustix::io::Errno;

use self::{
    directory::{Directory, Kind},
    file::Header,
};
use super::{
    error::DeliveryError,
    options::SpoolOptions,
    queue::{Pending, Queue, Settlement},
};

/// File systems allocate whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// Messages on disk.
#[derive(Debug)]
pub(super) struct Spool {
    directory: Directory,
    max_bytes: u64,
    files: VecDeque<SpoolFile>,
    /// The sum of [`SpoolFile::file_bytes`].
    total_bytes: u64,
    next_sequence: u64,
}

/// A file of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpoolFile {
    sequence: u64,
    header: Header,
    kind: Kind,
    pub(super) started_unix_ns: u64,
    pub(super) samples: u64,
    /// Its size in whole blocks.
    pub(super) file_bytes: u64,
}

/// Why a message cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// It is lost.
    Damaged(String),
    /// It may be readable later.
    Failed(io::Error),
}

impl Spool {
    /// Opens or creates the directory, and counts what an earlier process left in it.
    pub(super) fn open(options: &SpoolOptions, queue: &Queue) -> Result<Self, DeliveryError> {
        let failed = |source| DeliveryError::Spool { path: options.directory.clone(), source };
        let directory = Directory::open(&options.directory).map_err(failed)?;
        let mut spool = Self {
            directory,
            max_bytes: options.max_bytes,
            files: VecDeque::new(),
            total_bytes: 0,
            next_sequence: 0,
        };
        spool.recover(queue).map_err(failed)?;
        Ok(spool)
    }

    /// The oldest message.
    pub(super) fn oldest(&self) -> Option<&SpoolFile> {
        self.files.front()
    }

    /// Removes the oldest message.
    pub(super) fn remove_oldest(&mut self) -> Option<SpoolFile> {
        let file = self.files.pop_front()?;
        self.total_bytes -= file.file_bytes;
        if let Err(error) = self.directory.remove(file.sequence, file.kind) {
            log::warn!("failed to remove a file of the spool: {error}");
        }
        Some(file)
    }

    /// Removes the oldest message, if there is no space for another one but could be.
    pub(super) fn remove_oldest_for(&mut self, message: &Pending) -> Option<SpoolFile> {
        let needed = in_blocks(Header::of(message).file_length());
        let is_needed = needed <= self.max_bytes && self.total_bytes > self.max_bytes - needed;
        if is_needed { self.remove_oldest() } else { None }
    }

    /// Writes a message. Returns the size of its file in whole blocks.
    pub(super) fn append(&mut self, message: &Pending) -> io::Result<u64> {
        let header = Header::of(message);
        let file = SpoolFile::new(self.next_sequence, header, Kind::Message);
        if self.total_bytes.saturating_add(file.file_bytes) > self.max_bytes {
            return Err(io::Error::other("the message is larger than the spool"));
        }
        self.directory.write(file.sequence, &header.encode(), &message.body)?;
        self.add(file);
        Ok(file.file_bytes)
    }

    /// Reads the oldest message, and marks that its outcome is unknown if the process ends.
    pub(super) fn begin_sending(&mut self) -> Result<Pending, ReadError> {
        let Some(file) = self.files.front_mut() else {
            return Err(ReadError::Failed(io::ErrorKind::NotFound.into()));
        };
        if file.kind != Kind::Sending {
            self.directory.rename(file.sequence, file.kind, Kind::Sending).map_err(ReadError::of)?;
            file.kind = Kind::Sending;
        }
        let (header, body) = self.directory.read(file.sequence, file.kind)?;
        if header != file.header || crc32fast::hash(&body) != header.body_checksum {
            return Err(ReadError::Damaged("its checksum is wrong".to_owned()));
        }
        let Header { started_unix_ns, samples, .. } = header;
        Ok(Pending { started_unix_ns, samples, body: Bytes::from(body) })
    }

    /// Marks that the oldest message was not sent.
    pub(super) fn end_sending(&mut self) {
        let Some(file) = self.files.front_mut() else { return };
        match self.directory.rename(file.sequence, file.kind, Kind::Message) {
            Ok(()) => file.kind = Kind::Message,
            Err(error) => log::warn!("failed to rename a file of the spool: {error}"),
        }
    }

    fn add(&mut self, file: SpoolFile) {
        self.next_sequence = file.sequence.saturating_add(1);
        self.total_bytes += file.file_bytes;
        self.files.push_back(file);
    }

    fn recover(&mut self, queue: &Queue) -> io::Result<()> {
        let scan = self.directory.scan()?;
        queue.count(|ledger| ledger.damaged_spool_files += scan.damaged);
        for (sequence, kind, header) in scan.files {
            let file = SpoolFile::new(sequence, header, kind);
            queue.count(|ledger| {
                ledger.recovered += file.samples;
                ledger.spooled += file.samples;
                ledger.spool_bytes += file.file_bytes;
            });
            if kind == Kind::Sending {
                self.directory.remove(sequence, kind)?;
                queue.settle_spooled(file.samples, file.file_bytes, Settlement::Ambiguous);
                self.next_sequence = sequence.saturating_add(1);
            } else {
                self.add(file);
            }
        }
        while self.total_bytes > self.max_bytes {
            let Some(file) = self.remove_oldest() else { break };
            queue.settle_spooled(file.samples, file.file_bytes, Settlement::Outage);
        }
        Ok(())
    }
}

impl SpoolFile {
    fn new(sequence: u64, header: Header, kind: Kind) -> Self {
        let Header { started_unix_ns, samples, .. } = header;
        let file_bytes = in_blocks(header.file_length());
        Self { sequence, header, kind, started_unix_ns, samples, file_bytes }
    }
}

impl ReadError {
    /// Files that vanished, became links, or are on damaged blocks of the disk, are lost.
    fn of(error: io::Error) -> Self {
        let lost = [Errno::NOENT, Errno::LOOP, Errno::IO].map(|lost| Some(lost.raw_os_error()));
        if lost.contains(&error.raw_os_error()) {
            Self::Damaged(error.to_string())
        } else {
            Self::Failed(error)
        }
    }
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// A file of the spool with valid checksums: the start of its window and its samples are the first 16 bytes, its body is the
/// rest.
#[cfg(fuzzing)]
pub fn message_file(bytes: &[u8]) -> Vec<u8> {
    let (numbers, body) = bytes.split_at(bytes.len().min(16));
    let number = |offset: usize| {
        let bytes = numbers.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let (started_unix_ns, samples) = (number(0), number(8));
    let message = Pending { started_unix_ns, samples, body: Bytes::copy_from_slice(body) };
    [&Header::of(&message).encode(), body].concat()
}

/// Opens a spool, adds messages, and sends all messages. Checks the account at each step, and that the added messages are sent.
#[cfg(fuzzing)]
pub fn check_spool(directory: &Path) -> io::Result<()> {
    const MAX_BYTES: u64 = 64 << 10;
    let queue = Queue::new(MAX_BYTES);
    let options = SpoolOptions { directory: directory.to_owned(), max_bytes: MAX_BYTES };
    let mut spool = Spool::open(&options, &queue).map_err(io::Error::other)?;
    assert!(spool.total_bytes <= MAX_BYTES && queue.ledger().is_exact());
    let added =
        [1, 2].map(|samples| Pending { started_unix_ns: 1, samples, body: Bytes::from_static(b"added") });
    for message in &added {
        while let Some(file) = spool.remove_oldest_for(message) {
            queue.settle_spooled(file.samples, file.file_bytes, Settlement::Outage);
        }
        spool.append(message)?;
    }
    let mut sent = Vec::new();
    while spool.oldest().is_some() {
        match spool.begin_sending() {
            Ok(message) => sent.push(message),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Damaged(_)) => {}
        }
        if let Some(file) = spool.remove_oldest()
            && spool.files.len() >= added.len()
        {
            queue.settle_spooled(file.samples, file.file_bytes, Settlement::Delivered);
        }
        assert!(queue.ledger().is_exact());
    }
    assert!(queue.ledger().spooled == 0 && sent.ends_with(&added));
    Ok(())
}
