//! The format of a capture: the records of the kernel and copies of the files read from `/proc`, for replay.
//!
//! A capture is a directory. `events.jsonl` holds one JSON value a line: first [`Capture`], then the batches in
//! the order in which they were read. `proc/` has the structure of `/proc` and contains the files that were read.

mod metadata;
mod named_event;
mod version_1;

use std::{
    fs::{self, DirBuilder, File},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
};

use profiler_common::system_call::SystemCallAbi;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use serde::{Deserialize, Serialize};

pub use self::metadata::{Capture, RecordedCounts};
pub(crate) use self::named_event::NamedEvent;
use self::version_1::CaptureOfTicks;
use crate::{
    batch::Batch,
    error::{Error, ErrorKind, Operation, Result},
};

/// The version of the format that is written. Newer versions are refused. Version 1 has samples of CPUs alone.
pub const VERSION: u32 = 2;

/// The most bytes that are read of a capture's events.
const MAX_EVENTS_BYTES: u64 = 4 << 30;
/// The most bytes of a line: a batch holds at most the contents of the ring buffers.
const MAX_LINE_BYTES: u64 = 1 << 30;

const EVENTS: &str = "events.jsonl";
const PARTIAL_EVENTS: &str = "events.partial";
const PROC: &str = "proc";

/// No access for other users: a capture has files and memory of the target.
const DIRECTORY_MODE: u32 = 0o700;

/// The directory with the copies of files of `/proc`.
pub fn proc_directory(capture: &Path) -> PathBuf {
    capture.join(PROC)
}

/// The version of a capture, whatever else its first line has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Writes batches to a temporary file, and at the end the metadata followed by the batches. Dropping it before removes the
/// capture, which could not be replayed.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// Open, so that another user who can rename it does not lead the recorder elsewhere.
    directory: OwnedFd,
    lines: BufWriter<File>,
    is_complete: bool,
}

impl Recorder {
    /// Creates the directory, which must not exist: another user could have put links into it.
    pub fn create(path: &Path) -> Result<Self> {
        let create = || {
            DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = openat(CWD, path, flags, Mode::empty())?;
            let lines = BufWriter::new(create_file(&directory, PARTIAL_EVENTS)?);
            Ok(Self { path: path.to_owned(), directory, lines, is_complete: false })
        };
        create().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let message =
                    format!("`{}` already exists: name a new directory for the capture", path.display());
                Error::new(ErrorKind::InvalidInput, message)
            }
            _ => failed(path, error),
        })
    }

    /// Creates the directory for copies of files of `/proc`.
    pub fn create_proc_directory(&self) -> Result<OwnedFd> {
        let create = || {
            mkdirat(&self.directory, PROC, Mode::RWXU)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&self.directory, PROC, flags, Mode::empty())
        };
        create().map_err(|error| failed(&self.path, error.into()))
    }

    /// Adds a batch.
    pub fn record(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        write_line(&mut self.lines, batch).map_err(|error| failed(&self.path, error))
    }

    /// Writes the metadata and the batches to the final file.
    pub fn finish(mut self, capture: &Capture) -> Result<()> {
        let mut write = || -> io::Result<()> {
            self.lines.flush()?;
            let mut partial = self.lines.get_ref();
            partial.rewind()?;
            let mut file = BufWriter::new(create_file(&self.directory, EVENTS)?);
            write_line(&mut file, capture)?;
            io::copy(&mut partial, &mut file)?;
            file.flush()?;
            Ok(unlinkat(&self.directory, PARTIAL_EVENTS, AtFlags::empty())?)
        };
        write().map_err(|error| failed(&self.path.join(EVENTS), error))?;
        self.is_complete = true;
        Ok(())
    }

    /// Removes the capture through its open directory: by now the path may lead elsewhere.
    fn remove(&self) -> io::Result<()> {
        let ignore_missing = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        };
        let proc = format!("/proc/self/fd/{}/{PROC}", self.directory.as_raw_fd());
        fs::remove_dir_all(proc).or_else(ignore_missing)?;
        for name in [EVENTS, PARTIAL_EVENTS] {
            unlinkat(&self.directory, name, AtFlags::empty())
                .map_err(io::Error::from)
                .or_else(ignore_missing)?;
        }
        fs::remove_dir(&self.path)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.is_complete
            && let Err(error) = self.remove()
        {
            log::warn!("failed to remove the incomplete capture `{}`: {error}", self.path.display());
        }
    }
}

/// The tables of system calls as a capture names them.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SystemCallAbi")]
pub(crate) enum RecordedAbi {
    X64,
    I386,
}

/// Whether a value is that of a record without it.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Creates a file that only its owner can read.
fn create_file(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Reads the events of a capture.
pub(crate) fn read(directory: &Path) -> Result<(Capture, Vec<Batch>)> {
    let path = directory.join(EVENTS);
    let file = open_events(&path).map_err(|error| {
        Error::from_io(Operation::OpenFile, format!("failed to open the capture `{}`", path.display()), error)
    })?;
    parse(BufReader::new(file.take(MAX_EVENTS_BYTES))).map_err(|error| {
        Error::with_source(error.kind, format!("failed to read `{}`", path.display()), error)
    })
}

/// Opens the events of a capture that a stranger can have made: a regular file, and neither a link out of the capture nor
/// a pipe that never ends.
fn open_events(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Parses the lines of a capture's events.
pub(crate) fn parse(mut text: impl BufRead) -> Result<(Capture, Vec<Batch>)> {
    let mut line = Vec::new();
    if !next_line(&mut text, &mut line)? {
        return Err(Error::new(ErrorKind::InvalidData, "the capture is empty"));
    }
    let capture = parse_metadata(&line)?;
    let mut batches = Vec::new();
    while next_line(&mut text, &mut line)? {
        batches.push(from_json(&line)?);
    }
    Ok((capture, batches))
}

fn parse_metadata(line: &[u8]) -> Result<Capture> {
    let Version { version } = from_json(line)?;
    let capture: Capture = match version {
        ..2 => from_json::<CaptureOfTicks>(line)?.into(),
        VERSION => from_json(line)?,
        _ => {
            let message =
                format!("the capture has version {version}, this program reads up to version {VERSION}");
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
    };
    capture.events.check_counted()?;
    Ok(capture)
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

fn write_line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("failed to write the capture `{}`", path.display()), error)
}

#[cfg(test)]
mod tests {
    use profiler_addresses::MonotonicTime;
    use profiler_processes::{Pid, ProcessFilter, Tid};
    use profiler_profile::{EventLedger, Loss, ThreadState};

    use super::*;
    use crate::{
        counted_event::CountedEvent,
        counts::{KernelCounts, TimerCounts},
        ebpf::events::{EventSettings, MAX_COUNTED_EVENTS},
        sample::{CalledSystemCall, Comm, Origin, RawSample, RawWaker},
        stack::RawStack,
    };

    fn batch() -> Batch {
        Batch {
            stacks: vec![RawStack {
                id: std::num::NonZeroU64::new(9),
                addresses: vec![1, 2],
                ..RawStack::default()
            }],
            samples: vec![sample()],
            ..Batch::default()
        }
    }

    fn sample() -> RawSample {
        RawSample {
            time: MonotonicTime(5),
            cpu: 0,
            pid: Pid(1),
            tid: Tid(2),
            comm: Comm::default(),
            kernel_stack: None,
            user_stack: std::num::NonZeroU64::new(9),
            value: 1,
            origin: Origin::default(),
            waker: None,
            system_call: None,
        }
    }

    /// A sample of each state, with and without what some events have in addition.
    fn samples_of_all_kinds() -> Vec<RawSample> {
        let wait = |state| {
            let origin = Origin { event: 1, state: Some(state), is_duration: true };
            RawSample { origin, value: 7_000_000, ..sample() }
        };
        let waker = RawWaker {
            pid: Pid(3),
            tid: Tid(4),
            comm: Comm::default(),
            kernel_stack: std::num::NonZeroU64::new(9),
            user_stack: None,
        };
        let call = |abi| {
            let origin = Origin { event: 2, ..Origin::default() };
            RawSample { system_call: Some(CalledSystemCall { number: 39, abi }), origin, ..sample() }
        };
        let states = ThreadState::ALL.iter().map(|state| wait(*state));
        let others = [
            RawSample { waker: Some(Box::new(waker)), ..wait(ThreadState::Blocked) },
            call(SystemCallAbi::X64),
            call(SystemCallAbi::I386),
        ];
        states.chain(others).collect()
    }

    #[test]
    fn a_recorded_capture_reads_back_equal() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("capture");
        let mut recorder = Recorder::create(&directory).unwrap();
        recorder.create_proc_directory().unwrap();
        let batch = Batch { samples: samples_of_all_kinds(), ..batch() };
        recorder.record(&batch).unwrap();
        recorder.record(&Batch::default()).unwrap();
        let capture = Capture { version: VERSION, target: "pid 1".to_owned(), ..Capture::default() };
        recorder.finish(&capture).unwrap();
        assert_eq!(read(&directory).unwrap(), (capture, vec![batch]));
        assert!(!directory.join(PARTIAL_EVENTS).exists());
    }

    #[test]
    fn an_incomplete_capture_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("capture"), folder.path().join("moved"));
        let recorder = Recorder::create(&path).unwrap();
        recorder.create_proc_directory().unwrap();
        fs::write(path.join("proc/file"), "").unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::create_dir_all(path.join("proc")).unwrap();
        drop(recorder);
        assert!(path.join("proc").exists() && fs::read_dir(&moved).unwrap().next().is_none());
        let other = folder.path().join("other");
        drop(Recorder::create(&other).unwrap());
        assert!(!other.exists());
    }

    #[test]
    fn a_directory_that_exists_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Recorder::create(folder.path()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidInput);
        assert!(error.to_string().contains("already exists"), "{error}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(Recorder::create(&link).unwrap_err().kind, ErrorKind::InvalidInput);
    }

    #[test]
    fn a_capture_of_version_1_has_ticks_alone() {
        let line = r#"{"version":1,"target":"pid 7","frequency_hz":99,"cpus":2,"started_ns":1,"ended_ns":90,
            "started_unix_ns":5,"counts":{"target_ticks":3,"lost_ring_buffer":1,"lost_thread_id":0,"lost_children":4,
            "run_time_ns":6,"timer":{"due":8,"delivered":7,"is_throttled":false,"cpu_online":0}},"expected":[7]}"#;
        let (capture, _) = parse(line.replace('\n', "").as_bytes()).unwrap();
        let ticks =
            EventLedger { due: 3, lost: [(Loss::RingBufferFull, 1)].into(), ..EventLedger::default() };
        let timer = TimerCounts { due: 8, delivered: 7, ..TimerCounts::default() };
        let counts = KernelCounts { lost_children: 4, run_time_ns: 6, timer, events: vec![ticks] };
        assert_eq!(KernelCounts::from(&capture.counts), counts);
        assert_eq!(capture.events, EventSettings { frequency_hz: 99, ..EventSettings::default() });
        assert!(capture.has_user_stacks && capture.filter == ProcessFilter::All);
        assert_eq!(capture.expected, [Pid(7)]);
    }

    #[test]
    fn more_events_than_a_session_can_count_are_refused() {
        let name = |number| format!("subsystem:event_{number}").parse::<CountedEvent>().unwrap();
        let parse_with = |events: usize| {
            let counted = (0..events).map(name).collect();
            let events = EventSettings { counted, ..EventSettings::default() };
            let capture = Capture { version: VERSION, events, ..Capture::default() };
            parse(serde_json::to_string(&capture).unwrap().as_bytes())
        };
        assert!(parse_with(MAX_COUNTED_EVENTS).is_ok());
        assert!(parse_with(MAX_COUNTED_EVENTS + 1).unwrap_err().to_string().contains("at most"));
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
            serde_json::to_string(&Capture { version: VERSION, ..Capture::default() }).unwrap(),
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
