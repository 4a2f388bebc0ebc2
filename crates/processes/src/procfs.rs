//! Reads the proc file system of the running kernel, or its copy in a capture.

use std::{
    fmt::Display,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use profiler_addresses::RuntimeAddress;
use profiler_blocking::Object;
use rustix::fs::{CWD, Mode, OFlags};

use crate::{
    Backing, LookupError, Mapping, Pid, Process, Tid,
    capture::{self, CaptureDirectory, captured_text},
    maps,
    root_directory::{self, RootDirectory},
    status,
};

/// Bytes read of one text file of a process. The text of 100,000 mappings has about 10 MiB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Bytes read of an environment, which stays in memory for as long as its process. A process can declare any part of its
/// memory to be its environment (`PR_SET_MM_ENV_START`, prctl(2)).
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// Bytes read of a command line. Names and error messages need its beginning.
const MAX_COMMAND_LINE_BYTES: u64 = 64 << 10;

/// Bytes read of the other entries of a process. A line of `status` lists up to 65,536 groups.
const MAX_SHORT_ENTRY_BYTES: u64 = 1 << 20;

/// The threads whose entries are tried when the leader of a process has ended. Most often the first one lives.
const MAX_TRIED_THREADS: usize = 64;

/// Open files that are counted one by one: the default of `fs.nr_open` (proc_sys_fs(5)).
const MAX_COUNTED_FILES: usize = 1 << 20;

/// Bytes of a process's memory that are read at once.
const MAX_MEMORY_BYTES: usize = 64 << 10;

/// Bytes read of the vDSO in a capture. That of the kernel has 8 KiB.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// Reads entries of `/proc`. When a capture is recorded, it also copies them into the capture.
///
/// A capture has the directory layout of `/proc`.
#[derive(Debug)]
pub struct ProcFs {
    entries: Entries,
    capture: Option<CaptureDirectory>,
}

/// The directory with the entries.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    base: PathBuf,
    is_live: bool,
}

impl ProcFs {
    /// The proc file system of the running kernel.
    pub fn live() -> Self {
        Self { entries: Entries::live(), capture: None }
    }

    /// The proc file system of the running kernel. All entries that are read are copied to an open directory, which no
    /// other user can write to.
    pub fn with_capture(directory: OwnedFd) -> Self {
        Self { entries: Entries::live(), capture: Some(CaptureDirectory::new(directory)) }
    }

    /// The copy of a proc file system in a capture.
    pub fn from_capture(directory: PathBuf) -> Self {
        Self { entries: Entries { base: directory, is_live: false }, capture: None }
    }

    /// Whether this is the proc file system of the running kernel. Owner and times of files in a capture are not those of
    /// the target's files.
    pub fn is_live(&self) -> bool {
        self.entries.is_live
    }

    /// Whether a capture is recorded or replayed. Only data that is read through this type is part of the capture.
    pub fn has_capture(&self) -> bool {
        !self.entries.is_live || self.records_capture()
    }

    /// Whether a capture is recorded.
    pub fn records_capture(&self) -> bool {
        self.capture.is_some()
    }

    /// Opens a file that belongs to no process, such as `kallsyms`.
    pub fn open_global(&self, name: &str) -> io::Result<File> {
        let file = self.entries.open(Path::new(name))?;
        if let Some(capture) = &self.capture {
            capture.copy(self.entries.open(Path::new(name))?, Path::new(name))?;
        }
        Ok(file)
    }

    /// Reads an entry of a process: `maps`, `status`, `comm`, `stat`, `environ`, `cgroup`, `cmdline`. Of a process whose
    /// leader has ended while other threads run, `maps`, `environ` and `cmdline` are read from one of these.
    pub fn read(&self, pid: Pid, entry: &str) -> io::Result<Vec<u8>> {
        let bytes = match entry {
            // The kernel waits for a lock of the process, or reads its memory, which can be a file in user space.
            "maps" | "environ" | "cmdline" if self.entries.is_live => {
                let (entries, entry) = (self.entries.clone(), entry.to_owned());
                profiler_blocking::run(Object::process(pid.0), move || {
                    entries.read_of_any_thread(pid, &entry)
                })?
            }
            "maps" | "environ" | "cmdline" => self.entries.read_of_any_thread(pid, entry)?,
            _ => self.entries.read(&relative(pid, entry), max_bytes(entry))?,
        };
        self.captured(&relative(pid, entry), entry, bytes)
    }

    /// Reads an entry of a thread whose process is not known: `status`, `comm`.
    pub fn read_of_thread(&self, tid: Tid, entry: &str) -> io::Result<Vec<u8>> {
        let path = relative(tid, entry);
        let bytes = self.entries.read(&path, max_bytes(entry))?;
        self.captured(&path, entry, bytes)
    }

    /// Adds what was read of an entry to the capture, when one is recorded.
    fn captured(&self, path: &Path, entry: &str, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        if let Some(capture) = &self.capture {
            capture.write(&captured_text(entry, &bytes), path)?;
        }
        Ok(bytes)
    }

    /// Whether a thread exists. One that cannot be examined exists, too.
    pub fn exists(&self, tid: Tid) -> bool {
        let opened = self.entries.open_path(&relative(tid, ""), OFlags::PATH);
        opened.map_or_else(|error| LookupError::from_io(&error) != LookupError::ProcessGone, |_| true)
    }

    /// The ids of all processes, `limit` at most.
    pub fn processes(&self, limit: usize) -> io::Result<Vec<Pid>> {
        Ok(self.entries.numbers_in(Path::new(""))?.map(Pid).take(limit).collect())
    }

    /// The ids of the threads of a process, `limit` at most.
    pub fn threads(&self, pid: Pid, limit: usize) -> io::Result<Vec<Tid>> {
        Ok(self.entries.numbers_in(&relative(pid, "task"))?.map(Tid).take(limit).collect())
    }

    /// The number of open file descriptors of a process, at most 1,048,576 before Linux 6.2. Needs the
    /// permission to examine the process there (ptrace(2)).
    pub fn open_files(&self, pid: Pid) -> io::Result<u64> {
        let directory = relative(pid, "fd");
        if self.entries.is_live {
            // From Linux 6.2 on, the size of the directory is the number of its entries; before, it was 0
            // (proc_pid_fd(5)).
            let files = fs::metadata(self.entries.base.join(&directory))?.len();
            if files > 0 {
                return Ok(files);
            }
        }
        Ok(self.entries.numbers_in(&directory)?.take(MAX_COUNTED_FILES).count() as u64)
    }

    /// Opens the root directory of a process.
    pub fn root(&self, pid: Pid) -> io::Result<RootDirectory> {
        self.first_thread(pid, |tid| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            self.entries.open_path(&relative(tid, "root"), flags).map(RootDirectory::from_open)
        })
    }

    /// The path of the program of a process. A capture has none.
    pub fn executable(&self, pid: Pid) -> io::Result<PathBuf> {
        self.link(pid, "exe")
    }

    /// The working directory of a process, as `/proc/PID/cwd` shows it: a path in its root directory.
    ///
    /// # Errors
    /// The process has ended, or the privilege is missing.
    pub fn working_directory(&self, pid: Pid) -> io::Result<PathBuf> {
        self.link(pid, "cwd")
    }

    fn link(&self, pid: Pid, name: &str) -> io::Result<PathBuf> {
        if !self.entries.is_live {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.first_thread(pid, |tid| fs::read_link(self.entries.base.join(relative(tid, name))))
    }

    /// Opens the file of a mapping through `/proc/PID/map_files`, which also works when the file is deleted or hidden by
    /// a mount. Needs `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN` (proc_pid_map_files(5)).
    ///
    /// # Errors
    /// Those of opening; [`io::ErrorKind::NotFound`] when another file is mapped there by now.
    pub fn open_mapped(&self, pid: Pid, mapping: &Mapping) -> io::Result<File> {
        let fd = self.first_thread(pid, |tid| {
            self.entries.open_path(&relative(tid, "map_files").join(map_files_entry(mapping)), OFlags::PATH)
        })?;
        if self.entries.is_live && !self.is_file_of(pid, mapping, fd.as_fd())? {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file is mapped there by now"));
        }
        root_directory::open_regular(fd)
    }

    /// Whether an opened file is that of a mapping. Before Linux 6.8, mappings in overlayfs show the inode of the layer
    /// below: then it is the file if the mapping is still there.
    fn is_file_of(&self, pid: Pid, mapping: &Mapping, file: BorrowedFd<'_>) -> io::Result<bool> {
        let Backing::File { id, .. } = &mapping.backing else { return Ok(true) };
        if root_directory::status_of(file)?.stx_ino == id.inode {
            return Ok(true);
        }
        Ok(maps::parse_executable(&self.read(pid, "maps")?).contains(mapping))
    }

    /// Reads memory of a running process, or what was read last at the address while a capture was recorded.
    ///
    /// # Errors
    /// Those of reading; [`io::ErrorKind::NotFound`] when another process has the PID by now, and where a capture does not have
    /// the memory.
    pub fn read_memory(
        &self,
        process: &Process,
        address: RuntimeAddress,
        bytes: usize,
    ) -> io::Result<Vec<u8>> {
        if bytes > MAX_MEMORY_BYTES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (entries, pid) = (self.entries.clone(), process.pid);
        let captured = relative(pid, "memory").join(format!("{address:x}-{bytes:x}"));
        if !entries.is_live {
            let memory = entries.read(&captured, bytes as u64)?;
            return if memory.len() == bytes { Ok(memory) } else { Err(io::ErrorKind::NotFound.into()) };
        }
        // The memory can be that of a file in user space.
        let memory =
            profiler_blocking::run(Object::process(pid.0), move || entries.read_memory(pid, address, bytes))?;
        self.check_is_running(process)?;
        if let Some(capture) = &self.capture {
            capture.write(&memory, &captured)?;
        }
        Ok(memory)
    }

    /// Opens the memory of a running process for many reads. It stays that of this process, and a read of it can block: see
    /// [`profiler_blocking::run`]. Where a capture is recorded, the caller adds what it reads to it
    /// ([`capture_entry`](Self::capture_entry)).
    ///
    /// # Errors
    /// Those of opening; [`io::ErrorKind::NotFound`] when another process has the PID by now,
    /// [`io::ErrorKind::Unsupported`] where a capture is replayed.
    pub fn open_memory(&self, process: &Process) -> io::Result<File> {
        if !self.entries.is_live {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (entries, pid) = (self.entries.clone(), process.pid);
        let memory = profiler_blocking::run(Object::process(pid.0), move || entries.open_memory(pid))?;
        self.check_is_running(process)?;
        Ok(memory)
    }

    /// The directory with the entries.
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The number of threads of a process: a directory has links from itself, its parent, and each directory in it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn thread_count(&self, pid: Pid) -> io::Result<usize> {
        let links = fs::metadata(self.entries.base.join(relative(pid, "task")))?.nlink();
        Ok(usize::try_from(links.saturating_sub(2)).unwrap_or(usize::MAX))
    }

    /// Checks that no other process has the PID by now.
    pub(crate) fn check_is_running(&self, process: &Process) -> io::Result<()> {
        let stat = self.entries.read(&relative(process.pid, "stat"), MAX_TEXT_BYTES)?;
        let start_ticks = status::parse_start_ticks(&String::from_utf8_lossy(&stat));
        let is_same = process.identity.as_ref().is_some_and(|known| Some(known.start_ticks) == start_ticks);
        if is_same && !process.has_ended() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Copies the file of a mapping into the capture, when one is recorded.
    pub fn capture_mapped_file(&self, pid: Pid, mapping: &Mapping, file: &Arc<File>) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture
            .copy_from_start(file, &PathBuf::from(format!("{pid}/map_files")).join(map_files_entry(mapping)))
    }

    /// Copies a file in the root directory of a process into the capture, when one is recorded.
    pub fn capture_root_file(&self, pid: Pid, path: &Path, file: &Arc<File>) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        let inside = path.strip_prefix("/").unwrap_or(path);
        // The target chooses the path: it must not lead out of the capture.
        if !inside.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains `..`"));
        }
        capture.copy_from_start(file, &PathBuf::from(format!("{pid}/root")).join(inside))
    }

    /// Writes an additional entry of a process, generated by the profiler, into the capture, when one is recorded.
    pub fn capture_entry(&self, pid: Pid, entry: &str, text: &[u8]) -> io::Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        capture.write(text, &relative(pid, entry))
    }

    /// The ELF image of the vDSO. All processes of a machine have the same one.
    pub fn vdso(&self) -> io::Result<Vec<u8>> {
        const NAME: &str = "vdso";
        if !self.entries.is_live {
            let mut bytes = Vec::new();
            self.entries.open(Path::new(NAME))?.take(MAX_VDSO_BYTES).read_to_end(&mut bytes)?;
            return Ok(bytes);
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
    fn first_thread<T, E>(&self, pid: Pid, attempt: impl Fn(Tid) -> Result<T, E>) -> Result<T, E> {
        let of_other = |error| self.entries.other_threads(pid).find_map(|tid| attempt(tid).ok()).ok_or(error);
        attempt(Tid::leader_of(pid)).or_else(of_other)
    }
}

impl Entries {
    fn live() -> Self {
        Self { base: "/proc".into(), is_live: true }
    }

    /// Reads an entry of the first thread that has it: a leader that has ended has no memory.
    fn read_of_any_thread(&self, pid: Pid, entry: &str) -> io::Result<Vec<u8>> {
        let limit_bytes = max_bytes(entry);
        let bytes = self.read(&relative(pid, entry), limit_bytes)?;
        if !bytes.is_empty() {
            return Ok(bytes);
        }
        let read = |tid| self.read(&relative(tid, entry), limit_bytes).ok();
        let of_threads = self.other_threads(pid).filter_map(read);
        Ok({ of_threads }.find(|bytes| !bytes.is_empty()).unwrap_or_default())
    }

    /// Reads memory of a process through the first of its threads that has it.
    pub(crate) fn read_memory(&self, pid: Pid, address: RuntimeAddress, bytes: usize) -> io::Result<Vec<u8>> {
        let read = |tid| {
            let mut memory = vec![0; bytes];
            self.open(&relative(tid, "mem"))?.read_exact_at(&mut memory, address.0)?;
            Ok(memory)
        };
        read(Tid::leader_of(pid))
            .or_else(|error| self.other_threads(pid).find_map(|tid| read(tid).ok()).ok_or(error))
    }

    /// Opens the memory of a process through the first of its threads that has it.
    fn open_memory(&self, pid: Pid) -> io::Result<File> {
        let open = |tid| {
            let memory = self.open(&relative(tid, "mem"))?;
            // That of a thread that has ended is empty: else, nothing is mapped there.
            match memory.read_at(&mut [0], 0) {
                Ok(0) => Err(io::Error::from(io::ErrorKind::NotFound)),
                _ => Ok(memory),
            }
        };
        open(Tid::leader_of(pid))
            .or_else(|error| self.other_threads(pid).find_map(|tid| open(tid).ok()).ok_or(error))
    }

    pub(crate) fn read(&self, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(limit_bytes).read_to_end(&mut bytes).map(|_| bytes)
    }

    /// The threads of a process besides its leader, [`MAX_TRIED_THREADS`] at most.
    fn other_threads(&self, pid: Pid) -> impl Iterator<Item = Tid> {
        let tids = self.numbers_in(&relative(pid, "task")).into_iter().flatten().map(Tid);
        tids.filter(move |tid| !tid.is_leader_of(pid)).take(MAX_TRIED_THREADS)
    }

    /// The text of a symbolic link: `socket:[4711]` of a descriptor.
    pub(crate) fn link(&self, path: &Path) -> io::Result<PathBuf> {
        if self.is_live { fs::read_link(self.base.join(path)) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// The permissions of a symbolic link: those of a descriptor are to read or to write (proc_pid_fd(5)).
    pub(crate) fn link_mode(&self, path: &Path) -> io::Result<u32> {
        if !self.is_live {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(fs::symlink_metadata(self.base.join(path))?.mode())
    }

    /// The numbers among the names in a directory.
    pub(crate) fn numbers_in(&self, directory: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
        let opened = self.open_path(directory, OFlags::PATH | OFlags::DIRECTORY)?;
        let names = fs::read_dir(capture::path_of(opened.as_fd()))?.filter_map(Result::ok);
        Ok(names.filter_map(|name| name.file_name().to_str()?.parse().ok()))
    }

    /// Opens an entry for reading.
    fn open(&self, path: &Path) -> io::Result<File> {
        if self.is_live {
            return File::open(self.base.join(path));
        }
        root_directory::open_regular(self.open_path(path, OFlags::PATH)?)
    }

    fn open_path(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if self.is_live {
            let path = self.base.join(path);
            return Ok(rustix::fs::openat(CWD, &path, flags | OFlags::CLOEXEC, Mode::empty())?);
        }
        capture::open_inside(&self.base, path, flags)
    }
}

/// The bytes that are read of an entry of a process. In a capture it can be a file of any length.
fn max_bytes(entry: &str) -> u64 {
    match entry {
        "environ" => MAX_ENVIRONMENT_BYTES,
        "cmdline" => MAX_COMMAND_LINE_BYTES,
        "cgroup" | "comm" | "stat" | "status" => MAX_SHORT_ENTRY_BYTES,
        _ => MAX_TEXT_BYTES,
    }
}

/// The path of an entry of a process or thread, below `/proc`.
fn relative(id: impl Display, entry: &str) -> PathBuf {
    Path::new(&id.to_string()).join(entry)
}

/// The name of a mapping's entry in `/proc/PID/map_files`.
fn map_files_entry(mapping: &Mapping) -> String {
    format!("{:x}-{:x}", mapping.start, mapping.end)
}

#[cfg(test)]
mod tests;
