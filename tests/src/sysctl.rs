//! Changes kernel settings for the duration of a test.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// A setting below `kernel.` with a changed value. Dropping it restores the previous value.
#[derive(Debug)]
pub struct Sysctl {
    /// A process that writes the previous value when its input closes, even if the test is killed. `None` if nothing
    /// was changed.
    restorer: Option<Child>,
}

impl Sysctl {
    /// Sets `kernel.NAME` for the whole machine: the test has to run alone, below a module `measured`.
    ///
    /// # Panics
    /// Panics if the kernel has no such setting or rejects the value.
    #[must_use]
    pub fn set(name: &str, value: i32) -> Self {
        let path = path(name);
        let before = read(name);
        if before == value {
            return Self { restorer: None };
        }
        // In a process group of its own, so that Ctrl-C does not reach it.
        let restorer = Command::new("sh")
            .args(["-c", "read -r line; echo \"$0\" > \"$1\"", &before.to_string()])
            .arg(&path)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        fs::write(&path, value.to_string()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { restorer: Some(restorer) }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        let Some(mut restorer) = self.restorer.take() else { return };
        drop(restorer.stdin.take());
        // A panic here would end the process while a failed test unwinds.
        if !restorer.wait().is_ok_and(|status| status.success()) {
            eprintln!("a kernel setting was not restored");
        }
    }
}

/// Hides kernel addresses from processes without `CAP_SYSLOG`, and shows them to those with it
/// (`kallsyms_show_value` of `kernel/ksyms_common.c`). `CAP_PERFMON` suffices to sample.
#[must_use]
pub fn hide_kernel_addresses() -> [Sysctl; 2] {
    [Sysctl::set("perf_event_paranoid", 2), Sysctl::set("kptr_restrict", 1)]
}

fn path(name: &str) -> PathBuf {
    format!("/proc/sys/kernel/{name}").into()
}

fn read(name: &str) -> i32 {
    let path = path(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().parse().expect("a setting is a number")
}
