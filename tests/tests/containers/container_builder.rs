//! Builds the OCI runtime configuration of a test container.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use profiler_tests::{Outcome, run_command, workload_path};
use rustix::{
    fs::{major, minor},
    thread::{CapabilitySet, capability_is_in_bounding_set},
};
use serde_json::{Value, json};

use crate::{bundle::Bundle, container::Container};

/// Capabilities that container runtimes grant by default.
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

/// The minimal capabilities with which all features of the profiler work.
pub(crate) const LEAST_CAPABILITIES: &[&str] =
    &["BPF", "PERFMON", "SYS_PTRACE", "SYSLOG", "DAC_READ_SEARCH", "CHECKPOINT_RESTORE", "SYS_RESOURCE"];

/// Number of ids that a user namespace maps.
const MAPPED_IDS: u32 = 65_536;

/// The period of a CPU quota.
const CPU_PERIOD_US: u32 = 100_000;

/// The configuration of a container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerBuilder {
    arguments: Vec<String>,
    environment: Vec<String>,
    /// Programs that are copied into `/bin`.
    programs: Vec<PathBuf>,
    capabilities: Vec<&'static str>,
    user: u32,
    first_host_id: Option<u32>,
    pid_namespace: Option<String>,
    has_own_network: bool,
    mounts: Vec<Value>,
    read_only: bool,
    cgroup: String,
    /// The CPU time that its cgroup may use in a period of 100 ms, microseconds.
    cpu_quota_us: Option<u32>,
    /// The memory that its cgroup may use.
    memory_limit_bytes: Option<u64>,
    /// The disk, and the reads from it that its cgroup may do in a second.
    read_limit: Option<(BlockDevice, u32)>,
}

/// A disk with all of its partitions.
#[derive(Clone, Copy, Debug)]
struct BlockDevice {
    major: u32,
    minor: u32,
}

impl ContainerBuilder {
    /// A container with busybox that executes this command line.
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
            cpu_quota_us: None,
            memory_limit_bytes: None,
            read_limit: None,
        }
    }

    /// A container whose first process is a workload.
    pub(crate) fn workload(name: &str, arguments: &[&str]) -> Self {
        let words = [&[name], arguments].concat();
        Self::new(&words).program(&workload_path(name))
    }

    /// Copies a program into `/bin` of the container.
    pub(crate) fn program(mut self, path: &Path) -> Self {
        self.programs.push(path.to_owned());
        self
    }

    /// Adds an environment variable, as `NAME=value`.
    pub(crate) fn variable(mut self, variable: &str) -> Self {
        self.environment.push(variable.to_owned());
        self
    }

    /// Grants these capabilities and no others.
    pub(crate) fn capabilities(mut self, names: &[&'static str]) -> Self {
        self.capabilities = names.to_vec();
        self
    }

    /// Runs the container as this user instead of root.
    pub(crate) fn user(mut self, uid: u32) -> Self {
        self.user = uid;
        self
    }

    /// Uses a user namespace whose first user has this id on the host.
    pub(crate) fn user_namespace(mut self, first_host_id: u32) -> Self {
        self.first_host_id = Some(first_host_id);
        self
    }

    /// Joins the PID namespace of a process.
    pub(crate) fn in_pid_namespace_of(mut self, pid: u32) -> Self {
        self.pid_namespace = Some(format!("/proc/{pid}/ns/pid"));
        self
    }

    /// Shares the host's network, like a pod with `hostNetwork`.
    pub(crate) fn in_network_of_host(mut self) -> Self {
        self.has_own_network = false;
        self
    }

    /// Makes the root file system read-only.
    pub(crate) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Mounts a folder of the host read-only.
    pub(crate) fn bind_mount(mut self, folder: &Path, at: &str) -> Self {
        let folder = folder.to_str().expect("paths of the project are UTF-8");
        self.mounts.push(mount(at, "bind", folder, &["rbind", "ro"]));
        self
    }

    /// Mounts a file system.
    pub(crate) fn mount(mut self, at: &str, kind: &str, options: &[&str]) -> Self {
        self.mounts.push(mount(at, kind, kind, options));
        self
    }

    /// Sets the cgroup path, below a cgroup of this test.
    pub(crate) fn cgroup(mut self, path: &str) -> Self {
        self.cgroup = path.to_owned();
        self
    }

    /// Limits the CPU time to a share of one CPU, which it has beside any other load.
    pub(crate) fn cpu_quota_percent(mut self, percent: u32) -> Self {
        self.cpu_quota_us = Some(CPU_PERIOD_US / 100 * percent);
        self
    }

    /// Limits the memory.
    pub(crate) fn memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Limits the reads from the disk on which its root folder is.
    pub(crate) fn reads_per_second(mut self, reads: u32) -> Self {
        self.read_limit = Some((BlockDevice::of_temporary_files(), reads));
        self
    }

    /// Starts the container and waits until it is ready.
    pub(crate) fn start(&self) -> Container {
        let container = Container::start(self.bundle());
        if self.cpu_quota_us.is_some() {
            container.precede_others();
        }
        container
    }

    /// Runs the container until it ends.
    pub(crate) fn run(&self) -> Outcome {
        run_command(&mut self.bundle().command())
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
                "resources": self.resources(),
            },
        })
    }

    fn resources(&self) -> Value {
        let mut resources = json!({});
        if let Some(quota_us) = self.cpu_quota_us {
            resources["cpu"] = json!({"quota": quota_us, "period": CPU_PERIOD_US});
        }
        if let Some(bytes) = self.memory_limit_bytes {
            resources["memory"] = json!({"limit": bytes});
        }
        if let Some((BlockDevice { major, minor }, rate)) = self.read_limit {
            let limits = json!([{"major": major, "minor": minor, "rate": rate}]);
            resources["blockIO"] = json!({"throttleReadIOPSDevice": limits});
        }
        resources
    }
}

impl BlockDevice {
    /// A limit of a cgroup is for whole disks: that of a partition is in the directory above (`/sys/dev/block`, sysfs(5)).
    fn of_temporary_files() -> Self {
        let device = fs::metadata(std::env::temp_dir()).unwrap().dev();
        let directory = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        let is_partition = directory.join("partition").exists();
        let directory = if is_partition { directory.join("..") } else { directory };
        let numbers = fs::read_to_string(directory.join("dev")).expect("temporary files are on a disk");
        let (major, minor) = numbers.trim().split_once(':').unwrap();
        Self { major: major.parse().unwrap(), minor: minor.parse().unwrap() }
    }
}

fn mount(at: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": at, "type": kind, "source": source, "options": options})
}

/// Whether this process has the capability and can grant it. Virtual machines may lack some.
pub(crate) fn is_grantable(name: &str) -> bool {
    name != "SYS_RESOURCE"
        || capability_is_in_bounding_set(CapabilitySet::SYS_RESOURCE).is_ok_and(|is_in| is_in)
}
