//! What a container is made of, written as the configuration of an OCI runtime.

use std::path::{Path, PathBuf};

use profiler_tests::{Outcome, built, outcome};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use serde_json::{Value, json};

use crate::{bundle::Bundle, container::Container};

/// What container runtimes grant when they are not asked for more.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The least set with which the profiler does all that it can.
pub(crate) const LEAST_CAPABILITIES: &[&str] =
    &["BPF", "PERFMON", "SYS_PTRACE", "SYSLOG", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE", "SYS_RESOURCE"];

/// How many ids a user namespace maps.
const MAPPED_IDS: u32 = 65_536;

/// A container to be.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    arguments: Vec<String>,
    environment: Vec<String>,
    /// Goes into `/bin`.
    programs: Vec<PathBuf>,
    capabilities: Vec<&'static str>,
    user: u32,
    first_host_id: Option<u32>,
    pid_namespace: Option<String>,
    has_own_network: bool,
    mounts: Vec<Value>,
    read_only: bool,
    cgroup: String,
}

impl Recipe {
    /// A container with a busybox in which these words are executed.
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self {
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            environment: vec!["PATH=/bin".to_owned()],
            programs: Vec::new(),
            capabilities: DEFAULT_CAPABILITIES.to_vec(),
            user: 0,
            first_host_id: None,
            pid_namespace: None,
            has_own_network: true,
            mounts: vec![
                mount("/proc", "proc", "proc", &[]),
                mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]),
                mount("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755"]),
            ],
            read_only: false,
            cgroup: "c".to_owned(),
        }
    }

    /// A container with one of the workloads as its first process.
    pub(crate) fn workload(name: &str, arguments: &[&str]) -> Self {
        let words = [&[name], arguments].concat();
        Self::new(&words).program(&built(name))
    }

    /// Puts a program into it.
    pub(crate) fn program(mut self, path: &Path) -> Self {
        self.programs.push(path.to_owned());
        self
    }

    /// Adds a variable, as `NAME=value`.
    pub(crate) fn variable(mut self, variable: &str) -> Self {
        self.environment.push(variable.to_owned());
        self
    }

    /// Grants these capabilities and no others.
    pub(crate) fn capabilities(mut self, names: &[&'static str]) -> Self {
        self.capabilities = names.to_vec();
        self
    }

    /// Runs it as another user than root.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.user = uid;
        self
    }

    /// Gives it a user namespace whose first user is this one of the host.
    pub(crate) fn user_namespace(mut self, first_host_id: u32) -> Self {
        self.first_host_id = Some(first_host_id);
        self
    }

    /// Puts it into the pid namespace of a process.
    pub(crate) fn in_pid_namespace_of(mut self, pid: u32) -> Self {
        self.pid_namespace = Some(format!("/proc/{pid}/ns/pid"));
        self
    }

    /// Leaves it in the host's network, as a pod with `hostNetwork` is.
    pub(crate) fn in_network_of_host(mut self) -> Self {
        self.has_own_network = false;
        self
    }

    /// Makes its root read-only.
    pub(crate) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Shows it a folder of the host, to read.
    pub(crate) fn shows(mut self, folder: &Path, at: &str) -> Self {
        let folder = folder.to_str().expect("paths of the project are UTF-8");
        self.mounts.push(mount(at, "bind", folder, &["rbind", "ro"]));
        self
    }

    /// Mounts a file system.
    pub(crate) fn mounts(mut self, at: &str, kind: &str, options: &[&str]) -> Self {
        self.mounts.push(mount(at, kind, kind, options));
        self
    }

    /// Puts it there, below a cgroup that is this test's own.
    pub(crate) fn cgroup(mut self, path: &str) -> Self {
        self.cgroup = path.to_owned();
        self
    }

    /// Starts it, and waits until it says that it is ready.
    pub(crate) fn start(&self) -> Container {
        Container::start(self.bundle())
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Outcome {
        outcome(&mut self.bundle().command())
    }

    fn bundle(&self) -> Bundle {
        Bundle::new(&self.programs, self.first_host_id, |cgroups| self.config(cgroups))
    }

    /// config.json of the OCI runtime specification.
    fn config(&self, cgroups: &str) -> Value {
        let capabilities = self.capabilities.iter().filter(|name| is_grantable(name));
        let capabilities = json!(capabilities.map(|name| format!("CAP_{name}")).collect::<Vec<_>>());
        let mut namespaces = vec![
            json!({"type": "mount"}),
            json!({"type": "ipc"}),
            json!({"type": "uts"}),
            match &self.pid_namespace {
                Some(path) => json!({"type": "pid", "path": path}),
                None => json!({"type": "pid"}),
            },
        ];
        if self.has_own_network {
            namespaces.push(json!({"type": "network"}));
        }
        let mut mappings = json!([]);
        if let Some(first) = self.first_host_id {
            namespaces.push(json!({"type": "user"}));
            mappings = json!([{"containerID": 0, "hostID": first, "size": MAPPED_IDS}]);
        }
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": self.user, "gid": self.user},
                "args": self.arguments,
                "env": self.environment,
                "cwd": "/",
                "noNewPrivileges": true,
                "capabilities": {
                    "bounding": capabilities,
                    "effective": capabilities,
                    "permitted": capabilities,
                    "inheritable": capabilities,
                    "ambient": capabilities,
                },
            },
            "root": {"path": "root", "readonly": self.read_only},
            "mounts": self.mounts,
            "linux": {
                "namespaces": namespaces,
                "uidMappings": mappings,
                "gidMappings": mappings,
                "cgroupsPath": format!("{cgroups}/{}", self.cgroup),
            },
        })
    }
}

fn mount(at: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": at, "type": kind, "source": source, "options": options})
}

/// Nobody can grant what he has not: virtual machines tend to lack one or the other.
pub(crate) fn is_grantable(name: &str) -> bool {
    name != "SYS_RESOURCE"
        || capability_is_in_bounding_set(CapabilitySet::SYS_RESOURCE).is_ok_and(|is_in| is_in)
}
