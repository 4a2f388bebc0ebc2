//! Writes to standard output and standard error: the only place that does, because the macros of the standard library panic
//! where a stream cannot be written.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use profiler_profile_formats::printable;

use super::output_file::with_remedy;

/// Prints a line of the program on standard error.
pub(super) fn print_message(message: &str) {
    print_messages(&format!("profiler: {}\n", printable(message)));
}

/// Prints lines on standard error. Without a reader of messages, the program goes on: outputs and exit code do not depend on
/// them.
pub(super) fn print_messages(lines: &str) {
    // See above.
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// Writes the result of a command to standard output. A reader that closed its pipe has read what it wants: that is no error.
pub(super) fn write_result(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_until_closed(io::stdout().lock(), write).context("failed to write to standard output")
}

/// Writes to a stream with a buffer, so that what does not end in a new line is also written, or an error.
fn write_until_closed(
    stream: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut stream = BufWriter::new(stream);
    let written = write(&mut stream).and_then(|()| stream.flush());
    if written.is_err() {
        // The buffer is not written once more.
        drop(stream.into_parts());
    }
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(with_remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that fails in this way.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        let write = |kind| write_until_closed(Failing(kind), |to| to.write_all(b"without a new line"));
        write(io::ErrorKind::BrokenPipe).unwrap();
        assert_eq!(write(io::ErrorKind::StorageFull).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_failure_that_is_not_of_the_stream_is_an_error() {
        let error = write_until_closed(Vec::new(), |_| Err(io::ErrorKind::InvalidData.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
