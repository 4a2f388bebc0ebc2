//! Output files: written to a temporary file, which replaces the target when it is complete.
//!
//! The profiler often runs as root and writes where other users can create files, as in `/tmp`. A link that another user
//! planted there is replaced and never followed, and no other user can read the file. A pipe, a device or an inherited
//! descriptor (`/dev/stdout`) cannot be replaced: it is written directly.

use std::{
    collections::hash_map::RandomState,
    ffi::{OsStr, OsString},
    fs::File,
    hash::{BuildHasher, Hasher},
    io::{self, BufWriter, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use super::sudo::parse_id;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags, openat, statx},
    io::Errno,
    process::{Gid, Uid},
};

/// Attempts to find a name for the temporary file that does not exist yet.
const MAX_ATTEMPTS: usize = 8;

/// An output file whose content is written later.
#[derive(Debug)]
pub(super) enum OutputFile {
    /// A pipe, a device or an inherited descriptor.
    Stream(File),
    /// A file that is replaced.
    Replaced {
        /// The directory of the file.
        directory: OwnedFd,
        name: OsString,
    },
}

impl OutputFile {
    /// Opens a stream, or checks that the file can be replaced. An existing file keeps its content.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(descriptor) = inherited_descriptor(path) {
            return open_inherited(descriptor, path).map(Self::Stream);
        }
        let name = path.file_name().ok_or_else(|| refused("it is a directory: name a file"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        if let Some(stream) = open_stream(directory.as_fd(), name)? {
            return Ok(Self::Stream(stream));
        }
        // Missing permission is an error before sampling and not after it.
        TemporaryFile::create(directory.as_fd())?;
        Ok(Self::Replaced { directory, name: name.to_owned() })
    }

    /// The directory in which the file is replaced; `None` for a stream.
    pub(super) fn directory(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Stream(_) => None,
            Self::Replaced { directory, .. } => Some(directory.as_fd()),
        }
    }

    /// Writes the content. If that fails, an existing file keeps its content, and no temporary file remains.
    pub(super) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.write_content(write).map_err(with_remedy)
    }

    fn write_content(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Stream(file) => write_buffered(&file, write),
            Self::Replaced { directory, name } => {
                let temporary = TemporaryFile::create(directory.as_fd())?;
                write_buffered(&temporary.file, write)?;
                if reports_errors_late(&temporary.file)? {
                    temporary.file.sync_all()?;
                }
                temporary.rename(&name)
            }
        }
    }
}

/// The number in the path of an open descriptor of this process: 1 for `/dev/stdout`.
pub(super) fn inherited_descriptor(path: &Path) -> Option<u32> {
    match path.to_str()? {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        path => path.strip_prefix("/dev/fd/").or(path.strip_prefix("/proc/self/fd/"))?.parse().ok(),
    }
}

fn open_inherited(descriptor: u32, path: &Path) -> io::Result<File> {
    match descriptor {
        1 => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        2 => Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        // A file is opened once more, at its beginning.
        _ => File::options().append(true).open(path),
    }
}

/// Opens the pipe or the device of a name; `None` for a file that can be replaced, or created.
fn open_stream(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<File>> {
    let existing =
        match openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            existing => existing?,
        };
    let wanted = StatxFlags::TYPE | StatxFlags::UID;
    let status = statx(&existing, "", AtFlags::EMPTY_PATH, wanted)?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    match kind {
        FileType::RegularFile | FileType::Symlink => {
            if status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
                return Err(refused(
                    "a file is mounted there, which cannot be replaced: mount its directory",
                ));
            }
            Ok(None)
        }
        FileType::Fifo | FileType::CharacterDevice => {
            // Only root can create devices.
            if kind == FileType::Fifo && !is_trusted(status.stx_uid, directory)? {
                return Err(refused("it is a pipe of another user: name another file"));
            }
            let path = format!("/proc/self/fd/{}", existing.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
            Ok(Some(openat(CWD, path, flags, Mode::empty())?.into()))
        }
        FileType::Directory => Err(refused("it is a directory: name a file")),
        _ => Err(refused("it is neither a file nor a pipe: name a file")),
    }
}

/// Whether a pipe of this user can be written: the rule of `fs.protected_fifos` (proc_sys_fs(5)) for all directories.
fn is_trusted(owner: u32, directory: BorrowedFd<'_>) -> io::Result<bool> {
    let own = rustix::process::geteuid().as_raw();
    let directory = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::UID)?;
    Ok([0, own, directory.stx_uid].contains(&owner))
}

fn write_buffered(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    writer.flush()
}

/// Whether the file system reports a full disk only when a file is synchronized: one of the network (NFS, SMB), or in
/// user space. On a disk that would take longer than all the rest of the output.
fn reports_errors_late(file: &File) -> io::Result<bool> {
    /// `include/uapi/linux/magic.h`; `fs/smb/client/cifsglob.h`.
    const MAGIC: [rustix::fs::FsWord; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546];
    Ok(MAGIC.contains(&rustix::fs::fstatfs(file)?.f_type))
}

/// Gives a file to the caller of sudo, who could not read it otherwise.
fn give_to_caller_of_sudo(file: &File) -> io::Result<()> {
    let id = |variable| std::env::var(variable).ok().and_then(|text| parse_id(&text));
    if rustix::process::geteuid().is_root()
        && let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID"))
    {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// The error of a write, with what helps.
pub(super) fn with_remedy(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            io::Error::new(error.kind(), format!("{error}: raise the limit of file sizes (`ulimit -f`)"))
        }
        _ => error,
    }
}

fn refused(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// A file that only its owner can read: the caller of sudo, else the user of the profiler. Dropping it removes it, unless it
/// was renamed.
#[derive(Debug)]
struct TemporaryFile<'a> {
    directory: BorrowedFd<'a>,
    file: File,
    /// `None` while the file has no name, so that nothing remains when the profiler is killed.
    name: Option<String>,
}

impl<'a> TemporaryFile<'a> {
    fn create(directory: BorrowedFd<'a>) -> io::Result<Self> {
        let created = Self::create_for_this_user(directory)?;
        give_to_caller_of_sudo(&created.file)?;
        Ok(created)
    }

    fn create_for_this_user(directory: BorrowedFd<'a>) -> io::Result<Self> {
        let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
            // Some file systems have no files without a name (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let (name, file) = with_new_name(|name| openat(directory, name, flags, mode))?;
                Ok(Self { directory, file: file.into(), name: Some(name) })
            }
            file => Ok(Self { directory, file: file?.into(), name: None }),
        }
    }

    /// Replaces the file of a name in the directory. A link is replaced, and not what it leads to.
    fn rename(mut self, to: &OsStr) -> io::Result<()> {
        let name = match self.name.take() {
            Some(name) => name,
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let link =
                    |name: &str| rustix::fs::linkat(CWD, &own, self.directory, name, AtFlags::SYMLINK_FOLLOW);
                with_new_name(link)?.0
            }
        };
        let renamed = rustix::fs::renameat(self.directory, &name, self.directory, to);
        if renamed.is_err() {
            self.name = Some(name);
        }
        Ok(renamed?)
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = rustix::fs::unlinkat(self.directory, name, AtFlags::empty())
        {
            log::warn!("failed to remove the temporary file `{name}`: {error}");
        }
    }
}

/// Creates a file with a name that other users cannot guess.
fn with_new_name<T>(create: impl Fn(&str) -> rustix::io::Result<T>) -> io::Result<(String, T)> {
    let mut attempts = (0..MAX_ATTEMPTS).map(|_| {
        // The only random numbers of the standard library.
        let name = format!(".profiler-{:016x}.tmp", RandomState::new().build_hasher().finish());
        create(&name).map(|created| (name, created))
    });
    let first_success = attempts.find(|attempt| !matches!(attempt, Err(Errno::EXIST)));
    Ok(first_success.unwrap_or(Err(Errno::EXIST))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn names(directory: &TempDir) -> Vec<OsString> {
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    fn write_text(to: &mut dyn Write) -> io::Result<()> {
        to.write_all(b"new")
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.svg");
        let failing = |to: &mut dyn Write| {
            to.write_all(&[b'x'; 1 << 20])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let error = OutputFile::open(&path).unwrap().write(failing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(names(&directory).is_empty());
        fs::write(&path, "old").unwrap();
        OutputFile::open(&path).unwrap().write(failing).unwrap_err();
        assert_eq!((fs::read(&path).unwrap(), names(&directory).len()), (b"old".to_vec(), 1));
    }

    #[test]
    fn an_existing_file_keeps_its_content_until_the_new_one_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.svg");
        fs::write(&path, "old").unwrap();
        let output = OutputFile::open(&path).unwrap();
        let write = |to: &mut dyn Write| {
            write_text(to)?;
            to.flush()?;
            assert_eq!(fs::read(&path)?, b"old");
            Ok(())
        };
        output.write(write).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_target_that_became_a_directory_is_an_error_without_remains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.svg");
        let output = OutputFile::open(&path).unwrap();
        fs::create_dir(&path).unwrap();
        output.write(write_text).unwrap_err();
        assert_eq!(names(&directory), ["x.svg"]);
        assert!(OutputFile::open(&path).unwrap_err().to_string().contains("directory"));
    }

    #[test]
    fn a_file_without_unnamed_temporary_files_is_replaced_too() {
        let directory = tempfile::tempdir().unwrap();
        let folder = File::open(directory.path()).unwrap();
        let (flags, mode) = (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR);
        let create = || {
            let (name, file) = with_new_name(|name| openat(&folder, name, flags, mode)).unwrap();
            TemporaryFile { directory: folder.as_fd(), file: file.into(), name: Some(name) }
        };
        drop(create());
        assert!(names(&directory).is_empty());
        create().rename(OsStr::new("x.svg")).unwrap();
        assert_eq!(names(&directory), ["x.svg"]);
        assert_eq!(
            with_new_name(|_| Err::<(), _>(Errno::EXIST)).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }

    #[test]
    fn paths_of_open_descriptors_are_recognized() {
        for (path, descriptor) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/63", Some(63)),
            ("/proc/self/fd/1", Some(1)),
            ("/dev/fd/x", None),
            ("/dev/null", None),
            ("stdout", None),
        ] {
            assert_eq!(inherited_descriptor(Path::new(path)), descriptor, "{path}");
        }
    }
}
