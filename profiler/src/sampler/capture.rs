//! The format of a capture: the records of the kernel and copies of the files read from `/proc`, for replay.
//!
//! A capture is a directory. `events.jsonl` holds one JSON value a line: first [`Capture`], then the batches in
//! the order in which they were read. `proc/` has the structure of `/proc` and contains the files that were read.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Batch, KernelCounts};
use crate::error::{Error, ErrorKind, Operation, Result};

/// The version of the format that is written. Newer versions are refused.
pub(crate) const VERSION: u32 = 1;

/// The most bytes that are read of a capture's events.
const MAX_EVENTS_BYTES: u64 = 4 << 30;
/// The most bytes of a line: a batch holds at most the contents of the ring buffers.
const MAX_LINE_BYTES: u64 = 1 << 30;

const EVENTS: &str = "events.jsonl";

/// The metadata of a capture: its first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capture {
    pub(crate) version: u32,
    /// The target in words.
    pub(crate) target: String,
    pub(crate) frequency_hz: u64,
    pub(crate) cpus: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) started_ns: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) ended_ns: u64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub(crate) started_unix_ns: u64,
    pub(crate) counts: KernelCounts,
    /// Processes whose mappings were read before sampling began; all sideband events are later.
    #[serde(default)]
    pub(crate) expected: Vec<u32>,
}

/// The directory with the copies of files of `/proc`.
pub(crate) fn proc_directory(capture: &Path) -> PathBuf {
    capture.join("proc")
}

/// Writes batches to a temporary file, and at the end the metadata followed by the batches.
#[derive(Debug)]
pub(crate) struct Recorder {
    directory: PathBuf,
    lines: BufWriter<File>,
    partial: PathBuf,
}

impl Recorder {
    /// Creates the directory.
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        fs::create_dir_all(proc_directory(directory)).map_err(|error| failed(directory, error))?;
        let partial = directory.join("events.partial");
        let lines = BufWriter::new(File::create(&partial).map_err(|error| failed(&partial, error))?);
        Ok(Self { directory: directory.to_owned(), lines, partial })
    }

    /// Adds a batch.
    pub(crate) fn record(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        write_line(&mut self.lines, batch).map_err(|error| failed(&self.partial, error))
    }

    /// Writes the metadata and the batches to the final file.
    pub(crate) fn finish(mut self, capture: &Capture) -> Result<()> {
        let path = self.directory.join(EVENTS);
        let mut write = || -> std::io::Result<()> {
            self.lines.flush()?;
            let mut file = BufWriter::new(File::create(&path)?);
            write_line(&mut file, capture)?;
            std::io::copy(&mut File::open(&self.partial)?, &mut file)?;
            file.flush()?;
            fs::remove_file(&self.partial)
        };
        write().map_err(|error| failed(&path, error))
    }
}

/// Reads the events of a capture.
pub(crate) fn read(directory: &Path) -> Result<(Capture, Vec<Batch>)> {
    let path = directory.join(EVENTS);
    let file = File::open(&path).map_err(|error| {
        Error::from_io(Operation::OpenFile, format!("failed to open the capture `{}`", path.display()), error)
    })?;
    parse(BufReader::new(file.take(MAX_EVENTS_BYTES))).map_err(|error| {
        Error::with_source(error.kind(), format!("failed to read `{}`", path.display()), error)
    })
}

/// Parses the lines of a capture's events.
pub(crate) fn parse(mut text: impl BufRead) -> Result<(Capture, Vec<Batch>)> {
    let mut line = Vec::new();
    if !next_line(&mut text, &mut line)? {
        return Err(Error::new(ErrorKind::InvalidData, "the capture is empty"));
    }
    let capture: Capture = from_json(&line)?;
    if capture.version > VERSION {
        let message = format!(
            "the capture has version {}, this program reads up to version {VERSION}",
            capture.version
        );
        return Err(Error::new(ErrorKind::InvalidData, message));
    }
    let mut batches = Vec::new();
    while next_line(&mut text, &mut line)? {
        batches.push(from_json(&line)?);
    }
    Ok((capture, batches))
}

fn next_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    text.take(MAX_LINE_BYTES)
        .read_until(b'\n', line)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to read a line", error))?;
    Ok(!line.trim_ascii().is_empty())
}

fn from_json<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T> {
    serde_json::from_slice(line).map_err(|error| {
        Error::with_source(ErrorKind::InvalidData, "a line of the capture is malformed", error)
    })
}

fn write_line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("failed to write the capture `{}`", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Comm, RawSample, RawStack};

    fn batch() -> Batch {
        Batch {
            stacks: vec![RawStack {
                id: std::num::NonZeroU64::new(9),
                addresses: vec![1, 2],
                ..RawStack::default()
            }],
            samples: vec![RawSample {
                time_ns: 5,
                cpu: 0,
                pid: 1,
                tid: 2,
                comm: Comm::default(),
                kernel_stack: None,
                user_stack: std::num::NonZeroU64::new(9),
                weight: 1,
            }],
            ..Batch::default()
        }
    }

    #[test]
    fn a_recorded_capture_reads_back_equal() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(directory.path()).unwrap();
        recorder.record(&batch()).unwrap();
        recorder.record(&Batch::default()).unwrap();
        let capture = Capture { version: VERSION, target: "pid 1".to_owned(), ..Capture::default() };
        recorder.finish(&capture).unwrap();
        assert_eq!(read(directory.path()).unwrap(), (capture, vec![batch()]));
        assert!(!directory.path().join("events.partial").exists());
    }

    #[test]
    fn a_newer_version_is_refused_and_named() {
        let line = serde_json::to_string(&Capture { version: 99, ..Capture::default() }).unwrap();
        let error = parse(line.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("version 99"));
    }

    #[test]
    fn truncated_and_malformed_captures_are_errors() {
        let whole = format!(
            "{}\n{}\n",
            serde_json::to_string(&Capture::default()).unwrap(),
            serde_json::to_string(&batch()).unwrap()
        );
        let mut complete_batches = 0;
        for end in 0..=whole.len() {
            if let Ok((_, batches)) = parse(&whole.as_bytes()[..end]) {
                complete_batches += batches.len();
            }
        }
        // With and without the last line break.
        assert_eq!(complete_batches, 2);
        assert!(parse(&b"\xff\xfe{}"[..]).is_err());
    }
}
