//! Reads files whose owner can make a read wait.

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

use rustix::io::ReadWriteFlags;

use crate::{Object, run};

/// Reads bytes at an offset, as `pread` does: what is in the page cache, without waiting; the rest on another thread.
///
/// # Errors
/// As for [`run`].
pub fn read_at(file: &Arc<File>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    // Linux 4.14. A file system that always waits refuses the flag.
    let cached =
        rustix::io::preadv2(file.as_fd(), &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
    cached.or_else(|_| read_on_worker(file, buffer, offset))
}

fn read_on_worker(file: &Arc<File>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let (shared, length) = (Arc::clone(file), buffer.len());
    let bytes = run(Object::file(file.as_raw_fd()), move || {
        let mut bytes = vec![0; length];
        let count = shared.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    })?;
    buffer[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_at_an_offset_to_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789").unwrap();
        let file = Arc::new(file.reopen().unwrap());
        let read = |length, offset| {
            let mut buffer = vec![0; length];
            let count = read_at(&file, &mut buffer, offset).unwrap();
            String::from_utf8(buffer[..count].to_vec()).unwrap()
        };
        assert_eq!((read(4, 3), read(4, 8), read(4, 10)), ("3456".into(), "89".into(), String::new()));
        let mut buffer = [0; 5];
        assert_eq!(read_on_worker(&file, &mut buffer, 7).unwrap(), 3);
        assert_eq!(&buffer, b"789\0\0");
    }
}
