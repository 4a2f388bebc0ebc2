//! A terminal that a test can look at and type into: a pane of a tmux server of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::deadline::until;

/// The pane, with a shell in it. Dropped, its server ends, and with it what runs in the pane.
#[derive(Debug)]
pub struct Pane {
    socket: PathBuf,
}

impl Pane {
    /// Opens a pane of that size, its server's socket in `folder`.
    ///
    /// # Panics
    /// When tmux is not there.
    #[must_use]
    pub fn open(folder: &Path, columns: u16, rows: u16) -> Self {
        let pane = Self { socket: folder.join("tmux") };
        let [columns, rows] = [columns, rows].map(|size| size.to_string());
        pane.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, "/bin/sh"]);
        pane
    }

    /// Types a text as it is.
    pub fn say(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses a key by the name that tmux has for it.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// What is seen.
    #[must_use]
    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until a text is seen.
    ///
    /// # Panics
    /// When it never is.
    pub fn wait_for(&self, text: &str) {
        until(&format!("`{text}` in the pane"), || self.text().contains(text).then_some(()));
    }

    /// Whether a program has a screen of its own there.
    #[must_use]
    pub fn has_alternate_screen(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Gives the pane another size.
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
        // A server whose shell has ended is gone already.
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
