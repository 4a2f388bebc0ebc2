//! A container for the .NET workloads, by runc: with namespaces and a root of its own, in the network of the host.

#![cfg(feature = "commands")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use fs_err as fs;
use serde_json::{Value, json};

use crate::{process::wait_for, shell};

/// What a .NET runtime needs of the host's.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// The folder of the .NET workloads, inside.
pub(crate) const DOTNET: &str = "/dotnet";

/// A container to start. Dropping it ends and removes it.
pub(crate) struct Container {
    folder: PathBuf,
    name: String,
}

impl Container {
    /// Makes one in `folder`, where `dotnet` is shown as [`DOTNET`]. It runs `arguments` with no variables but these.
    pub(crate) fn new(
        folder: &Path,
        dotnet: &Path,
        arguments: &[String],
        variables: &[String],
    ) -> Result<Self> {
        let name = format!("profiler-{}", std::process::id());
        let container = Self { folder: folder.join("container"), name };
        container.remove();
        for place in ["proc", "tmp", "dev"] {
            fs::create_dir_all(container.folder.join("root").join(place))?;
        }
        let config = config(&container.name, dotnet, arguments, variables)?;
        fs::write(container.folder.join("config.json"), config.to_string())?;
        Ok(container)
    }

    /// What runs it in the foreground.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.runc();
        command.args(["run", "--bundle"]).arg(&self.folder);
        command.arg("--pid-file").arg(self.pid_file()).arg(&self.name);
        command
    }

    /// The host's id of the first process, which runc writes to a file once that process runs.
    pub(crate) fn pid(&self) -> Result<u32> {
        const START_DEADLINE: Duration = Duration::from_secs(5);
        wait_for(START_DEADLINE, "runc has not written the pid of a container", || {
            Ok(fs::read_to_string(self.pid_file()).unwrap_or_default().parse().ok())
        })
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn runc(&self) -> Command {
        let mut runc = shell::as_root("runc");
        runc.arg("--root").arg(self.folder.join("state"));
        runc
    }

    fn remove(&self) {
        // An error: the container has ended, as most have by now.
        let _ = self.runc().args(["delete", "--force", &self.name]).stderr(Stdio::null()).status();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.remove();
    }
}

/// config.json of the OCI runtime specification.
fn config(name: &str, dotnet: &Path, arguments: &[String], variables: &[String]) -> Result<Value> {
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &[]),
        mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755"]),
        mount(DOTNET, "bind", path_text(dotnet)?, &["rbind", "ro"]),
    ];
    for libraries in LIBRARIES {
        let source = Path::new(libraries).canonicalize()?;
        mounts.push(mount(libraries, "bind", path_text(&source)?, &["rbind", "ro"]));
    }
    let namespaces = ["mount", "ipc", "uts", "pid"].map(|kind| json!({"type": kind}));
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": arguments,
            "env": variables,
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {},
        },
        "root": {"path": "root"},
        "mounts": mounts,
        "linux": {"namespaces": namespaces, "cgroupsPath": format!("/{name}")},
    }))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn mount(at: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": at, "type": kind, "source": source, "options": options})
}
