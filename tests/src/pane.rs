//! Drives a terminal for tests: a pane of a separate tmux server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::deadline::wait_until;

/// A pane with a shell. Dropping it ends its tmux server and the programs in the pane.
#[derive(Debug)]
pub struct Pane {
    socket: PathBuf,
}

impl Pane {
    /// Opens a pane of this size. The socket of its tmux server is in `folder`.
    ///
    /// # Panics
    /// Panics if tmux is not installed.
    #[must_use]
    pub fn open(folder: &Path, columns: u16, rows: u16) -> Self {
        let pane = Self { socket: folder.join("tmux") };
        let [columns, rows] = [columns, rows].map(|size| size.to_string());
        pane.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, "/bin/sh"]);
        pane
    }

    /// Types a text literally.
    pub fn type_text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key, by its tmux name.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// The visible text.
    #[must_use]
    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until a text is visible.
    ///
    /// # Panics
    /// Panics if it is not visible by the deadline.
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("`{text}` in the pane"), || self.text().contains(text).then_some(()));
    }

    /// Whether a program has switched to the alternate screen.
    #[must_use]
    pub fn has_alternate_screen(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Changes the size of the pane.
    pub fn resize(&self, columns: u16, rows: u16) {
        let [columns, rows] = [columns, rows].map(|size| size.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(arguments);
        let output = command.output().expect("tmux is there: `cargo xtask setup` installs it");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // Fails if the server has exited because its shell did.
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
