//! Sysctls that are set for a while.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

/// A sysctl with a value of ours; dropped, it is what it was.
pub(super) struct Sysctl {
    path: String,
    /// Puts the value back when its input closes: whatever ends this process, that happens.
    restorer: Child,
}

impl Sysctl {
    /// Sets `kernel.NAME`.
    pub(super) fn set(name: &str, value: &str) -> Result<Self> {
        let path = format!("/proc/sys/kernel/{name}");
        let before = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        // A group of its own: Ctrl-C is not meant for it.
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
