//! The directory of a spool: files by their sequence numbers, without following links.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::Path,
};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};

use super::{
    ReadError,
    file::{HEADER_BYTES, Header},
};
use crate::delivery::MAX_QUEUE_BYTES;

/// No access for other users: profiles name what runs on the node.
const DIRECTORY_MODE: u32 = 0o700;

/// All permissions of other users and the group.
const OTHERS_MODE: u32 = 0o077;

/// The digits of a sequence number in a name, so that names sort as numbers.
const SEQUENCE_DIGITS: usize = 20;

/// Files with larger numbers are not of a spool, which counts up from the largest number in it.
const MAX_FOUND_SEQUENCE: u64 = u64::MAX / 2;

/// What a file is for, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// It is being written.
    Partial,
    /// A whole message.
    Message,
    /// The message of the current request.
    Sending,
}

/// An open directory, locked until it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    descriptor: File,
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// By sequence number.
    pub(super) files: Vec<(u64, Kind, Header)>,
    /// The number of damaged files, which were removed.
    pub(super) damaged: u64,
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = descriptor.metadata()?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            let message = "it belongs to another user: name a directory of your own";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        if metadata.mode() & OTHERS_MODE != 0 {
            descriptor.set_permissions(fs::Permissions::from_mode(DIRECTORY_MODE))?;
        }
        rustix::fs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let message = format!("another process uses it, name another directory: {error}");
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        })?;
        Ok(Self { descriptor })
    }

    /// Finds the messages, and removes partial and damaged files. Files with other names remain.
    pub(super) fn scan(&self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            entries.extend(entry?.file_name().to_str().ok().and_then(parse_name));
        }
        entries.sort_unstable();
        for (sequence, kind) in entries {
            if kind == Kind::Partial {
                self.remove(sequence, kind)?;
                continue;
            }
            match self.open_file(sequence, kind) {
                Ok((header, _)) => scan.files.push((sequence, kind, header)),
                Err(ReadError::Failed(error)) => return Err(error),
                Err(ReadError::Damaged(reason)) => {
                    log::warn!("a damaged file of the spool is removed: {reason}");
                    scan.damaged += 1;
                    self.remove(sequence, kind)?;
                }
            }
        }
        Ok(scan)
    }

    /// Writes a file that is either whole or absent after a crash.
    pub(super) fn write(&self, sequence: u64, header: &[u8], body: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = name(sequence, Kind::Partial);
        let file = rustix::fs::openat(&self.descriptor, &name, flags, Mode::RUSR | Mode::WUSR)?;
        let written = self.finish_file(file, sequence, header, body);
        if written.is_err() {
            // Of the two errors, the first one is the cause.
            let _ = self.remove(sequence, Kind::Partial);
        }
        written
    }

    fn finish_file(&self, file: OwnedFd, sequence: u64, header: &[u8], body: &[u8]) -> io::Result<()> {
        let mut file = File::from(file);
        file.write_all(header)?;
        file.write_all(body)?;
        file.sync_all()?;
        self.rename(sequence, Kind::Partial, Kind::Message)?;
        self.descriptor.sync_all()
    }

    /// Reads a whole file.
    pub(super) fn read(&self, sequence: u64, kind: Kind) -> Result<(Header, Vec<u8>), ReadError> {
        let (header, file) = self.open_file(sequence, kind)?;
        let mut body = Vec::with_capacity(header.body_bytes as usize);
        file.take(header.body_bytes).read_to_end(&mut body).map_err(ReadError::of)?;
        Ok((header, body))
    }

    /// Opens a file and reads its header. The file is as long as the header says.
    fn open_file(&self, sequence: u64, kind: Kind) -> Result<(Header, File), ReadError> {
        let name = name(sequence, kind);
        let damaged = |reason: &str| ReadError::Damaged(format!("{name}: {reason}"));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.descriptor, &name, flags, Mode::empty());
        let mut file = File::from(file.map_err(|error| ReadError::of(error.into()))?);
        let metadata = file.metadata().map_err(ReadError::of)?;
        if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(damaged("it is not a file of this process"));
        }
        if metadata.len() < HEADER_BYTES as u64 {
            return Err(damaged("it is truncated"));
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact(&mut bytes).map_err(ReadError::of)?;
        let header = Header::decode(&bytes).map_err(damaged)?;
        if header.file_length() != metadata.len() || header.body_bytes > MAX_QUEUE_BYTES {
            return Err(damaged("it has another length than its header says"));
        }
        Ok((header, file))
    }

    pub(super) fn rename(&self, sequence: u64, from: Kind, to: Kind) -> io::Result<()> {
        let (from, to) = (name(sequence, from), name(sequence, to));
        Ok(rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to)?)
    }

    pub(super) fn remove(&self, sequence: u64, kind: Kind) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name(sequence, kind), AtFlags::empty()) {
            // Another program has removed it.
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn name(sequence: u64, kind: Kind) -> String {
    let extension = match kind {
        Kind::Partial => "partial",
        Kind::Message => "message",
        Kind::Sending => "sending",
    };
    format!("{sequence:0SEQUENCE_DIGITS$}.{extension}")
}

/// The inverse of [`name`], up to [`MAX_FOUND_SEQUENCE`].
fn parse_name(name: &str) -> Option<(u64, Kind)> {
    let (digits, extension) = name.split_once('.')?;
    let is_number = digits.len() == SEQUENCE_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    let kind = match extension {
        "partial" => Kind::Partial,
        "message" => Kind::Message,
        "sending" => Kind::Sending,
        _ => return None,
    };
    let sequence = digits.parse().ok().filter(|sequence| is_number && *sequence <= MAX_FOUND_SEQUENCE)?;
    Some((sequence, kind))
}
