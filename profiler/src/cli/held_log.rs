//! A log target that buffers lines while the live view uses the terminal.

use std::{
    io::{self, Write, stderr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Limit of the buffer; later lines are dropped.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// Writes log lines to standard error: at once, or buffers them until [`release`](Self::release).
#[derive(Clone, Debug, Default)]
pub(super) struct HeldLog {
    /// `None` if lines are written at once.
    buffer: Arc<Mutex<Option<Vec<u8>>>>,
}

impl HeldLog {
    /// Buffers lines from now on.
    pub(super) fn hold(&self) {
        self.lock().get_or_insert_default();
    }

    /// Writes the buffered lines, and from now on each line at once.
    pub(super) fn release(&self) {
        let buffer = self.lock().take();
        // A closed standard error is not an error.
        let _ = stderr().write_all(&buffer.unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for HeldLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.lock() {
            Some(buffer) if buffer.len() + line.len() > MAX_BUFFER_BYTES => {}
            Some(buffer) => buffer.extend_from_slice(line),
            None => return stderr().write(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;

    #[test]
    fn lines_are_buffered_in_bounded_memory_until_the_release() {
        let log = HeldLog::default();
        log.hold();
        let mut writer = log.clone();
        for _ in 0..MAX_BUFFER_BYTES {
            writer.write_all(b"0123456789\n").unwrap();
        }
        assert!(log.lock().as_ref().unwrap().len() <= MAX_BUFFER_BYTES);
        let buffered = mem::take(&mut *log.lock()).unwrap();
        assert!(buffered.starts_with(b"0123456789\n"));
        log.release();
        assert_eq!(*log.lock(), None);
    }
}
