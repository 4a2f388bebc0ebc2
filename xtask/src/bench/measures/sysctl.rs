//! Changes kernel settings for the duration of a measurement.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};
use fs_err as fs;

/// A kernel setting with a changed value. Dropping it restores the previous value.
pub(crate) struct Sysctl {
    path: String,
    /// A process that restores the value when its input closes, even if this process is killed.
    restorer: Child,
}

impl Sysctl {
    /// Sets `kernel.NAME`.
    pub(crate) fn set(name: &str, value: &str) -> Result<Self> {
        let path = format!("/proc/sys/kernel/{name}");
        let before = fs::read_to_string(&path)?;
        // In a process group of its own, so that Ctrl-C does not reach it.
        let restorer = Command::new("sh")
            .args(["-c", "read -r line; echo \"$0\" > \"$1\"", before.trim(), &path])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()?;
        fs::write(&path, value).with_context(|| format!("failed to write {path}: the bench needs root"))?;
        Ok(Self { path, restorer })
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        if !self.restorer.wait().is_ok_and(|status| status.success()) {
            eprintln!("{} could not be put back", self.path);
        }
    }
}
