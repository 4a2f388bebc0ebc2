//! Following a file that a runtime writes: what is new at each poll, as long as the file can be trusted.
//!
//! The file belongs to the target. It is never mapped into memory, and every read has a limit.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
};

use profiler_processes::root_directory::RootDirectory;
use profiler_profile::Reason;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes read in one poll. What they become in memory is looked at in between: a line of a few bytes can take
/// a hundred.
const MAX_POLL_BYTES: u64 = 512 << 10;
/// Bytes read in all. .NET writes some 100 bytes a method into a perf map.
const MAX_TOTAL_BYTES: u64 = 256 << 20;
/// Bytes before the place of reading that must not change: when they do, the file was written anew.
const TAIL_BYTES: usize = 64;
/// By how much a file may seem older than its process: starts of processes are known in clock ticks, file
/// times come from a clock that is read once a tick, and the two are compared through the time of boot.
const START_SLACK_NS: i128 = 2_000_000_000;

/// Whose file it has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) started_unix_ns: u64,
}

/// What takes the bytes of a file.
pub(super) trait Sink {
    /// The next bytes, written after `written_after_ns` (`CLOCK_MONOTONIC`).
    fn feed(&mut self, bytes: &[u8], written_after_ns: u64);
    /// What follows is the beginning of a file.
    fn restart(&mut self);
}

/// One file, there or not yet.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    open: Option<OpenFile>,
    /// When all there was had been read: what is read later was written later.
    caught_up_ns: u64,
    total_bytes: u64,
    refusal: Option<Reason>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    device_and_inode: (u64, u64),
    offset: u64,
    /// The bytes before the offset.
    tail: Vec<u8>,
}

impl Follower {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, caught_up_ns: 0, total_bytes: 0, refusal: None }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Whether a file was found and trusted.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The file, when it was found and trusted.
    pub(super) fn open_file(&self) -> Option<&File> {
        self.open.as_ref().map(|open| &open.file)
    }

    /// Why a file that is there is not read, or not read further.
    pub(super) fn refusal(&self) -> Option<Reason> {
        self.refusal
    }

    /// Hands what was written since the last poll to `sink`. `now_ns` is the `CLOCK_MONOTONIC` time before
    /// this call. True when there is more to read at once.
    pub(super) fn poll(
        &mut self,
        root: &RootDirectory,
        owner: Owner,
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> bool {
        if self.refusal == Some(Reason::TooLarge) {
            return false;
        }
        let found = self.find(root, owner);
        let mut more = self.read(now_ns, sink);
        if let Some(found) = found {
            sink.restart();
            self.open = Some(found);
            more = self.read(now_ns, sink);
        }
        if self.open.is_none() {
            self.caught_up_ns = now_ns;
        }
        more
    }

    /// The file at the path, when it is another than the open one and to be trusted. A file that is gone or
    /// not to be trusted is no reason to drop the one that is open.
    fn find(&mut self, root: &RootDirectory, owner: Owner) -> Option<OpenFile> {
        match OpenFile::open(root, &self.path, owner) {
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

    fn read(&mut self, now_ns: u64, sink: &mut impl Sink) -> bool {
        let Some(open) = &mut self.open else { return false };
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut poll_bytes = 0;
        if open.is_written_anew() {
            open.offset = 0;
            open.tail.clear();
            sink.restart();
        }
        while poll_bytes < MAX_POLL_BYTES {
            if self.total_bytes >= MAX_TOTAL_BYTES {
                self.refusal = Some(Reason::TooLarge);
                return false;
            }
            match open.file.read_at(&mut chunk, open.offset) {
                Ok(0) => {
                    self.caught_up_ns = now_ns;
                    return false;
                }
                Ok(read) => {
                    sink.feed(&chunk[..read], self.caught_up_ns);
                    open.advance(&chunk[..read]);
                    poll_bytes += read as u64;
                    self.total_bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.refusal = Some(Reason::FileNotReadable);
                    return false;
                }
            }
        }
        true
    }
}

impl OpenFile {
    /// The error is `None` where no file is.
    fn open(root: &RootDirectory, path: &std::path::Path, owner: Owner) -> Result<Self, Option<Reason>> {
        let file = root.open_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
            io::ErrorKind::PermissionDenied => Some(Reason::FileNotReadable),
            _ => Some(Reason::JitMapRefused),
        })?;
        let metadata = file.metadata().map_err(|_| Some(Reason::FileNotReadable))?;
        // Root may write for others, as agents do; what only root may read is not meant for them.
        let trusted_owner =
            metadata.uid() == owner.uid || (metadata.uid() == 0 && metadata.mode() & 0o004 != 0);
        let modified_unix_ns =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        if !trusted_owner || modified_unix_ns + START_SLACK_NS < i128::from(owner.started_unix_ns) {
            return Err(Some(Reason::JitMapRefused));
        }
        let device_and_inode = (metadata.dev(), metadata.ino());
        Ok(Self { file, device_and_inode, offset: 0, tail: Vec::new() })
    }

    /// Whether what was read last no longer stands there: the runtime has begun the file again.
    fn is_written_anew(&self) -> bool {
        let mut now = [0; TAIL_BYTES];
        let now = &mut now[..self.tail.len()];
        let start = self.offset - self.tail.len() as u64;
        self.file.read_exact_at(now, start).is_err() || *now != self.tail[..]
    }

    fn advance(&mut self, read: &[u8]) {
        self.offset += read.len() as u64;
        self.tail.extend_from_slice(&read[read.len().saturating_sub(TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, path::Path};

    use super::*;

    #[derive(Default)]
    struct Collected(Vec<(Vec<u8>, u64)>, usize);

    impl Sink for Collected {
        fn feed(&mut self, bytes: &[u8], written_after_ns: u64) {
            self.0.push((bytes.to_vec(), written_after_ns));
        }

        fn restart(&mut self) {
            self.1 += 1;
        }
    }

    struct Scene {
        directory: tempfile::TempDir,
        root: RootDirectory,
        owner: Owner,
        follower: Follower,
        sink: Collected,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let uid = directory.path().metadata().unwrap().uid();
            Self {
                root: RootDirectory::open(directory.path()).unwrap(),
                directory,
                owner: Owner { uid, started_unix_ns: 0 },
                follower: Follower::new("/map".into()),
                sink: Collected::default(),
            }
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("map")
        }

        fn append(&self, text: &str) {
            let mut file = File::options().create(true).append(true).open(self.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn poll(&mut self, now_ns: u64) -> bool {
            self.follower.poll(&self.root, self.owner, now_ns, &mut self.sink)
        }

        fn read(&mut self) -> Vec<(String, u64)> {
            let parts = std::mem::take(&mut self.sink.0).into_iter();
            parts.map(|(bytes, after_ns)| (String::from_utf8(bytes).unwrap(), after_ns)).collect()
        }
    }

    #[test]
    fn each_poll_reads_what_was_added() {
        let mut scene = Scene::new();
        assert!(!scene.poll(10));
        assert!(!scene.follower.is_open());
        assert_eq!(scene.follower.refusal(), None);
        scene.append("one\n");
        scene.poll(20);
        assert_eq!(scene.read(), [("one\n".to_owned(), 10)]);
        scene.poll(30);
        scene.append("two");
        scene.poll(40);
        assert_eq!(scene.read(), [("two".to_owned(), 30)]);
    }

    #[test]
    fn a_deleted_file_is_read_to_its_end() {
        let mut scene = Scene::new();
        scene.append("one");
        let writer = File::options().append(true).open(scene.path()).unwrap();
        scene.poll(10);
        std::fs::remove_file(scene.path()).unwrap();
        (&writer).write_all(b"two").unwrap();
        scene.poll(20);
        assert_eq!(scene.read(), [("one".to_owned(), 0), ("two".to_owned(), 10)]);
    }

    #[test]
    fn a_file_that_was_begun_again_is_read_again() {
        let mut scene = Scene::new();
        scene.append("a long first text");
        scene.poll(10);
        std::fs::write(scene.path(), "short").unwrap();
        scene.poll(20);
        std::fs::write(scene.path(), "longer than before").unwrap();
        scene.poll(30);
        let texts: Vec<_> = scene.read().into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["a long first text", "short", "longer than before"]);
        assert_eq!(scene.sink.1, 3, "one beginning for each");
    }

    #[test]
    fn a_file_in_the_place_of_another_is_read_after_it() {
        let mut scene = Scene::new();
        scene.append("one");
        scene.poll(10);
        let writer = File::options().append(true).open(scene.path()).unwrap();
        std::fs::remove_file(scene.path()).unwrap();
        (&writer).write_all(b" more").unwrap();
        scene.append("two");
        scene.poll(20);
        let texts: Vec<_> = scene.read().into_iter().map(|(text, _)| text).collect();
        assert_eq!(texts, ["one", " more", "two"]);
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let mut scene = Scene::new();
        scene.append("one");
        std::fs::set_permissions(scene.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        scene.owner.uid += 1;
        scene.poll(10);
        assert_eq!(scene.follower.refusal(), Some(Reason::JitMapRefused));
        scene.owner.uid -= 1;
        scene.poll(20);
        assert_eq!(scene.follower.refusal(), None);
        assert_eq!(scene.read().len(), 1);
    }

    #[test]
    fn a_file_older_than_its_process_is_refused_until_it_is_written_again() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut scene = Scene::new();
        scene.append("left over");
        let modified = scene.path().metadata().unwrap();
        let modified_ns = modified.mtime() as u64 * SECOND_NS + modified.mtime_nsec() as u64;
        scene.owner.started_unix_ns = modified_ns + 3 * SECOND_NS;
        scene.poll(10);
        assert_eq!(scene.follower.refusal(), Some(Reason::JitMapRefused));
        scene.owner.started_unix_ns = modified_ns + SECOND_NS;
        scene.poll(20);
        assert_eq!(scene.follower.refusal(), None);
    }

    #[test]
    fn what_is_no_file_in_the_root_is_refused() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let mut scene = Scene::new();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), scene.path()).unwrap();
        scene.poll(10);
        assert!(!scene.follower.is_open(), "the link leads to nothing inside the root");
        std::fs::remove_file(scene.path()).unwrap();
        mknodat(CWD, scene.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        scene.poll(20);
        assert_eq!(scene.follower.refusal(), Some(Reason::JitMapRefused));
        std::fs::remove_file(scene.path()).unwrap();
        std::fs::create_dir(scene.path()).unwrap();
        scene.poll(30);
        assert_eq!(scene.follower.refusal(), Some(Reason::JitMapRefused));
        assert!(scene.sink.0.is_empty());
    }

    #[test]
    fn a_file_of_ten_gigabytes_is_read_to_the_limit() {
        #[derive(Default)]
        struct Count(u64);
        impl Sink for Count {
            fn feed(&mut self, bytes: &[u8], _written_after_ns: u64) {
                self.0 += bytes.len() as u64;
            }

            fn restart(&mut self) {}
        }
        let scene = Scene::new();
        File::create(scene.path()).unwrap().set_len(10 << 30).unwrap();
        let mut follower = Follower::new(Path::new("/map").to_owned());
        let mut count = Count::default();
        let mut polls = 1;
        while follower.poll(&scene.root, scene.owner, polls, &mut count) {
            assert_eq!(count.0, polls * MAX_POLL_BYTES);
            polls += 1;
        }
        assert_eq!(count.0, MAX_TOTAL_BYTES);
        assert_eq!(follower.refusal(), Some(Reason::TooLarge));
        assert!(!follower.poll(&scene.root, scene.owner, polls, &mut count));
        assert_eq!(count.0, MAX_TOTAL_BYTES);
    }
}
