//! The proc file system: the live one, or the copy of it in a capture, which has the same shape.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};

use super::{Mapping, maps, root};

/// How much of one text file of a process is read. 100,000 mappings take about 10 MiB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// How much of an environment is read, and kept as long as its process is: a process can declare any part of its
/// memory to be its environment.
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// How much of one mapped file goes into a capture.
const MAX_CAPTURED_FILE_BYTES: u64 = 256 << 20;

/// Reads what `/proc` tells of processes, and copies it into a capture when one is recorded.
#[derive(Debug)]
pub(crate) struct Proc {
    base: PathBuf,
    live: bool,
    capture: Option<PathBuf>,
}

impl Proc {
    /// The proc file system of this machine.
    pub(crate) fn live() -> Self {
        Self { base: "/proc".into(), live: true, capture: None }
    }

    /// The proc file system of this machine; what is read from it is copied to `directory`.
    pub(crate) fn captured_to(directory: PathBuf) -> Self {
        Self { base: "/proc".into(), live: true, capture: Some(directory) }
    }

    /// The copy in a capture.
    pub(crate) fn of_capture(directory: PathBuf) -> Self {
        Self { base: directory, live: false, capture: None }
    }

    /// Whether this is the machine's own: in a capture nothing belongs to the target any more.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a capture is recorded or replayed: what is not asked here is not in it.
    pub(crate) fn serves_capture(&self) -> bool {
        !self.live || self.capture.is_some()
    }

    /// A file of the proc file system that belongs to no process: `kallsyms`.
    pub(crate) fn open_global(&self, name: &str) -> io::Result<File> {
        let file = File::open(self.base.join(name))?;
        if let Some(capture) = &self.capture {
            copy(File::open(self.base.join(name))?, &capture.join(name))?;
        }
        Ok(file)
    }

    /// The text of an entry of a process: `maps`, `status`, `comm`, `stat`, `environ`.
    pub(crate) fn read(&self, pid: u32, entry: &str) -> io::Result<Vec<u8>> {
        let path = self.path(pid, entry);
        let limit_bytes = if entry == "environ" { MAX_ENVIRONMENT_BYTES } else { MAX_TEXT_BYTES };
        let mut bytes = Vec::new();
        File::open(&path)?.take(limit_bytes).read_to_end(&mut bytes)?;
        if let Some(capture) = &self.capture {
            write(&capture.join(pid.to_string()).join(entry), &bytes)?;
        }
        Ok(bytes)
    }

    /// Whether a process or thread is there.
    pub(crate) fn exists(&self, id: u32) -> bool {
        self.path(id, "").exists()
    }

    /// The ids of all processes, at most `limit`.
    pub(crate) fn processes(&self, limit: usize) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(&self.base)?.filter_map(Result::ok).map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.to_str()?.parse().ok()).take(limit).collect())
    }

    /// The root directory of a process.
    pub(crate) fn root(&self, pid: u32) -> io::Result<root::Root> {
        root::Root::open(&self.path(pid, "root"))
    }

    /// The file behind a mapping, also when it is deleted or hidden by a mount (needs
    /// `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`, proc_pid_map_files(5)).
    pub(crate) fn open_mapped(&self, pid: u32, mapping: &Mapping) -> io::Result<File> {
        let path = self.path(pid, "map_files").join(range_name(mapping));
        let fd = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        root::open_regular(fd.as_fd())
    }

    /// Puts a file that is behind a mapping into the capture, when one is recorded.
    pub(crate) fn keep_mapped(&self, pid: u32, mapping: &Mapping, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        copy_from_start(file, &capture.join(pid.to_string()).join("map_files").join(range_name(mapping)))
    }

    /// Puts a file of a process's root into the capture, when one is recorded.
    pub(crate) fn keep_in_root(&self, pid: u32, path: &Path, file: &File) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        let inside = path.strip_prefix("/").unwrap_or(path);
        copy_from_start(file, &capture.join(pid.to_string()).join("root").join(inside))
    }

    /// The code of the vdso, which is the same in every process of this machine.
    pub(crate) fn vdso(&self) -> io::Result<Vec<u8>> {
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
            write(&capture.join(NAME), &bytes)?;
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

fn copy_from_start(file: &File, to: &Path) -> io::Result<()> {
    let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
    copy(again, to)
}

fn copy(from: File, to: &Path) -> io::Result<()> {
    create_parent(to)?;
    io::copy(&mut from.take(MAX_CAPTURED_FILE_BYTES), &mut File::create(to)?)?;
    Ok(())
}

fn write(to: &Path, bytes: &[u8]) -> io::Result<()> {
    create_parent(to)?;
    fs::write(to, bytes)
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Backing;

    fn own_code(proc: &Proc) -> Mapping {
        let text = proc.read(std::process::id(), "maps").unwrap();
        let file = |mapping: &Mapping| matches!(&mapping.backing, Backing::File { .. });
        maps::parse_executable(&text).into_iter().find(file).unwrap()
    }

    #[test]
    fn a_capture_reads_like_the_live_file_system_it_was_taken_from() {
        let pid = std::process::id();
        let directory = tempfile::tempdir().unwrap();
        let live = Proc::captured_to(directory.path().to_owned());
        let mapping = own_code(&live);
        let Backing::File { path, .. } = &mapping.backing else { unreachable!() };
        let file = live.root(pid).unwrap().open_file(Path::new(&**path)).unwrap();
        live.keep_mapped(pid, &mapping, &file).unwrap();
        let vdso = live.vdso().unwrap();

        let copy = Proc::of_capture(directory.path().to_owned());
        assert_eq!(own_code(&copy), mapping);
        assert_eq!(copy.vdso().unwrap(), vdso);
        assert!(vdso.starts_with(b"\x7fELF"));
        let copied = copy.open_mapped(pid, &mapping).unwrap();
        assert_eq!(copied.metadata().unwrap().len(), file.metadata().unwrap().len());
        assert_eq!(copy.processes(10).unwrap(), [pid]);
    }

    #[test]
    fn an_environment_without_end_is_read_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let copy = Proc::of_capture(directory.path().to_owned());
        fs::create_dir(directory.path().join("7")).unwrap();
        File::create(directory.path().join("7/environ")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(copy.read(7, "environ").unwrap().len() as u64, MAX_ENVIRONMENT_BYTES);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Proc::live().read(u32::MAX, "maps").is_err());
        assert!(!Proc::live().exists(u32::MAX));
    }
}
