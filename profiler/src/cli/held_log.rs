//! Log lines that wait while the terminal shows something else.

use std::{
    io::{self, Write, stderr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What is kept of lines that wait; later ones are dropped.
const MAX_HELD_BYTES: usize = 64 << 10;

/// Where log lines go: to standard error, at once or later.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldLog {
    held: Arc<Mutex<Option<Vec<u8>>>>,
}

impl HeldLog {
    /// From now on lines wait.
    pub(super) fn hold(&self) {
        self.lock().get_or_insert_default();
    }

    /// Writes what has waited, and from now on every line at once.
    pub(super) fn release(&self) {
        let held = self.lock().take();
        // Standard error that is gone is no reason to fail.
        let _ = stderr().write_all(&held.unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for HeldLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.lock() {
            Some(held) if held.len() + line.len() > MAX_HELD_BYTES => {}
            Some(held) => held.extend_from_slice(line),
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
    fn lines_wait_in_bounded_memory_until_they_may_be_seen() {
        let log = HeldLog::default();
        log.hold();
        let mut writer = log.clone();
        for _ in 0..MAX_HELD_BYTES {
            writer.write_all(b"0123456789\n").unwrap();
        }
        assert!(log.lock().as_ref().unwrap().len() <= MAX_HELD_BYTES);
        let held = mem::take(&mut *log.lock()).unwrap();
        assert!(held.starts_with(b"0123456789\n"));
        log.release();
        assert_eq!(*log.lock(), None);
    }
}
