//! Reads what is appended to a log file, or what arrives at standard input.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::{
        fd::AsFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The most bytes that are read at one moment. The rest is read at the next ones.
const MAX_BYTES: usize = 1 << 20;

/// A file that is read from its present end on.
#[derive(Debug)]
pub(super) struct FollowedFile {
    /// `None` for standard input.
    path: Option<PathBuf>,
    file: File,
}

impl FollowedFile {
    /// Opens a file at its end; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be opened or is neither a file nor a pipe.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            let file = io::stdin().as_fd().try_clone_to_owned()?.into();
            return Ok(Self { path: None, file });
        }
        let mut file = open(path)?;
        if file.metadata()?.is_file() {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(Self { path: Some(path.to_owned()), file })
    }

    /// Calls `handle` with the bytes that have been added since the last call. Those of another file begin a line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read_new(&mut self, mut handle: impl FnMut(&[u8])) -> io::Result<()> {
        let read = self.read_open_file(MAX_BYTES, &mut handle)?;
        if read < MAX_BYTES && self.reopen_if_replaced()? {
            handle(b"\n");
            self.read_open_file(MAX_BYTES - read, &mut handle)?;
        }
        Ok(())
    }

    fn read_open_file(&mut self, max_bytes: usize, handle: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let mut buffer = [0; 1 << 14];
        let mut total = 0;
        while total < max_bytes && self.is_readable()? {
            let length = match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            total += length;
            handle(&buffer[..length]);
        }
        Ok(total)
    }

    /// Continues with the file that has the path now, after a rotation of logs, and from the start of a truncated one.
    fn reopen_if_replaced(&mut self) -> io::Result<bool> {
        let Some(path) = &self.path else { return Ok(false) };
        let open_file = self.file.metadata()?;
        let is_same = |now: &fs::Metadata| (now.dev(), now.ino()) == (open_file.dev(), open_file.ino());
        match fs::metadata(path) {
            Ok(now) if is_same(&now) => {
                let is_truncated = now.is_file() && now.len() < self.file.stream_position()?;
                if is_truncated {
                    self.file.rewind()?;
                }
                Ok(is_truncated)
            }
            Ok(_) => {
                self.file = open(path)?;
                Ok(true)
            }
            // Between the two steps of a rotation, no file has the path.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether reading does not block. A file is readable at its end as well.
    fn is_readable(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }
}

/// Opens a file without waiting for the writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a directory"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(followed: &mut FollowedFile) -> String {
        let mut bytes = Vec::new();
        followed.read_new(|new| bytes.extend_from_slice(new)).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_file_is_read_from_its_end_on_across_a_rotation_and_a_truncation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "old\n").unwrap();
        let mut followed = FollowedFile::open(&path).unwrap();
        assert_eq!(read(&mut followed), "");
        let mut log = File::options().append(true).open(&path).unwrap();
        log.write_all(b"one\ntw").unwrap();
        assert_eq!(read(&mut followed), "one\ntw");
        log.write_all(b"o").unwrap();
        fs::rename(&path, directory.path().join("log.1")).unwrap();
        assert_eq!(read(&mut followed), "o");
        fs::write(&path, "of the new file\n").unwrap();
        assert_eq!(read(&mut followed), "\nof the new file\n");
        fs::write(&path, "short\n").unwrap();
        assert_eq!(read(&mut followed), "\nshort\n");
    }

    #[test]
    fn many_bytes_are_read_in_several_steps() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "").unwrap();
        let mut followed = FollowedFile::open(&path).unwrap();
        fs::write(&path, vec![b'x'; MAX_BYTES * 2 + 10]).unwrap();
        let lengths: Vec<_> = (0..4).map(|_| read(&mut followed).len()).collect();
        assert_eq!(lengths, [MAX_BYTES, MAX_BYTES, 10, 0]);
    }

    #[test]
    fn a_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(FollowedFile::open(directory.path()).unwrap_err().to_string().contains("directory"));
    }
}
