//! The files of a capture: written for their owner alone, and read without leaving its directory.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

use crate::confined_open;

/// Bytes of one mapped file in a capture.
const MAX_CAPTURED_FILE_BYTES: u64 = 256 << 20;

/// Bytes of all files in a capture, without the events of the BPF program.
const MAX_CAPTURE_BYTES: u64 = 4 << 30;

/// The directory of a capture that is recorded, and its byte budget.
#[derive(Debug)]
pub(crate) struct CaptureDirectory {
    directory: OwnedFd,
    remaining_bytes: AtomicU64,
    /// The number of files written, for names of temporary files.
    files: AtomicU64,
}

impl CaptureDirectory {
    /// The capture in an open directory, which is created for it.
    pub(crate) fn new(directory: OwnedFd) -> Self {
        Self::with_budget(directory, MAX_CAPTURE_BYTES)
    }

    fn with_budget(directory: OwnedFd, bytes: u64) -> Self {
        Self { directory, remaining_bytes: AtomicU64::new(bytes), files: AtomicU64::new(0) }
    }

    /// Copies an open file of a target, from its beginning. It is not opened again, which could wait for the target.
    pub(crate) fn copy_from_start(&self, file: &Arc<File>, to: &Path) -> io::Result<()> {
        self.copy(FromStart { file, offset: 0 }, to)
    }

    /// Copies what a reader has.
    pub(crate) fn copy(&self, from: impl Read, to: &Path) -> io::Result<()> {
        let remaining_bytes = self.remaining_bytes.load(Ordering::Relaxed);
        if remaining_bytes == 0 {
            return Err(io::Error::other("the byte budget of the capture is exceeded"));
        }
        let limit_bytes = MAX_CAPTURED_FILE_BYTES.min(remaining_bytes);
        let copied = self.create(to, |file| io::copy(&mut from.take(limit_bytes), file))?;
        self.remaining_bytes.store(remaining_bytes - copied, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a text. An exceeded budget is not an error, because the caller needs the text even when the capture lacks
    /// it. An empty text replaces no other one: entries of a process that has ended are empty until its parent collects it.
    pub(crate) fn write(&self, bytes: &[u8], to: &Path) -> io::Result<()> {
        if bytes.is_empty() && statat(&self.directory, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let remaining_bytes = self.remaining_bytes.load(Ordering::Relaxed).checked_sub(bytes.len() as u64);
        let Some(remaining_bytes) = remaining_bytes else {
            log::warn!("the capture lacks `{}`: its byte budget is exceeded", to.display());
            return Ok(());
        };
        self.create(to, |file| file.write_all(bytes))?;
        self.remaining_bytes.store(remaining_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Creates or replaces a file. Entries of a process are read several times, and the last text counts that is not empty.
    fn create<T>(&self, to: &Path, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let directory = self.create_directories(to.parent().unwrap_or(Path::new("")))?;
        let temporary = format!(".part-{}", self.files.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let written = write(&mut file)
            .and_then(|written| Ok(renameat(&directory, &temporary, &directory, name).map(|()| written)?));
        if written.is_err() {
            unlinkat(&directory, &temporary, AtFlags::empty())?;
        }
        written
    }

    /// Opens a directory of the capture, which is created with those above it.
    fn create_directories(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = openat(&self.directory, ".", flags, Mode::empty())?;
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains `..`"));
            };
            match mkdirat(&directory, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            directory = openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(directory)
    }
}

/// Reads a file of a target, from its beginning, with a deadline for each read.
struct FromStart<'a> {
    file: &'a Arc<File>,
    offset: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = profiler_blocking::read_at(self.file, buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// The text of an entry of a process as it is captured: of the environment the variables that a replay needs.
pub(crate) fn captured_text<'a>(entry: &str, text: &'a [u8]) -> Cow<'a, [u8]> {
    if entry == "environ" { jit_directory_variables(text).into() } else { text.into() }
}

/// The variables that the search for files about JIT code needs. The others can be secrets, and take memory.
pub(crate) fn jit_directory_variables(environment: &[u8]) -> Vec<u8> {
    let is_needed = |entry: &&[u8]| {
        crate::JIT_DIRECTORY_VARIABLES.iter().any(|variable| entry.starts_with(variable.as_bytes()))
    };
    environment.split_inclusive(|byte| *byte == 0).filter(is_needed).flatten().copied().collect()
}

/// The variables that are kept of an environment. Checks that a capture keeps the same ones of them again.
#[cfg(fuzzing)]
pub fn check_environment(environment: &[u8]) -> Vec<u8> {
    let kept = jit_directory_variables(environment);
    assert_eq!(captured_text("environ", &kept), kept);
    #[cfg(feature = "pods")]
    crate::service_name::check_service_name(environment);
    kept
}

/// Opens a path in a capture that is replayed. A stranger can have made it: neither the directory nor a link in it leads
/// out of the capture.
pub(crate) fn open_inside(capture: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, capture, directory, Mode::empty())?;
    if path.as_os_str().is_empty() {
        return Ok(directory);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    confined_open::open(directory.as_fd(), path, flags, resolve)
}

/// The path of an open directory.
pub(crate) fn path_of(directory: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", directory.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
    };

    use tempfile::TempDir;

    use super::*;

    fn capture(bytes: u64) -> (TempDir, CaptureDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap().into();
        (directory, CaptureDirectory::with_budget(opened, bytes))
    }

    #[test]
    fn an_exceeded_budget_ends_copies_and_drops_texts() {
        let (directory, capture) = capture(10);
        let endless = || File::open("/dev/zero").unwrap();
        capture.write(&[1; 4], Path::new("7/maps")).unwrap();
        capture.copy(endless(), Path::new("7/root/file")).unwrap();
        assert_eq!(fs::metadata(directory.path().join("7/root/file")).unwrap().len(), 6);
        assert!(capture.copy(endless(), Path::new("7/root/other")).is_err());
        capture.write(&[1; 4], Path::new("7/status")).unwrap();
        assert!(!directory.path().join("7/status").exists());
    }

    #[test]
    fn files_are_replaced_and_only_their_owner_can_read_them() {
        let (directory, capture) = capture(1 << 20);
        for text in ["first", "second"] {
            capture.write(text.as_bytes(), Path::new("7/maps")).unwrap();
        }
        let path = directory.path().join("7/maps");
        assert_eq!(fs::read(&path).unwrap(), b"second");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_written_through_a_link_or_outside() {
        let (directory, capture) = capture(1 << 20);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("victim"), "kept").unwrap();
        fs::create_dir(directory.path().join("7")).unwrap();
        symlink(outside.path().join("victim"), directory.path().join("7/maps")).unwrap();
        symlink(outside.path(), directory.path().join("8")).unwrap();
        capture.write(b"text", Path::new("7/maps")).unwrap();
        assert_eq!(fs::read(directory.path().join("7/maps")).unwrap(), b"text");
        for path in ["8/maps", "../escaped", "/escaped", "7/../../escaped", ".."] {
            assert!(capture.write(b"text", Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_in_a_capture_does_not_lead_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let capture = directory.path().join("capture");
        fs::create_dir_all(capture.join("7")).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        fs::write(capture.join("7/maps"), "text").unwrap();
        symlink("../../secret", capture.join("7/relative")).unwrap();
        symlink(directory.path().join("secret"), capture.join("7/absolute")).unwrap();
        symlink("/", capture.join("7/root")).unwrap();
        symlink(&capture, directory.path().join("link")).unwrap();
        let open = |capture: &Path, path: &str| open_inside(capture, Path::new(path), OFlags::PATH).is_ok();
        assert!(open(&capture, "7/maps") && open(&capture, ""));
        for path in ["7/relative", "7/absolute", "7/root", "7/root/etc", "../secret", "/etc/passwd"] {
            assert!(!open(&capture, path), "{path}");
        }
        assert!(!open(&directory.path().join("link"), "7/maps"));
    }

    #[test]
    fn only_the_needed_variables_are_kept() {
        let environment = b"SECRET=1\0TMPDIR=/a\0PATH=/bin\0DOTNET_PerfMapJitDumpPath=/b\0XTMPDIR=/c\0";
        assert_eq!(jit_directory_variables(environment), b"TMPDIR=/a\0DOTNET_PerfMapJitDumpPath=/b\0");
        assert_eq!(&*captured_text("environ", environment), b"TMPDIR=/a\0DOTNET_PerfMapJitDumpPath=/b\0");
        assert_eq!(&*captured_text("maps", b"SECRET=1"), b"SECRET=1");
    }
}
