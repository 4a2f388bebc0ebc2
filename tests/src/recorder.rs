//! A running `profiler record`.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::profiler;

/// A recorder that runs, and the lines that it writes.
pub struct Recorder {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Recorder {
    /// Starts `profiler record` with these arguments, and waits until it samples.
    ///
    /// # Panics
    /// Panics if it ends before.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let mut recorder = Self::spawn(arguments);
        recorder.wait_for("event=started");
        recorder
    }

    /// Starts `profiler record` with these arguments.
    ///
    /// # Panics
    /// Panics if the program does not start.
    #[must_use]
    pub fn spawn(arguments: &[&str]) -> Self {
        let mut command = profiler(&["record"]);
        Self::run(command.args(arguments))
    }

    /// Starts a command that executes `profiler record`.
    ///
    /// # Panics
    /// Panics if the program does not start.
    #[must_use]
    pub fn run(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("the profiler starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Self { child, lines }
    }

    /// Waits for a line that contains a text.
    ///
    /// # Panics
    /// Panics if the recorder ends before.
    pub fn wait_for(&mut self, text: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let bytes = self.lines.read_line(&mut line).expect("lines are text");
            assert!(bytes > 0, "the recorder ended before it wrote `{text}`");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// Panics if it has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the recorder runs");
    }

    /// Waits for its end. Returns the lines that were not read, and the exit code, `None` where a signal ended it.
    ///
    /// # Panics
    /// Panics if its lines are no text.
    #[must_use]
    pub fn end(mut self) -> (Vec<String>, Option<i32>) {
        let lines = self.lines.by_ref().lines().map(|line| line.expect("lines are text")).collect();
        (lines, self.child.wait().expect("it was started").code())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
