//! The proc file system: the live one, or the copy of it in a capture, which has the same shape.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::fs::{CWD, Mode, OFlags};

use super::{Mapping, maps, root_directory};

/// How much of one text file of a process is read. 100,000 mappings take about 10 MiB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// How much of an environment is read, and kept as long as its process is: a process can declare any part of its
/// memory to be its environment.
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// How much of one mapped file goes into a capture.
const MAX_CAPTURED_FILE_BYTES: u64 = 256 << 20;

/// How much goes into a capture in all, beside what came from the kernel.
const MAX_CAPTURE_BYTES: u64 = 4 << 30;

/// Reads what `/proc` tells of processes, and copies it into a capture when one is recorded.
#[derive(Debug)]
pub struct ProcFs {
    base: PathBuf,
    live: bool,
    capture: Option<Copies>,
}

/// What is put into a capture that is recorded.
#[derive(Debug)]
struct Copies {
    directory: PathBuf,
    left_bytes: AtomicU64,
}

impl ProcFs {
    /// The proc file system of this machine.
    pub fn live() -> Self {
        Self { base: "/proc".into(), live: true, capture: None }
    }

    /// The proc file system of this machine; what is read from it is copied to `directory`.
    pub fn captured_to(directory: PathBuf) -> Self {
        let copies = Copies { directory, left_bytes: AtomicU64::new(MAX_CAPTURE_BYTES) };
        Self { base: "/proc".into(), live: true, capture: Some(copies) }
    }

    /// The copy in a capture.
    pub fn of_capture(directory: PathBuf) -> Self {
        Self { base: directory, live: false, capture: None }
    }

    /// Whether this is the machine's own: in a capture nothing belongs to the target any more.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a capture is recorded or replayed: what is not asked here is not in it.
    pub fn serves_capture(&self) -> bool {
        !self.live || self.records_capture()
    }

    /// Whether a capture is recorded.
    pub fn records_capture(&self) -> bool {
        self.capture.is_some()
    }

    /// A file of the proc file system that belongs to no process: `kallsyms`.
    pub fn open_global(&self, name: &str) -> io::Result<File> {
        let file = File::open(self.base.join(name))?;
        if let Some(capture) = &self.capture {
            capture.copy(File::open(self.base.join(name))?, Path::new(name))?;
        }
        Ok(file)
    }

    /// The text of an entry of a process: `maps`, `status`, `comm`, `stat`, `environ`.
    pub fn read(&self, pid: u32, entry: &str) -> io::Result<Vec<u8>> {
        let path = self.path(pid, entry);
        let limit_bytes = if entry == "environ" { MAX_ENVIRONMENT_BYTES } else { MAX_TEXT_BYTES };
        let mut bytes = Vec::new();
        File::open(&path)?.take(limit_bytes).read_to_end(&mut bytes)?;
        if let Some(capture) = &self.capture {
            capture.write(&bytes, &Path::new(&pid.to_string()).join(entry))?;
        }
        Ok(bytes)
    }

    /// Whether a process or thread is there.
    pub fn exists(&self, id: u32) -> bool {
        self.path(id, "").exists()
    }

    /// The ids of all processes, at most `limit`.
    pub fn processes(&self, limit: usize) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(&self.base)?.filter_map(Result::ok).map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).take(limit).collect())
    }

    /// The root directory of a process.
    pub fn root(&self, pid: u32) -> io::Result<root_directory::RootDirectory> {
        root_directory::RootDirectory::open(&self.path(pid, "root"))
    }

    /// The file behind a mapping, also when it is deleted or hidden by a mount (needs
    /// `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`, proc_pid_map_files(5)).
    pub fn open_mapped(&self, pid: u32, mapping: &Mapping) -> io::Result<File> {
        let path = self.path(pid, "map_files").join(range_name(mapping));
        let fd = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        root_directory::open_regular(fd.as_fd())
    }

    /// Puts a file that is behind a mapping into the capture, when one is recorded.
    pub fn keep_mapped(&self, pid: u32, mapping: &Mapping, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture.copy_from_start(file, &PathBuf::from(format!("{pid}/map_files")).join(range_name(mapping)))
    }

    /// Puts a file of a process's root into the capture, when one is recorded.
    pub fn keep_in_root(&self, pid: u32, path: &Path, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        let inside = path.strip_prefix("/").unwrap_or(path);
        // The target names its files: none of them may be put beside the capture.
        if !inside.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads upwards"));
        }
        capture.copy_from_start(file, &PathBuf::from(format!("{pid}/root")).join(inside))
    }

    /// Puts a text of the profiler's own making beside the entries of a process, when a capture is recorded.
    pub fn keep(&self, pid: u32, entry: &str, text: &[u8]) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture.write(text, &Path::new(&pid.to_string()).join(entry))
    }

    /// The code of the vdso, which is the same in every process of this machine.
    pub fn vdso(&self) -> io::Result<Vec<u8>> {
        const NAME: &str = "vdso";
        if !self.live {
            return fs::read(self.base.join(NAME));
        }
        let own = fs::read("/proc/self/maps")?;
        let mapping = maps::parse_executable(&own)
            .into_iter()
            .find(|mapping| mapping.backing == super::Backing::Vdso)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let length = usize::try_from(mapping.end.0 - mapping.start.0).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        File::open("/proc/self/mem")?.read_exact_at(&mut bytes, mapping.start.0)?;
        if let Some(capture) = &self.capture {
            capture.write(&bytes, Path::new(NAME))?;
        }
        Ok(bytes)
    }

    fn path(&self, pid: u32, entry: &str) -> PathBuf {
        self.base.join(pid.to_string()).join(entry)
    }
}

/// As `/proc/PID/map_files` names its entries.
fn range_name(mapping: &Mapping) -> String {
    format!("{:x}-{:x}", mapping.start, mapping.end)
}

impl Copies {
    fn copy_from_start(&self, file: &File, to: &Path) -> io::Result<()> {
        let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
        self.copy(again, to)
    }

    fn copy(&self, from: File, to: &Path) -> io::Result<()> {
        let left_bytes = self.left_bytes.load(Ordering::Relaxed);
        if left_bytes == 0 {
            return Err(io::Error::other("the capture is full"));
        }
        let limit_bytes = MAX_CAPTURED_FILE_BYTES.min(left_bytes);
        let copied = io::copy(&mut from.take(limit_bytes), &mut self.create(to)?)?;
        self.left_bytes.store(left_bytes - copied, Ordering::Relaxed);
        Ok(())
    }

    /// Who reads a text needs it, whether or not the capture has room for it.
    fn write(&self, bytes: &[u8], to: &Path) -> io::Result<()> {
        let left_bytes = self.left_bytes.load(Ordering::Relaxed).checked_sub(bytes.len() as u64);
        let Some(left_bytes) = left_bytes else {
            log::warn!("the capture lacks `{}`: it is full", to.display());
            return Ok(());
        };
        self.create(to)?.write_all(bytes)?;
        self.left_bytes.store(left_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn create(&self, to: &Path) -> io::Result<File> {
        let path = self.directory.join(to);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backing;

    fn own_code(proc: &ProcFs) -> Mapping {
        let text = proc.read(std::process::id(), "maps").unwrap();
        let file = |mapping: &Mapping| matches!(&mapping.backing, Backing::File { .. });
        maps::parse_executable(&text).into_iter().find(file).unwrap()
    }

    #[test]
    fn a_capture_reads_like_the_live_file_system_it_was_taken_from() {
        let pid = std::process::id();
        let directory = tempfile::tempdir().unwrap();
        let live = ProcFs::captured_to(directory.path().to_owned());
        let mapping = own_code(&live);
        let Backing::File { path, .. } = &mapping.backing else { unreachable!() };
        let file = live.root(pid).unwrap().open_file(Path::new(&**path)).unwrap();
        live.keep_mapped(pid, &mapping, &file).unwrap();
        live.keep(pid, "told", b"text").unwrap();
        let vdso = live.vdso().unwrap();

        let copy = ProcFs::of_capture(directory.path().to_owned());
        assert_eq!(own_code(&copy), mapping);
        assert_eq!(copy.read(pid, "told").unwrap(), b"text");
        assert_eq!(copy.vdso().unwrap(), vdso);
        assert!(vdso.starts_with(b"\x7fELF"));
        let copied = copy.open_mapped(pid, &mapping).unwrap();
        assert_eq!(copied.metadata().unwrap().len(), file.metadata().unwrap().len());
        assert_eq!(copy.processes(10).unwrap(), [pid]);
    }

    #[test]
    fn a_capture_that_is_full_takes_no_more_and_keeps_nobody_from_reading() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Copies { directory: directory.path().to_owned(), left_bytes: AtomicU64::new(10) };
        let endless = || File::open("/dev/zero").unwrap();
        copies.write(&[1; 4], Path::new("7/maps")).unwrap();
        copies.copy(endless(), Path::new("7/root/file")).unwrap();
        assert_eq!(fs::metadata(directory.path().join("7/root/file")).unwrap().len(), 6);
        assert!(copies.copy(endless(), Path::new("7/root/other")).is_err());
        let full = ProcFs { base: "/proc".into(), live: true, capture: Some(copies) };
        let pid = std::process::id();
        assert!(!full.read(pid, "maps").unwrap().is_empty());
        assert!(!directory.path().join(pid.to_string()).exists());
    }

    #[test]
    fn no_file_is_put_beside_a_capture() {
        let directory = tempfile::tempdir().unwrap();
        let proc = ProcFs::captured_to(directory.path().join("proc"));
        let file = File::open("/proc/self/exe").unwrap();
        for path in ["/../../../escaped", "/tmp/../../../../escaped", "../../../escaped"] {
            assert!(proc.keep_in_root(7, Path::new(path), &file).is_err());
        }
        proc.keep_in_root(7, Path::new("/tmp/kept"), &file).unwrap();
        assert!(directory.path().join("proc/7/root/tmp/kept").exists());
        assert!(!directory.path().join("escaped").exists());
    }

    #[test]
    fn an_environment_without_end_is_read_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let copy = ProcFs::of_capture(directory.path().to_owned());
        fs::create_dir(directory.path().join("7")).unwrap();
        File::create(directory.path().join("7/environ")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(copy.read(7, "environ").unwrap().len() as u64, MAX_ENVIRONMENT_BYTES);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(ProcFs::live().read(u32::MAX, "maps").is_err());
        assert!(!ProcFs::live().exists(u32::MAX));
    }
}
