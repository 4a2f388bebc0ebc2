//! A log target that escapes text of targets, and buffers lines while the live view uses the terminal.

use std::{
    fmt::Display,
    io::{self, Write, stderr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use log::Record;
use profiler_profile_formats::printable;

/// Limit of the buffer; later lines are dropped.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// Writes log lines to standard error: at once, or buffers them until [`release`](Self::release).
#[derive(Clone, Debug, Default)]
pub(super) struct HeldLog {
    /// `None` if lines are written at once.
    buffer: Arc<Mutex<Option<Vec<u8>>>>,
}

/// The line of a log record. A message can contain names and paths of a target.
pub(super) fn format_record(time: &impl Display, record: &Record<'_>) -> String {
    let line = format!("[{time} {:<5} {}] {}", record.level(), record.target(), record.args());
    printable(&line).into_owned()
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

    use log::Level;

    use super::*;

    #[test]
    fn a_message_stays_one_line_without_escape_sequences() {
        let message = format!("failed to open `{}`", "/tmp/\u{1b}[2J\nprofiler: forged\u{9b}1m");
        let arguments = format_args!("{message}");
        let record = Record::builder().level(Level::Warn).target("profiler").args(arguments).build();
        let line = format_record(&"2026-01-01", &record);
        assert_eq!(line, "[2026-01-01 WARN  profiler] failed to open `/tmp/ [2J profiler: forged 1m`");
    }

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
