//! Arguments that select the target.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use profiler::Target;

/// Arguments that select the target.
#[derive(Args, Debug)]
pub(in super::super) struct TargetArguments {
    #[command(flatten)]
    kinds: TargetKinds,
    #[command(flatten)]
    pod_selection: PodArguments,
}

/// The kinds of targets, one of them at most. clap drops a group from a structure that flattens another one.
#[derive(Args, Debug)]
#[group(id = "what", multiple = false)]
struct TargetKinds {
    /// Sample these processes, with all their threads
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = parse_id)]
    pid: Vec<u32>,
    /// Sample the process with this name
    ///
    /// As ps shows it, the file name of its program, or of the assembly that dotnet runs (App or App.dll). Several processes with the
    /// name are an error that lists them
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Sample these threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = parse_id)]
    tid: Vec<u32>,
    /// Sample all processes of this machine
    #[arg(short, long)]
    all: bool,
    /// Sample a cgroup and its descendants: a directory, or a path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Sample a container, by a prefix of its id (docker, containerd, cri-o)
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// Sample a Kubernetes pod of this node, by its name or a prefix that only one pod has, with all its containers
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Start this command and sample it and its descendants until it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The targets other than `--pod`. clap does not require an argument that another one excludes.
const OTHER_TARGETS: [&str; 7] = ["pid", "process", "tid", "all", "cgroup", "container", "command"];

/// Arguments that select among the pods with a name, and among their containers.
#[derive(Args, Debug)]
struct PodArguments {
    /// The namespace of --pod [default: any]
    #[arg(short, long, value_name = "NAMESPACE", requires = "pod", conflicts_with_all = OTHER_TARGETS)]
    namespace: Option<String>,
    /// Sample only this container of --pod
    #[arg(long, value_name = "CONTAINER", requires = "pod", conflicts_with_all = OTHER_TARGETS)]
    pod_container: Option<String>,
}

/// Parses the id of a process or thread.
pub(super) fn parse_id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("the ids of processes and threads begin with 1".to_owned()),
        Ok(id) => Ok(id),
        Err(_) => Err("the id of a process or thread is a number; --process selects by name".to_owned()),
    }
}

impl TargetArguments {
    /// Whether the target is a command to start.
    pub(super) fn is_command(&self) -> bool {
        !self.kinds.command.is_empty()
    }

    /// Whether the target has a name that another process, cgroup or pod can have later.
    pub(super) fn is_named(&self) -> bool {
        self.kinds.process.is_some() || self.kinds.cgroup.is_some() || self.kinds.pod.is_some()
    }

    /// The target; `None` if the arguments select none.
    pub(super) fn target(&self) -> Option<Target> {
        let TargetKinds { pid, process, tid, all, cgroup, container, pod, command } = &self.kinds;
        if !pid.is_empty() {
            Some(Target::Pids(pid.clone()))
        } else if let Some(name) = process {
            Some(Target::ProcessName(name.clone()))
        } else if !tid.is_empty() {
            Some(Target::Tids(tid.clone()))
        } else if *all {
            Some(Target::Everything)
        } else if let Some(path) = cgroup {
            Some(Target::Cgroup(path.clone()))
        } else if let Some(id) = container {
            Some(Target::Container(id.clone()))
        } else if let Some(name) = pod {
            let PodArguments { namespace, pod_container } = &self.pod_selection;
            let (namespace, container) = (namespace.clone(), pod_container.clone());
            Some(Target::Pod { name: name.clone(), namespace, container })
        } else if !command.is_empty() {
            Some(Target::Command(command.clone()))
        } else {
            None
        }
    }
}
