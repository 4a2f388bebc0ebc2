//! Runs containers of the release image with the security context of a manifest, configured like containerd's CRI
//! plugin.

use std::process::{Child, Stdio};

use profiler_tests::{Outcome, run_command, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{bundle::Bundle, image::Image, manifest::Manifest, seccomp};

/// Paths in `/proc` that containerd masks.
pub(crate) const MASKED_PATHS: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

/// Paths that containerd mounts read-only.
pub(crate) const READ_ONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// A container of the release's image.
pub(crate) struct ImageContainer {
    bundle: Bundle,
}

impl ImageContainer {
    /// Prepares a container with the security context of `manifest` in the PID namespace of a process, without the
    /// capability `missing`.
    pub(crate) fn new(
        manifest: &Manifest,
        pid_namespace_of: u32,
        arguments: &[String],
        missing: Option<&str>,
    ) -> Self {
        let image = Image::open();
        let words = [image.entrypoint(), arguments.to_vec()].concat();
        let config = |cgroups: &str| config(manifest, pid_namespace_of, &words, missing, cgroups);
        Self { bundle: Bundle::with_root(|root| image.unpack_into(root), config) }
    }

    /// Runs the container until it ends.
    pub(crate) fn run(&self) -> Outcome {
        run_command(&mut self.bundle.command())
    }

    /// Starts the container and waits until its profiler samples.
    pub(crate) fn start(self) -> RunningImage {
        let mut command = self.bundle.command();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let runtime = command.spawn().unwrap();
        let pid = self.bundle.pid();
        wait_until("the profiler in the container to sample", || has_signal_thread(pid).then_some(()));
        RunningImage { runtime, pid, bundle: self.bundle }
    }
}

/// A running container of the release image. Dropping it kills the container.
pub(crate) struct RunningImage {
    runtime: Child,
    pid: u32,
    bundle: Bundle,
}

impl RunningImage {
    /// The host's pid of the first process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Executes another program in the container, like `kubectl exec`.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Outcome {
        run_command(&mut self.bundle.exec(arguments))
    }
}

impl Drop for RunningImage {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // Fails if the container has ended with its PID namespace.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.runtime.wait();
    }
}

/// Whether the process has the thread that waits for signals, which starts before sampling does.
pub(crate) fn has_signal_thread(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut names = tasks.flatten().map(|task| std::fs::read(task.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name == b"signals\n"))
}

/// config.json of the OCI runtime specification.
fn config(
    manifest: &Manifest,
    pid_namespace_of: u32,
    words: &[String],
    missing: Option<&str>,
    cgroups: &str,
) -> Value {
    let mut capabilities = manifest.capabilities();
    capabilities.retain(|name| Some(name.as_str()) != missing);
    let names: Vec<_> = capabilities.iter().map(|name| format!("CAP_{name}")).collect();
    let user = manifest.security("/runAsUser");
    let mut linux = json!({
        "namespaces": [
            {"type": "mount"},
            {"type": "ipc"},
            {"type": "uts"},
            {"type": "network"},
            {"type": "cgroup"},
            {"type": "pid", "path": format!("/proc/{pid_namespace_of}/ns/pid")},
        ],
        "maskedPaths": MASKED_PATHS,
        "readonlyPaths": READ_ONLY_PATHS,
        "cgroupsPath": format!("{cgroups}/profiler"),
    });
    match manifest.security("/seccompProfile/type").as_str() {
        Some("RuntimeDefault") => linux["seccomp"] = seccomp::profile(&capabilities),
        Some("Unconfined") => {}
        other => panic!("no such seccomp profile: {other:?}"),
    }
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": 0},
            "args": words,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": manifest.security("/allowPrivilegeEscalation") == false,
            "capabilities": {"bounding": names, "effective": names, "permitted": names},
        },
        "root": {"path": "root", "readonly": manifest.security("/readOnlyRootFilesystem")},
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ],
        "linux": linux,
    })
}

fn mount(at: &str, kind: &str, options: &[&str]) -> Value {
    json!({"destination": at, "type": kind, "source": kind, "options": options})
}
