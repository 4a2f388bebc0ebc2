//! The cache of downloaded debug files. A file is renamed to its final path after its build id and symbols are verified.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use profiler_binary_reader::Image;
use profiler_elf_symbols::{BuildId, Elf, Sections};
use rustix::fs::{FlockOperation, Mode, OFlags};

/// No access for other users, because symbols are read from these files without another check.
const DIRECTORY_MODE: u32 = 0o700;

/// Write permission of the group and of all other users.
const OTHERS_WRITE_MODE: u32 = 0o022;

/// A directory of debug files, in the layout of the debuginfod client's cache.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// A file that is being downloaded. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    id: BuildId,
    is_complete: bool,
}

/// The downloaded file does not have the requested build id, or has no symbols.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidDebugFile;

impl Cache {
    /// Opens the cache in a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// When the directory cannot be created, and those of [`check`](Self::check).
    pub fn create(directory: &Path) -> io::Result<Self> {
        create_directory(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Checks that no other user but root can write to the directory.
    ///
    /// # Errors
    /// When the directory cannot be examined, [`io::ErrorKind::PermissionDenied`] when another user can write to it.
    pub fn check(directory: &Path) -> io::Result<()> {
        let status = fs::metadata(directory)?;
        let refused = |message| Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        if ![0, rustix::process::geteuid().as_raw()].contains(&status.uid()) {
            return refused("the directory belongs to another user: name one of your own");
        }
        if status.mode() & OTHERS_WRITE_MODE != 0 {
            return refused("other users can write to the directory: `chmod go-w` it, or name another one");
        }
        Ok(())
    }

    /// Creates a partial file. It replaces the partial file of a killed profiler. It is an error while another profiler
    /// downloads the file.
    pub(super) fn create_partial(&self, id: &BuildId) -> io::Result<PartialFile> {
        let directory = self.directory.join(id.to_string());
        create_directory(&directory)?;
        let path = directory.join("debuginfo.part");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        if fs::symlink_metadata(&path)?.ino() != file.metadata()?.ino() {
            return Err(io::Error::other("another profiler has just finished the download"));
        }
        file.set_len(0)?;
        let destination = directory.join("debuginfo");
        Ok(PartialFile { file, path, destination, id: id.clone(), is_complete: false })
    }
}

impl PartialFile {
    /// Renames the file to its final path, if it is the debug file of its build id.
    pub(super) fn finish(mut self) -> io::Result<Result<(), InvalidDebugFile>> {
        self.file.flush()?;
        if !self.is_valid()? {
            return Ok(Err(InvalidDebugFile));
        }
        fs::rename(&self.path, &self.destination)?;
        self.is_complete = true;
        Ok(Ok(()))
    }

    fn is_valid(&self) -> io::Result<bool> {
        let has_symbols = |found: &Sections| found.has_symbol_table() || found.has_dwarf();
        let elf = Image::from_file(self.file.try_clone()?).and_then(Elf::parse);
        Ok(elf.is_ok_and(|elf| {
            elf.build_id() == Some(&self.id) && elf.sections().is_ok_and(|found| has_symbols(&found))
        }))
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // The next download of the file replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn create_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    // It may have existed.
    Cache::check(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use object::elf::SHT_SYMTAB;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use tempfile::TempDir;

    use super::*;

    fn id() -> BuildId {
        BuildId::new(&[0xab, 0xcd]).unwrap()
    }

    fn debug_file(id: &[u8]) -> Vec<u8> {
        TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &[function("f", 0x1000, 8)]).bytes()
    }

    fn write(cache: &Cache, bytes: &[u8]) -> Result<(), InvalidDebugFile> {
        let mut part = cache.create_partial(&id()).unwrap();
        part.write_all(bytes).unwrap();
        part.finish().unwrap()
    }

    fn cache() -> (TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::create(&directory.path().join("deep/cache")).unwrap();
        (directory, cache)
    }

    fn files(cache: &Cache) -> Vec<String> {
        let files = fs::read_dir(cache.directory.join("abcd")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_valid_file_is_renamed_to_its_final_path() {
        let (_directory, cache) = cache();
        assert_eq!(write(&cache, &debug_file(&[0xab, 0xcd])), Ok(()));
        assert_eq!(files(&cache), ["debuginfo"]);
        assert_eq!(fs::read(cache.directory.join("abcd/debuginfo")).unwrap(), debug_file(&[0xab, 0xcd]));
    }

    #[test]
    fn an_invalid_file_is_removed() {
        let (_directory, cache) = cache();
        let whole = debug_file(&[0xab, 0xcd]);
        let without_symbols = TestFile::with_code().build_id(&[0xab, 0xcd]).bytes();
        for bytes in [
            &debug_file(&[1, 2])[..],
            &whole[..whole.len() / 2],
            b"<html>sign in</html>",
            b"",
            &without_symbols,
        ] {
            assert_eq!(write(&cache, bytes), Err(InvalidDebugFile));
            assert!(files(&cache).is_empty());
        }
    }

    #[test]
    fn a_file_has_one_writer_at_a_time_and_its_remains_are_replaced() {
        let (_directory, cache) = cache();
        let first = cache.create_partial(&id()).unwrap();
        assert!(cache.create_partial(&id()).is_err());
        drop(first);
        fs::write(cache.directory.join("abcd/debuginfo.part"), vec![0; 1 << 20]).unwrap();
        assert_eq!(write(&cache, &debug_file(&[0xab, 0xcd])), Ok(()));
    }

    #[test]
    fn a_link_at_the_path_of_the_partial_file_is_not_followed() {
        let (directory, cache) = cache();
        let outside = directory.path().join("outside");
        fs::write(&outside, "kept").unwrap();
        fs::create_dir(cache.directory.join("abcd")).unwrap();
        std::os::unix::fs::symlink(&outside, cache.directory.join("abcd/debuginfo.part")).unwrap();
        assert!(cache.create_partial(&id()).is_err());
        assert_eq!(fs::read(&outside).unwrap(), b"kept");
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_other_users_can_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        fs::create_dir(&path).unwrap();
        for mode in [0o777, 0o1777, 0o770, 0o702] {
            set_mode(&path, mode);
            let error = Cache::create(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
            assert!(error.to_string().contains("chmod"), "{error}");
        }
        set_mode(&path, 0o755);
        let cache = Cache::create(&path).unwrap();
        fs::create_dir(path.join("abcd")).unwrap();
        set_mode(&path.join("abcd"), 0o777);
        assert!(cache.create_partial(&id()).is_err());
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        const OTHER_USER: u32 = 65_534;
        let directory = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(OTHER_USER), None).unwrap();
            assert_eq!(Cache::create(directory.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            let link = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(directory.path(), link.path().join("cache")).unwrap();
            Cache::create(&link.path().join("cache")).unwrap_err();
        }
        assert_eq!(Cache::create(Path::new("/etc/passwd")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
