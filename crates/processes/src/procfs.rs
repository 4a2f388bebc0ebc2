//! Reads the proc file system of the running kernel, or its copy in a capture.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use profiler_blocking::Object;
use rustix::fs::{CWD, Mode, OFlags};

use crate::{
    Backing, Mapping, maps,
    root_directory::{self, RootDirectory},
};

/// Bytes read of one text file of a process. The text of 100,000 mappings has about 10 MiB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Bytes read of an environment, which stays in memory for as long as its process. A process can declare any part of its
/// memory to be its environment (`PR_SET_MM_ENV_START`, prctl(2)).
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// The threads whose entries are tried when the leader of a process has ended. Most often the first one lives.
const MAX_TRIED_THREADS: usize = 64;

/// Bytes of one mapped file in a capture.
const MAX_CAPTURED_FILE_BYTES: u64 = 256 << 20;

/// Bytes of all files in a capture, without the events of the BPF program.
const MAX_CAPTURE_BYTES: u64 = 4 << 30;

/// Reads entries of `/proc`. When a capture is recorded, it also copies them into the capture.
///
/// A capture has the directory layout of `/proc`.
#[derive(Debug)]
pub struct ProcFs {
    base: PathBuf,
    is_live: bool,
    capture: Option<CaptureDirectory>,
}

/// The directory of a capture that is recorded, and its byte budget.
#[derive(Debug)]
struct CaptureDirectory {
    path: PathBuf,
    remaining_bytes: AtomicU64,
}

impl ProcFs {
    /// The proc file system of the running kernel.
    pub fn live() -> Self {
        Self { base: "/proc".into(), is_live: true, capture: None }
    }

    /// The proc file system of the running kernel. All entries that are read are copied to `directory`.
    pub fn with_capture(directory: PathBuf) -> Self {
        let capture =
            CaptureDirectory { path: directory, remaining_bytes: AtomicU64::new(MAX_CAPTURE_BYTES) };
        Self { base: "/proc".into(), is_live: true, capture: Some(capture) }
    }

    /// The copy of a proc file system in a capture.
    pub fn from_capture(directory: PathBuf) -> Self {
        Self { base: directory, is_live: false, capture: None }
    }

    /// Whether this is the proc file system of the running kernel. Owner and times of files in a capture are not those of
    /// the target's files.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether a capture is recorded or replayed. Only data that is read through this type is part of the capture.
    pub fn has_capture(&self) -> bool {
        !self.is_live || self.records_capture()
    }

    /// Whether a capture is recorded.
    pub fn records_capture(&self) -> bool {
        self.capture.is_some()
    }

    /// Opens a file that belongs to no process, such as `kallsyms`.
    pub fn open_global(&self, name: &str) -> io::Result<File> {
        let file = File::open(self.base.join(name))?;
        if let Some(capture) = &self.capture {
            capture.copy(File::open(self.base.join(name))?, Path::new(name))?;
        }
        Ok(file)
    }

    /// Reads an entry of a process: `maps`, `status`, `comm`, `stat`, `environ`, `cgroup`. Of a process whose leader has
    /// ended while other threads run, `maps` and `environ` are read from one of these.
    pub fn read(&self, pid: u32, entry: &str) -> io::Result<Vec<u8>> {
        let bytes = match entry {
            // The kernel waits for a lock of the process, or reads its memory, which can be a file in user space.
            "maps" | "environ" if self.is_live => {
                let (proc, entry) = (self.base.clone(), entry.to_owned());
                profiler_blocking::run(Object::process(pid), move || read_memory_entry(&proc, pid, &entry))?
            }
            "maps" | "environ" => read_memory_entry(&self.base, pid, entry)?,
            _ => read_text(&self.path(pid, entry), MAX_TEXT_BYTES)?,
        };
        if let Some(capture) = &self.capture {
            capture.write(&bytes, &Path::new(&pid.to_string()).join(entry))?;
        }
        Ok(bytes)
    }

    /// Whether a process or thread exists.
    pub fn exists(&self, id: u32) -> bool {
        self.path(id, "").exists()
    }

    /// The ids of all processes, `limit` at most.
    pub fn processes(&self, limit: usize) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(&self.base)?.filter_map(Result::ok).map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).take(limit).collect())
    }

    /// Opens the root directory of a process.
    pub fn root(&self, pid: u32) -> io::Result<RootDirectory> {
        self.first_thread(pid, |id| RootDirectory::open(&self.path(id, "root")))
    }

    /// The path of the program of a process. A capture has none.
    pub fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        self.first_thread(pid, |id| fs::read_link(self.path(id, "exe")))
    }

    /// Opens the file of a mapping through `/proc/PID/map_files`, which also works when the file is deleted or hidden by
    /// a mount. Needs `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN` (proc_pid_map_files(5)).
    ///
    /// # Errors
    /// Those of opening; [`io::ErrorKind::NotFound`] when another file is mapped there by now.
    pub fn open_mapped(&self, pid: u32, mapping: &Mapping) -> io::Result<File> {
        let fd = self.first_thread(pid, |id| {
            let path = self.path(id, "map_files").join(map_files_entry(mapping));
            rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        })?;
        if self.is_live && !self.is_file_of(pid, mapping, fd.as_fd())? {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file is mapped there by now"));
        }
        root_directory::open_regular(fd)
    }

    /// Whether an opened file is that of a mapping. Before Linux 6.8, mappings in overlayfs show the inode of the layer
    /// below: then it is the file if the mapping is still there.
    fn is_file_of(&self, pid: u32, mapping: &Mapping, file: BorrowedFd<'_>) -> io::Result<bool> {
        let Backing::File { id, .. } = &mapping.backing else { return Ok(true) };
        if root_directory::status_of(file)?.stx_ino == id.inode {
            return Ok(true);
        }
        Ok(maps::parse_executable(&self.read(pid, "maps")?).contains(mapping))
    }

    /// Copies the file of a mapping into the capture, when one is recorded.
    pub fn capture_mapped_file(&self, pid: u32, mapping: &Mapping, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture
            .copy_from_start(file, &PathBuf::from(format!("{pid}/map_files")).join(map_files_entry(mapping)))
    }

    /// Copies a file in the root directory of a process into the capture, when one is recorded.
    pub fn capture_root_file(&self, pid: u32, path: &Path, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        let inside = path.strip_prefix("/").unwrap_or(path);
        // The target chooses the path: it must not lead out of the capture.
        if !inside.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains `..`"));
        }
        capture.copy_from_start(file, &PathBuf::from(format!("{pid}/root")).join(inside))
    }

    /// Writes an additional entry of a process, generated by the profiler, into the capture, when one is recorded.
    pub fn capture_entry(&self, pid: u32, entry: &str, text: &[u8]) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture.write(text, &Path::new(&pid.to_string()).join(entry))
    }

    /// The ELF image of the vDSO. All processes of a machine have the same one.
    pub fn vdso(&self) -> io::Result<Vec<u8>> {
        const NAME: &str = "vdso";
        if !self.is_live {
            return fs::read(self.base.join(NAME));
        }
        let own = fs::read("/proc/self/maps")?;
        let mapping = maps::parse_executable(&own)
            .into_iter()
            .find(|mapping| mapping.backing == Backing::Vdso)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let length = usize::try_from(mapping.end.0 - mapping.start.0).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, mapping.start.0)?;
        if let Some(capture) = &self.capture {
            capture.write(&bytes, Path::new(NAME))?;
        }
        Ok(bytes)
    }

    /// The result for the first thread that has one: a leader that has ended has neither memory nor a root directory.
    fn first_thread<T, E>(&self, pid: u32, attempt: impl Fn(u32) -> Result<T, E>) -> Result<T, E> {
        let of_other = |error| other_threads(&self.base, pid).find_map(|tid| attempt(tid).ok()).ok_or(error);
        attempt(pid).or_else(of_other)
    }

    fn path(&self, pid: u32, entry: &str) -> PathBuf {
        entry_path(&self.base, pid, entry)
    }
}

fn entry_path(proc: &Path, pid: u32, entry: &str) -> PathBuf {
    proc.join(pid.to_string()).join(entry)
}

/// The threads of a process besides its leader, [`MAX_TRIED_THREADS`] at most.
fn other_threads(proc: &Path, pid: u32) -> impl Iterator<Item = u32> {
    let names = fs::read_dir(entry_path(proc, pid, "task")).into_iter().flatten().filter_map(Result::ok);
    let ids = names.filter_map(|name| name.file_name().to_str()?.parse().ok());
    ids.filter(move |tid| *tid != pid).take(MAX_TRIED_THREADS)
}

/// Reads `maps` or `environ`, of another thread when the leader has ended.
fn read_memory_entry(proc: &Path, pid: u32, entry: &str) -> io::Result<Vec<u8>> {
    let limit_bytes = if entry == "environ" { MAX_ENVIRONMENT_BYTES } else { MAX_TEXT_BYTES };
    let read = |id| read_text(&entry_path(proc, id, entry), limit_bytes);
    let bytes = read(pid)?;
    if !bytes.is_empty() {
        return Ok(bytes);
    }
    let of_threads = other_threads(proc, pid).filter_map(|tid| read(tid).ok());
    Ok({ of_threads }.find(|bytes| !bytes.is_empty()).unwrap_or_default())
}

fn read_text(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit_bytes).read_to_end(&mut bytes).map(|_| bytes)
}

/// The name of a mapping's entry in `/proc/PID/map_files`.
fn map_files_entry(mapping: &Mapping) -> String {
    format!("{:x}-{:x}", mapping.start, mapping.end)
}

impl CaptureDirectory {
    fn copy_from_start(&self, file: &File, to: &Path) -> io::Result<()> {
        let reopened = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
        self.copy(reopened, to)
    }

    fn copy(&self, from: File, to: &Path) -> io::Result<()> {
        let remaining_bytes = self.remaining_bytes.load(Ordering::Relaxed);
        if remaining_bytes == 0 {
            return Err(io::Error::other("the byte budget of the capture is exceeded"));
        }
        let limit_bytes = MAX_CAPTURED_FILE_BYTES.min(remaining_bytes);
        let copied = io::copy(&mut from.take(limit_bytes), &mut self.create(to)?)?;
        self.remaining_bytes.store(remaining_bytes - copied, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a text. An exceeded budget is not an error, because the caller needs the text even when the capture lacks
    /// it.
    fn write(&self, bytes: &[u8], to: &Path) -> io::Result<()> {
        let remaining_bytes = self.remaining_bytes.load(Ordering::Relaxed).checked_sub(bytes.len() as u64);
        let Some(remaining_bytes) = remaining_bytes else {
            log::warn!("the capture lacks `{}`: its byte budget is exceeded", to.display());
            return Ok(());
        };
        self.create(to)?.write_all(bytes)?;
        self.remaining_bytes.store(remaining_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn create(&self, to: &Path) -> io::Result<File> {
        let path = self.path.join(to);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_file_mapping(proc: &ProcFs) -> Mapping {
        let text = proc.read(std::process::id(), "maps").unwrap();
        let file = |mapping: &Mapping| matches!(&mapping.backing, Backing::File { .. });
        maps::parse_executable(&text).into_iter().find(file).unwrap()
    }

    #[test]
    fn a_file_that_has_replaced_another_one_is_not_opened() {
        let proc = ProcFs::live();
        let mut mapping = first_file_mapping(&proc);
        assert!(proc.open_mapped(std::process::id(), &mapping).is_ok());
        let Backing::File { id, .. } = &mut mapping.backing else { unreachable!() };
        id.inode += 1;
        let error = proc.open_mapped(std::process::id(), &mapping).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_capture_reads_like_the_live_file_system_it_was_taken_from() {
        let pid = std::process::id();
        let directory = tempfile::tempdir().unwrap();
        let live = ProcFs::with_capture(directory.path().to_owned());
        let mapping = first_file_mapping(&live);
        let Backing::File { path, .. } = &mapping.backing else { unreachable!() };
        let file = live.root(pid).unwrap().open_file(Path::new(&**path)).unwrap();
        live.capture_mapped_file(pid, &mapping, &file).unwrap();
        live.capture_entry(pid, "extra", b"text").unwrap();
        let vdso = live.vdso().unwrap();

        let copy = ProcFs::from_capture(directory.path().to_owned());
        assert_eq!(first_file_mapping(&copy), mapping);
        assert_eq!(copy.read(pid, "extra").unwrap(), b"text");
        assert_eq!(copy.vdso().unwrap(), vdso);
        assert!(vdso.starts_with(b"\x7fELF"));
        let copied = copy.open_mapped(pid, &mapping).unwrap();
        assert_eq!(copied.metadata().unwrap().len(), file.metadata().unwrap().len());
        assert_eq!(copy.processes(10).unwrap(), [pid]);
    }

    #[test]
    fn an_exceeded_capture_budget_does_not_make_reads_fail() {
        let directory = tempfile::tempdir().unwrap();
        let capture =
            CaptureDirectory { path: directory.path().to_owned(), remaining_bytes: AtomicU64::new(10) };
        let endless = || File::open("/dev/zero").unwrap();
        capture.write(&[1; 4], Path::new("7/maps")).unwrap();
        capture.copy(endless(), Path::new("7/root/file")).unwrap();
        assert_eq!(fs::metadata(directory.path().join("7/root/file")).unwrap().len(), 6);
        assert!(capture.copy(endless(), Path::new("7/root/other")).is_err());
        let full = ProcFs { base: "/proc".into(), is_live: true, capture: Some(capture) };
        let pid = std::process::id();
        assert!(!full.read(pid, "maps").unwrap().is_empty());
        assert!(!directory.path().join(pid.to_string()).exists());
    }

    #[test]
    fn no_file_is_written_outside_a_capture() {
        let directory = tempfile::tempdir().unwrap();
        let proc = ProcFs::with_capture(directory.path().join("proc"));
        let file = File::open("/proc/self/exe").unwrap();
        for path in ["/../../../escaped", "/tmp/../../../../escaped", "../../../escaped"] {
            assert!(proc.capture_root_file(7, Path::new(path), &file).is_err());
        }
        proc.capture_root_file(7, Path::new("/tmp/kept"), &file).unwrap();
        assert!(directory.path().join("proc/7/root/tmp/kept").exists());
        assert!(!directory.path().join("escaped").exists());
    }

    #[test]
    fn an_environment_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let copy = ProcFs::from_capture(directory.path().to_owned());
        fs::create_dir(directory.path().join("7")).unwrap();
        File::create(directory.path().join("7/environ")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(copy.read(7, "environ").unwrap().len() as u64, MAX_ENVIRONMENT_BYTES);
    }

    #[test]
    fn reading_an_entry_of_a_missing_process_is_an_error() {
        assert!(ProcFs::live().read(u32::MAX, "maps").is_err());
        assert!(!ProcFs::live().exists(u32::MAX));
    }
}
