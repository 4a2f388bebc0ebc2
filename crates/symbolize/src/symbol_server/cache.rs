//! Where downloaded debug files are kept: written beside their place, and put there when they are whole and proven.

use profiler_binary_reader::Image;
use profiler_elf_symbols::{BuildId, Elf, Sections};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, Mode, OFlags};

/// Nobody else's: whoever can write there says what functions are called.
const DIRECTORY_MODE: u32 = 0o700;

/// A directory of downloaded files, laid out as that of debuginfod's own client.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// A file in the making. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    id: BuildId,
    is_in_place: bool,
}

/// Why a file is none to keep.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotTheDebugFile;

impl Cache {
    /// The cache in a directory, which is made.
    pub fn create(directory: &Path) -> io::Result<Self> {
        make(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Begins a file. What a profiler that was killed left of it is overwritten; while another one writes it, it is not
    /// to be had.
    pub(super) fn begin(&self, id: &BuildId) -> io::Result<Part> {
        let directory = self.directory.join(id.to_string());
        make(&directory)?;
        let path = directory.join("debuginfo.part");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        if fs::symlink_metadata(&path)?.ino() != file.metadata()?.ino() {
            return Err(io::Error::other("another profiler has just put it into its place"));
        }
        file.set_len(0)?;
        let destination = directory.join("debuginfo");
        Ok(Part { file, path, destination, id: id.clone(), is_in_place: false })
    }
}

impl Part {
    /// Puts the file into its place, if it is the debug file of its build id.
    pub(super) fn finish(mut self) -> io::Result<Result<(), NotTheDebugFile>> {
        self.file.flush()?;
        if !self.is_proven()? {
            return Ok(Err(NotTheDebugFile));
        }
        fs::rename(&self.path, &self.destination)?;
        self.is_in_place = true;
        Ok(Ok(()))
    }

    fn is_proven(&self) -> io::Result<bool> {
        let has_names = |found: &Sections| found.has_symbol_table() || found.has_dwarf();
        let elf = Image::from_file(self.file.try_clone()?).and_then(Elf::parse);
        Ok(elf.is_ok_and(|elf| {
            elf.build_id() == Some(&self.id) && elf.sections().is_ok_and(|found| has_names(&found))
        }))
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Whoever begins the file again overwrites what is left of it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_SYMTAB;
    use tempfile::TempDir;

    use super::*;
    use profiler_elf_symbols::test_file::{TestFile, function};

    fn id() -> BuildId {
        BuildId::new(&[0xab, 0xcd]).unwrap()
    }

    fn debug_file(id: &[u8]) -> Vec<u8> {
        TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &[function("f", 0x1000, 8)]).bytes()
    }

    fn write(cache: &Cache, bytes: &[u8]) -> Result<(), NotTheDebugFile> {
        let mut part = cache.begin(&id()).unwrap();
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
    fn a_proven_file_is_put_into_its_place() {
        let (_directory, cache) = cache();
        assert_eq!(write(&cache, &debug_file(&[0xab, 0xcd])), Ok(()));
        assert_eq!(files(&cache), ["debuginfo"]);
        assert_eq!(fs::read(cache.directory.join("abcd/debuginfo")).unwrap(), debug_file(&[0xab, 0xcd]));
    }

    #[test]
    fn what_is_not_the_debug_file_leaves_nothing() {
        let (_directory, cache) = cache();
        let whole = debug_file(&[0xab, 0xcd]);
        let without_names = TestFile::with_code().build_id(&[0xab, 0xcd]).bytes();
        for bytes in [
            &debug_file(&[1, 2])[..],
            &whole[..whole.len() / 2],
            b"<html>sign in</html>",
            b"",
            &without_names,
        ] {
            assert_eq!(write(&cache, bytes), Err(NotTheDebugFile));
            assert!(files(&cache).is_empty());
        }
    }

    #[test]
    fn a_file_is_written_by_one_at_a_time_and_what_was_left_of_it_is_overwritten() {
        let (_directory, cache) = cache();
        let first = cache.begin(&id()).unwrap();
        assert!(cache.begin(&id()).is_err());
        drop(first);
        fs::write(cache.directory.join("abcd/debuginfo.part"), vec![0; 1 << 20]).unwrap();
        assert_eq!(write(&cache, &debug_file(&[0xab, 0xcd])), Ok(()));
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let (directory, cache) = cache();
        let outside = directory.path().join("outside");
        fs::write(&outside, "kept").unwrap();
        fs::create_dir(cache.directory.join("abcd")).unwrap();
        std::os::unix::fs::symlink(&outside, cache.directory.join("abcd/debuginfo.part")).unwrap();
        assert!(cache.begin(&id()).is_err());
        assert_eq!(fs::read(&outside).unwrap(), b"kept");
    }
}
