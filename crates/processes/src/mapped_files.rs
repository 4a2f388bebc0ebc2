//! Opens the files of mappings: one descriptor of each file, however many readers use it.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use thiserror::Error;

use crate::{
    Backing, FileId, FileVersion, Mapping, Pid, ProcFs, error::is_open_files_limit,
    root_directory::RootDirectory,
};

/// The number of open files from which on closed ones are dropped from the table.
const MIN_FILES_TO_SWEEP: usize = 64;

/// The open files of mappings.
#[derive(Debug)]
pub struct MappedFiles {
    proc: Arc<ProcFs>,
    host: Arc<RootDirectory>,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<FileVersion, Weak<File>>,
    /// The number of files at which closed ones are dropped.
    sweep_at: usize,
}

/// An open file of a mapping.
#[derive(Clone, Debug)]
pub struct MappedFile {
    /// The file itself.
    pub file: Arc<File>,
    /// Identifies the file and its contents.
    pub version: FileVersion,
}

/// Why the file of a mapping cannot be opened.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// There is no file at the path of the mapping.
    #[error("the file does not exist")]
    Missing,
    /// Another file is at the path of the mapping by now.
    #[error("the file was replaced")]
    Replaced,
    /// The path is not that of a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// The profiler has no permission to read the file.
    #[error("no permission to read the file")]
    NotReadable,
    /// Opening the file did not end in time, or another process holds a lease on it.
    #[error("the file could not be opened in time")]
    TimedOut,
    /// The limit of open files of the profiler or of the system is reached.
    #[error("too many open files")]
    TooManyOpenFiles,
}

impl OpenError {
    /// Whether the same file may be opened at a later time.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::TimedOut | Self::TooManyOpenFiles)
    }
}

/// The process that has a mapping.
#[derive(Clone, Copy, Debug)]
pub struct MappingOwner<'a> {
    /// Its id; `None` when it has ended.
    pub pid: Option<Pid>,
    /// Its root directory, where it is known.
    pub root: Option<&'a RootDirectory>,
}

impl MappedFiles {
    /// Opens the files of processes in `proc`; those of processes that have ended, in the root directory `host`.
    pub fn new(proc: Arc<ProcFs>, host: Arc<RootDirectory>) -> Self {
        Self { proc, host, open: Mutex::default() }
    }

    /// Opens the mapped file itself; else the file at the path of the mapping, in the root directory of the process or of
    /// the host, when it has the same inode. The device is not compared: btrfs and overlayfs show another one in mappings.
    ///
    /// # Errors
    /// When the file cannot be opened, or the mapping has none.
    pub fn open(&self, owner: MappingOwner<'_>, mapping: &Mapping) -> Result<MappedFile, OpenError> {
        let Backing::File { id, path } = &mapping.backing else { return Err(OpenError::NotAFile) };
        let file = match owner.pid.map(|pid| self.proc.open_mapped(pid, mapping)) {
            Some(Ok(file)) => file,
            Some(Err(error)) => self.open_at_path(owner, *id, Path::new(&**path), open_error(&error))?,
            None => self.open_at_path(owner, *id, Path::new(&**path), OpenError::Missing)?,
        };
        let version = FileVersion::of(&file).map_err(|error| open_error(&error))?;
        Ok(MappedFile { file: self.share(version, file), version })
    }

    /// Opens the file at the path of a mapping whose file itself could not be opened, because of `mapped`.
    fn open_at_path(
        &self,
        owner: MappingOwner<'_>,
        id: FileId,
        path: &Path,
        mapped: OpenError,
    ) -> Result<File, OpenError> {
        let mut worst = match mapped {
            OpenError::NotAFile | OpenError::TimedOut | OpenError::TooManyOpenFiles => mapped,
            _ => OpenError::Missing,
        };
        for root in owner.root.into_iter().chain([&*self.host]) {
            match root.open_file(path) {
                Ok(file) if FileVersion::of(&file).is_ok_and(|version| version.inode() == id.inode) => {
                    return Ok(file);
                }
                Ok(_) => worst = OpenError::Replaced,
                Err(error) if worst == OpenError::Missing => worst = open_error(&error),
                Err(_) => {}
            }
        }
        Err(if worst == OpenError::Missing { mapped } else { worst })
    }

    /// The descriptor of the same file that is in use already, or this one.
    fn share(&self, version: FileVersion, file: File) -> Arc<File> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = open.files.get(&version).and_then(Weak::upgrade) {
            return shared;
        }
        if open.files.len() >= open.sweep_at {
            open.files.retain(|_, file| file.strong_count() > 0);
            open.sweep_at = MIN_FILES_TO_SWEEP.max(2 * open.files.len());
        }
        let file = Arc::new(file);
        open.files.insert(version, Arc::downgrade(&file));
        file
    }
}

fn open_error(error: &io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::NotReadable,
        io::ErrorKind::InvalidInput => OpenError::NotAFile,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => OpenError::TimedOut,
        _ if is_open_files_limit(error) => OpenError::TooManyOpenFiles,
        _ => OpenError::Missing,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use profiler_addresses::{FileOffset, RuntimeAddress};

    use super::*;

    fn files() -> MappedFiles {
        let host = Arc::new(RootDirectory::open(Path::new("/")).unwrap());
        MappedFiles::new(Arc::new(ProcFs::live()), host)
    }

    /// A mapping of a file at this path, with the inode of the file.
    fn mapping(path: &Path) -> Mapping {
        let inode = std::fs::metadata(path).unwrap().ino();
        let id = FileId { major: 0, minor: 0, inode };
        let backing = Backing::File { id, path: path.to_str().unwrap().into() };
        let (start, end) = (RuntimeAddress(0x1000), RuntimeAddress(0x2000));
        Mapping { start, end, offset: FileOffset(0), backing }
    }

    const ENDED: MappingOwner<'_> = MappingOwner { pid: None, root: None };

    #[test]
    fn readers_of_one_file_share_its_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let files = files();
        for name in 0..1000 {
            let path = directory.path().join(name.to_string());
            std::fs::write(&path, "x").unwrap();
            let first = files.open(ENDED, &mapping(&path)).unwrap();
            let second = files.open(ENDED, &mapping(&path)).unwrap();
            assert!(Arc::ptr_eq(&first.file, &second.file));
        }
        assert!(files.open.lock().unwrap().files.len() <= MIN_FILES_TO_SWEEP);
    }

    #[test]
    fn a_changed_file_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let (files, path) = (files(), directory.path().join("file"));
        std::fs::write(&path, "x").unwrap();
        let first = files.open(ENDED, &mapping(&path)).unwrap();
        std::fs::write(&path, "xy").unwrap();
        let second = files.open(ENDED, &mapping(&path)).unwrap();
        assert!(first.version != second.version && !Arc::ptr_eq(&first.file, &second.file));
    }

    #[test]
    fn only_time_and_the_limit_of_open_files_are_transient() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::MFILE, OpenError::TooManyOpenFiles),
            (Errno::NFILE, OpenError::TooManyOpenFiles),
            (Errno::AGAIN, OpenError::TimedOut),
        ] {
            let error = open_error(&errno.into());
            assert!(error == expected && error.is_transient(), "{errno}: {error:?}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::INVAL, Errno::IO] {
            assert!(!open_error(&errno.into()).is_transient(), "{errno}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_has_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let (files, path) = (files(), directory.path().join("file"));
        std::fs::write(&path, "x").unwrap();
        let old = mapping(&path);
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        assert_eq!(files.open(ENDED, &old).unwrap_err(), OpenError::Missing);
        std::fs::write(&path, "x").unwrap();
        assert_eq!(files.open(ENDED, &old).unwrap_err(), OpenError::Replaced);
        assert_eq!(files.open(ENDED, &mapping(directory.path())).unwrap_err(), OpenError::NotAFile);
        let jit = Mapping { backing: Backing::Jit, ..old };
        assert_eq!(files.open(ENDED, &jit).unwrap_err(), OpenError::NotAFile);
    }
}
