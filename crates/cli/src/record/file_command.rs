//! Runs the command of `--exec` for each file: in a process that was started before the sandbox, which allows no program.

use std::{
    io::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Reads a path a line, and runs the command (`$1` of the script) with the path as its `$1`.
const SCRIPT: &str = r#"while IFS= read -r file; do sh -c "$1" sh "$file" </dev/null >&2; done"#;

/// The process that runs the command.
#[derive(Debug)]
pub(super) struct FileCommand {
    /// `None` from [`finish`](Self::finish) on.
    paths: Option<ChildStdin>,
    process: Child,
}

impl FileCommand {
    /// Starts the process. The command is one of sh(1), and gets the path of the file as `$1`. Its output goes to standard error.
    ///
    /// # Errors
    /// The process cannot be started: there is no `sh`.
    pub(super) fn start(command: &str) -> io::Result<Self> {
        let mut process =
            Command::new("sh").args(["-c", SCRIPT, "sh", command]).stdin(Stdio::piped()).spawn()?;
        let paths = process.stdin.take();
        if let Some(paths) = &paths {
            // A command that hangs must not stop the recorder.
            fcntl_setfl(paths, fcntl_getfl(paths)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { paths, process })
    }

    /// Runs the command for a file, after those for earlier files.
    ///
    /// # Errors
    /// The process has ended, or so many files wait for it that its pipe is full.
    pub(super) fn run(&mut self, path: &Path) -> io::Result<()> {
        let line = [path.as_os_str().as_bytes(), b"\n"].concat();
        let paths = self.paths.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // Lines of up to PIPE_BUF bytes are written as a whole (pipe(7)).
        paths.write_all(&line)
    }

    /// Lets the process run the command for the files that it has received, and waits for its end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        drop(self.paths.take());
        self.process.wait().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_command_runs_for_each_file_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("list");
        let command = format!("printf '%s\\n' \"$1\" >> '{}'", list.display());
        let mut started = FileCommand::start(&command).unwrap();
        for name in ["/tmp/a.profile", "/tmp/with space \"and' $quotes.profile"] {
            started.run(Path::new(name)).unwrap();
        }
        started.finish().unwrap();
        let expected = "/tmp/a.profile\n/tmp/with space \"and' $quotes.profile\n";
        assert_eq!(fs::read_to_string(list).unwrap(), expected);
    }
}
