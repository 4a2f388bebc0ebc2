//! Reads a file that a runtime appends to, after checking its owner and age.
//!
//! The file belongs to the target. It is never mapped into memory, and every read has a limit.

use std::{fs::File, io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use profiler_addresses::MonotonicTime;
use profiler_binary_reader::WorkBudget;
use profiler_processes::{monotonic_time, root_directory::RootDirectory};
use profiler_profile::Reason;
use rustix::{
    fs::{AtFlags, Statx, StatxFlags, makedev, statx},
    io::Errno,
    time::{ClockId, clock_gettime},
};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes per poll. The memory limit is checked between polls: a line of a few bytes can take a hundred bytes of memory.
const MAX_POLL_BYTES: u64 = 512 << 10;
/// Bytes per file. .NET writes about 100 bytes per method into a perf map.
const MAX_TOTAL_BYTES: u64 = 256 << 20;
/// Bytes before the read position that are compared at each poll. When they change, the file was rewritten.
const TAIL_BYTES: usize = 64;
/// Tolerance of the comparison of file times with the start of the process: the latter is known in clock ticks since
/// boot, and file times have the resolution of a tick.
const START_TOLERANCE_NS: i128 = 2_000_000_000;

/// The time of a file can be so much earlier than the write: it has the resolution of a tick.
const FILE_TIME_RESOLUTION_NS: i128 = 10_000_000;

/// The process that must have written a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) started_unix_ns: u64,
}

/// Where files are opened, who must have written them, and how much of them may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileAccess<'a> {
    pub(super) root: &'a RootDirectory,
    pub(super) owner: FileOwner,
    pub(super) budget: &'a WorkBudget,
}

/// Decodes the bytes of a file.
pub(super) trait FileDecoder {
    /// Decodes the next bytes, which were written after `written_after`.
    fn feed(&mut self, bytes: &[u8], written_after: MonotonicTime);
    /// Ends a poll. All bytes since the last one were written between two times.
    fn end_poll(&mut self, written: Range<MonotonicTime>);
    /// Resets the decoder: the next bytes are the beginning of a file.
    fn restart(&mut self);
}

/// A file that may not exist yet, and the position up to which it was read.
#[derive(Debug)]
pub(super) struct FileFollower {
    path: PathBuf,
    open: Option<OpenFile>,
    /// The last time at which the file was read to its end. Later bytes were written later.
    caught_up: MonotonicTime,
    total_bytes: u64,
    refusal: Option<Reason>,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<File>,
    device_and_inode: (u64, u64),
    /// The size of the file when it was opened, and the time after that.
    found_bytes: u64,
    found: MonotonicTime,
    offset: u64,
    /// The last bytes before the offset.
    tail: Vec<u8>,
}

impl FileFollower {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, caught_up: MonotonicTime::ZERO, total_bytes: 0, refusal: None }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The bytes that were read, of all files that the path had.
    pub(super) fn read_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether a trusted file is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The open trusted file.
    pub(super) fn open_file(&self) -> Option<&Arc<File>> {
        self.open.as_ref().map(|open| &open.file)
    }

    /// Why an existing file is not read, or not read further.
    pub(super) fn refusal(&self) -> Option<Reason> {
        self.refusal
    }

    /// Passes the bytes since the last poll to `decoder`. `now` is the time before this call. Returns true when more
    /// bytes can be read at once.
    pub(super) fn poll(
        &mut self,
        access: FileAccess<'_>,
        now: MonotonicTime,
        decoder: &mut impl FileDecoder,
    ) -> bool {
        if self.refusal == Some(Reason::TooLarge) {
            return false;
        }
        let replacement = self.open_replacement(access);
        let mut more = self.read(access, now, decoder);
        if let Some(replacement) = replacement {
            decoder.restart();
            self.open = Some(replacement);
            more = self.read(access, now, decoder);
        }
        if self.open.is_none() {
            self.caught_up = now;
        }
        more
    }

    /// Opens the file at the path if it is trusted and not the open one. The open file stays open if the path has no file
    /// or an untrusted one.
    fn open_replacement(&mut self, access: FileAccess<'_>) -> Option<OpenFile> {
        match OpenFile::open(access.root, &self.path, access.owner) {
            Ok(found) => {
                self.refusal = None;
                let known = self.open.as_ref().map(|open| open.device_and_inode);
                (known != Some(found.device_and_inode)).then_some(found)
            }
            Err(reason) => {
                self.refusal = reason;
                None
            }
        }
    }

    fn read(&mut self, access: FileAccess<'_>, now: MonotonicTime, decoder: &mut impl FileDecoder) -> bool {
        let (after, before_bytes) = (self.caught_up, self.total_bytes);
        let more = self.read_chunks(access.budget, now, decoder);
        if self.total_bytes > before_bytes {
            let until = self.written_until(access.owner, after, now);
            decoder.end_poll(after..until);
        }
        more
    }

    fn read_chunks(
        &mut self,
        budget: &WorkBudget,
        now: MonotonicTime,
        decoder: &mut impl FileDecoder,
    ) -> bool {
        let Some(open) = &mut self.open else { return false };
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut poll_bytes = 0;
        if open.is_rewritten() {
            open.offset = 0;
            open.found_bytes = 0;
            open.tail.clear();
            decoder.restart();
        }
        while poll_bytes < MAX_POLL_BYTES {
            if self.total_bytes >= MAX_TOTAL_BYTES || budget.jit_file_bytes_left() == 0 {
                self.refusal = Some(Reason::TooLarge);
                return false;
            }
            match profiler_blocking::read_at(&open.file, &mut chunk, open.offset) {
                Ok(0) => {
                    self.caught_up = now;
                    return false;
                }
                Ok(read) => {
                    budget.spend_jit_file_bytes(read as u64);
                    decoder.feed(&chunk[..read], self.caught_up);
                    open.advance(&chunk[..read]);
                    poll_bytes += read as u64;
                    self.total_bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    self.refusal = Some(Reason::NotResponding);
                    return false;
                }
                Err(_) => {
                    self.refusal = Some(Reason::FileNotReadable);
                    return false;
                }
            }
        }
        true
    }

    /// The time by which the bytes that were read were written. Those of the first poll of a capture have no time.
    fn written_until(&self, owner: FileOwner, after: MonotonicTime, now: MonotonicTime) -> MonotonicTime {
        let is_live = owner.started_unix_ns > 0;
        let Some(open) = self.open.as_ref().filter(|_| is_live) else {
            return if after == MonotonicTime::ZERO { MonotonicTime::ZERO } else { now };
        };
        let (now, now_unix_ns) = (monotonic_time(), unix_ns());
        let modified_unix_ns = status_of(&open.file).map_or(i128::MAX, |status| modified_unix_ns(&status));
        let age_ns =
            now_unix_ns.saturating_sub(modified_unix_ns).saturating_sub(FILE_TIME_RESOLUTION_NS).max(0);
        let age = Duration::from_nanos(u64::try_from(age_ns).unwrap_or(u64::MAX));
        let modified = now.saturating_sub(age);
        let had_all_when_found = open.offset <= open.found_bytes;
        if had_all_when_found { modified.min(open.found) } else { modified }
    }
}

impl OpenFile {
    /// Opens a file and checks its owner and age. The error is `None` if no file exists.
    fn open(root: &RootDirectory, path: &std::path::Path, owner: FileOwner) -> Result<Self, Option<Reason>> {
        let file = root.open_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
            io::ErrorKind::PermissionDenied => Some(Reason::FileNotReadable),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Some(Reason::NotResponding),
            _ => Some(Reason::JitMapRefused),
        })?;
        let status = status_of(&file).map_err(|_| Some(Reason::FileNotReadable))?;
        // Agents with root write files for other processes. A file that only root can read is not for the process.
        let trusted_owner =
            status.stx_uid == owner.uid || (status.stx_uid == 0 && status.stx_mode & 0o004 != 0);
        let modified_unix_ns = modified_unix_ns(&status);
        if !trusted_owner || modified_unix_ns + START_TOLERANCE_NS < i128::from(owner.started_unix_ns) {
            return Err(Some(Reason::JitMapRefused));
        }
        let device = makedev(status.stx_dev_major, status.stx_dev_minor);
        Ok(Self {
            file: Arc::new(file),
            device_and_inode: (device, status.stx_ino),
            found_bytes: status.stx_size,
            found: monotonic_time(),
            offset: 0,
            tail: Vec::new(),
        })
    }

    /// Whether the bytes before the offset have changed: the runtime has begun the file again.
    fn is_rewritten(&self) -> bool {
        let mut now = [0; TAIL_BYTES];
        let now = &mut now[..self.tail.len()];
        let start = self.offset - self.tail.len() as u64;
        match profiler_blocking::read_at(&self.file, now, start) {
            Ok(count) => count < now.len() || *now != self.tail[..],
            // The next read fails, too.
            Err(error) => error.kind() != io::ErrorKind::TimedOut,
        }
    }

    fn advance(&mut self, read: &[u8]) {
        self.offset += read.len() as u64;
        self.tail.extend_from_slice(&read[read.len().saturating_sub(TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
    }
}

/// Attributes of a file. A file system in user space is not asked.
fn status_of(file: &File) -> Result<Statx, Errno> {
    statx(file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)
}

/// Nanoseconds since 1970-01-01 UTC.
fn unix_ns() -> i128 {
    let now = clock_gettime(ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// When a file was written last, nanoseconds since 1970-01-01 UTC.
fn modified_unix_ns(status: &Statx) -> i128 {
    i128::from(status.stx_mtime.tv_sec) * 1_000_000_000 + i128::from(status.stx_mtime.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, path::Path};

    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The decoded bytes with their times, the number of restarts, and the times of polls.
    #[derive(Default)]
    struct Collected(Vec<(Vec<u8>, u64)>, usize, Vec<Range<MonotonicTime>>);

    impl FileDecoder for Collected {
        fn feed(&mut self, bytes: &[u8], written_after: MonotonicTime) {
            self.0.push((bytes.to_vec(), written_after.0));
        }

        fn end_poll(&mut self, written: Range<MonotonicTime>) {
            self.2.push(written);
        }

        fn restart(&mut self) {
            self.1 += 1;
        }
    }

    struct Fixture {
        directory: tempfile::TempDir,
        root: RootDirectory,
        owner: FileOwner,
        budget: WorkBudget,
        follower: FileFollower,
        decoder: Collected,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let uid = directory.path().metadata().unwrap().uid();
            Self {
                root: RootDirectory::open(directory.path()).unwrap(),
                directory,
                owner: FileOwner { uid, started_unix_ns: 0 },
                budget: WorkBudget::default(),
                follower: FileFollower::new("/map".into()),
                decoder: Collected::default(),
            }
        }

        fn access(&self) -> FileAccess<'_> {
            FileAccess { root: &self.root, owner: self.owner, budget: &self.budget }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("map")
        }

        fn append(&self, text: &str) {
            let mut file = File::options().create(true).append(true).open(self.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn poll(&mut self, now_ns: u64) -> bool {
            let access = FileAccess { root: &self.root, owner: self.owner, budget: &self.budget };
            self.follower.poll(access, MonotonicTime(now_ns), &mut self.decoder)
        }

        fn read(&mut self) -> Vec<(String, u64)> {
            let parts = std::mem::take(&mut self.decoder.0).into_iter();
            parts.map(|(bytes, after_ns)| (String::from_utf8(bytes).unwrap(), after_ns)).collect()
        }
    }

    #[test]
    fn each_poll_reads_the_appended_bytes() {
        let mut fixture = Fixture::new();
        assert!(!fixture.poll(10));
        assert!(!fixture.follower.is_open());
        assert_eq!(fixture.follower.refusal(), None);
        fixture.append("one\n");
        fixture.poll(20);
        assert_eq!(fixture.read(), [("one\n".to_owned(), 10)]);
        fixture.poll(30);
        fixture.append("two");
        fixture.poll(40);
        assert_eq!(fixture.read(), [("two".to_owned(), 30)]);
    }

    #[test]
    fn what_a_file_had_when_it_was_found_was_written_before_that_time() {
        let mut fixture = Fixture::new();
        fixture.owner.started_unix_ns = 1;
        fixture.append(&"x".repeat(2 * MAX_POLL_BYTES as usize));
        assert!(fixture.poll(monotonic_time().0));
        let found = monotonic_time();
        fixture.append("written later");
        while fixture.poll(monotonic_time().0) {}
        let ends: Vec<_> = fixture.decoder.2.iter().map(|poll| poll.end).collect();
        let [first, second, third] = ends[..] else { panic!("three polls: {ends:?}") };
        assert!(first <= found && second <= found && third > found, "{ends:?}, {found:?}");
    }

    #[test]
    fn a_deleted_file_is_read_to_its_end() {
        let mut fixture = Fixture::new();
        fixture.append("one");
        let writer = File::options().append(true).open(fixture.path()).unwrap();
        fixture.poll(10);
        std::fs::remove_file(fixture.path()).unwrap();
        (&writer).write_all(b"two").unwrap();
        fixture.poll(20);
        assert_eq!(fixture.read(), [("one".to_owned(), 0), ("two".to_owned(), 10)]);
    }

    #[test]
    fn a_rewritten_file_is_read_again() {
        let mut fixture = Fixture::new();
        fixture.append("a long first text");
        fixture.poll(10);
        std::fs::write(fixture.path(), "short").unwrap();
        fixture.poll(20);
        std::fs::write(fixture.path(), "longer than before").unwrap();
        fixture.poll(30);
        let texts: Vec<_> = fixture.read().into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["a long first text", "short", "longer than before"]);
        assert_eq!(fixture.decoder.1, 3, "one restart for each text");
    }

    #[test]
    fn a_replaced_file_is_read_to_its_end_before_the_new_one() {
        let mut fixture = Fixture::new();
        fixture.append("one");
        fixture.poll(10);
        let writer = File::options().append(true).open(fixture.path()).unwrap();
        std::fs::remove_file(fixture.path()).unwrap();
        (&writer).write_all(b" more").unwrap();
        fixture.append("two");
        fixture.poll(20);
        let texts: Vec<_> = fixture.read().into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["one", " more", "two"]);
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let mut fixture = Fixture::new();
        fixture.append("one");
        std::fs::set_permissions(fixture.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        fixture.owner.uid += 1;
        fixture.poll(10);
        assert_eq!(fixture.follower.refusal(), Some(Reason::JitMapRefused));
        fixture.owner.uid -= 1;
        fixture.poll(20);
        assert_eq!(fixture.follower.refusal(), None);
        assert_eq!(fixture.read().len(), 1);
    }

    #[test]
    fn a_file_older_than_its_process_is_refused_until_it_is_written_again() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut fixture = Fixture::new();
        fixture.append("left over");
        let modified = fixture.path().metadata().unwrap();
        let modified_ns = modified.mtime() as u64 * SECOND_NS + modified.mtime_nsec() as u64;
        fixture.owner.started_unix_ns = modified_ns + 3 * SECOND_NS;
        fixture.poll(10);
        assert_eq!(fixture.follower.refusal(), Some(Reason::JitMapRefused));
        fixture.owner.started_unix_ns = modified_ns + SECOND_NS;
        fixture.poll(20);
        assert_eq!(fixture.follower.refusal(), None);
    }

    #[test]
    fn a_path_without_a_regular_file_in_the_root_is_refused() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let mut fixture = Fixture::new();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), fixture.path()).unwrap();
        fixture.poll(10);
        assert!(!fixture.follower.is_open(), "the target of the link is not in the root");
        std::fs::remove_file(fixture.path()).unwrap();
        mknodat(CWD, fixture.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fixture.poll(20);
        assert_eq!(fixture.follower.refusal(), Some(Reason::JitMapRefused));
        std::fs::remove_file(fixture.path()).unwrap();
        std::fs::create_dir(fixture.path()).unwrap();
        fixture.poll(30);
        assert_eq!(fixture.follower.refusal(), Some(Reason::JitMapRefused));
        assert!(fixture.decoder.0.is_empty());
    }

    #[test]
    fn a_file_of_ten_gigabytes_is_read_to_the_limit() {
        #[derive(Default)]
        struct Count(u64);
        impl FileDecoder for Count {
            fn feed(&mut self, bytes: &[u8], _written_after: MonotonicTime) {
                self.0 += bytes.len() as u64;
            }

            fn end_poll(&mut self, _written: Range<MonotonicTime>) {}

            fn restart(&mut self) {}
        }
        let fixture = Fixture::new();
        File::create(fixture.path()).unwrap().set_len(10 << 30).unwrap();
        let mut follower = FileFollower::new(Path::new("/map").to_owned());
        let mut count = Count::default();
        let mut polls = 1;
        while follower.poll(fixture.access(), MonotonicTime(polls), &mut count) {
            assert_eq!(count.0, polls * MAX_POLL_BYTES);
            polls += 1;
        }
        assert_eq!(count.0, MAX_TOTAL_BYTES);
        assert_eq!(follower.refusal(), Some(Reason::TooLarge));
        assert!(!follower.poll(fixture.access(), MonotonicTime(polls), &mut count));
        assert_eq!(count.0, MAX_TOTAL_BYTES);
    }

    #[test]
    fn a_file_is_read_until_the_budget_of_its_tenant_is_spent() {
        let mut fixture = Fixture::new();
        File::create(fixture.path()).unwrap().set_len(10 * CHUNK_BYTES as u64).unwrap();
        fixture.budget.spend_jit_file_bytes(fixture.budget.jit_file_bytes_left() - CHUNK_BYTES as u64 - 1);
        assert!(!fixture.poll(10));
        assert_eq!(fixture.decoder.0.len(), 2, "charged by the chunk");
        assert_eq!(fixture.follower.refusal(), Some(Reason::TooLarge));
    }
}
