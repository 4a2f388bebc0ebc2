//! A containerd for a test, with pods that its CRI service starts.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use profiler_tests::{run_command, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bundle::{make_root, remove_cgroups},
    image::digest,
};

const SOCKET: &str = "/run/containerd/containerd.sock";

/// The image of all containers and sandboxes.
const IMAGE: &str = "docker.io/local/workloads:1";

/// What a sandbox executes.
const PAUSE: [&str; 3] = ["/bin/busybox", "sleep", "600"];

/// A running containerd in mount and PID namespaces of its own, with its own `/run`. Dropping it ends all containers.
pub(crate) struct Containerd {
    /// `unshare`, whose end ends the PID namespace.
    namespaces: Child,
    /// The host's pid of containerd.
    pid: u32,
    folder: TempDir,
    /// The parent of the cgroups of all pods.
    cgroups: String,
}

/// A pod of the class Burstable, with the cgroup driver `cgroupfs`.
pub(crate) struct Pod {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) uid: &'static str,
    /// The containers by name, with the command of each, a list of commands for one that is restarted, or settings: see
    /// `cri.py`.
    pub(crate) containers: Value,
}

impl Containerd {
    /// Starts containerd with an image that contains these programs, and busybox.
    pub(crate) fn start(programs: &[PathBuf]) -> Self {
        const SCRIPT: &str = r#"mount -t tmpfs tmpfs /run && exec containerd --config "$0""#;
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        fs::write(&config, configuration(folder.path())).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", SCRIPT]);
        command.arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.path().join("log")).unwrap());
        let namespaces = command.spawn().unwrap();
        let pid = wait_until("containerd", || only_child(namespaces.id()));
        let cgroups = format!("/profiler-tests-containerd-{pid}");
        let containerd = Self { namespaces, pid, folder, cgroups };
        wait_until("containerd to answer", || {
            assert!(fs::exists(format!("/proc/{pid}")).unwrap(), "it has ended: {}", containerd.log());
            let version = run_command(&mut containerd.inside(Command::new("ctr").arg("version")));
            version.status.success().then_some(())
        });
        containerd.import(programs);
        containerd
    }

    /// Starts pods, and returns the exit codes of the containers that are waited for.
    pub(crate) fn run(&self, pods: &[Pod]) -> String {
        let pods: Vec<_> = pods.iter().map(|pod| self.request(pod)).collect();
        self.call(&json!({ "start": pods }))
    }

    /// Ends and removes all pods, with their cgroups.
    pub(crate) fn remove_pods(&self) {
        self.call(&json!({ "remove": true }));
        remove_cgroups(&self.cgroups);
    }

    /// Calls the CRI service, see `cri.py`.
    fn call(&self, requests: &Value) -> String {
        let packages = profiler_tests::file("../target/readers/grpcio");
        assert!(packages.is_dir(), "{} is missing: run `cargo xtask setup`", packages.display());
        let file = self.folder.path().join("requests.json");
        fs::write(&file, requests.to_string()).unwrap();
        let script = profiler_tests::file("tests/containers/cri.py");
        let mut python = Command::new("sh");
        python.args(["-c", r#"exec env PYTHONPATH="$0" python3 "$1" "$2" "$3" < "$4""#]).arg(packages);
        python.arg(script).args([SOCKET, IMAGE]).arg(file);
        let run = run_command(&mut self.inside(&python));
        assert_eq!(run.code(), 0, "{}{}", run.stderr, self.log());
        run.stdout
    }

    /// The running processes of the pods with this name, by the host's pids.
    pub(crate) fn processes(&self, comm: &str) -> Vec<u32> {
        let below = format!("{}/", self.cgroups);
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_one = |pid: &u32| {
            let of_process = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            of_process("comm").trim_end() == comm && of_process("cgroup").contains(&below)
        };
        pids.filter(is_one).collect()
    }

    /// Waits until so many processes of the pods with this name run, and each has computed long enough to have samples.
    pub(crate) fn await_samples(&self, comm: &str, count: usize) {
        const CPU_TIME_NS: u64 = 300_000_000;
        let pids = wait_until(comm, || Some(self.processes(comm)).filter(|pids| pids.len() == count));
        for pid in pids {
            let path = format!("/proc/{pid}/schedstat");
            let ran_ns = || fs::read_to_string(&path).ok()?.split(' ').next()?.parse::<u64>().ok();
            let end_ns = ran_ns().unwrap() + CPU_TIME_NS;
            wait_until("the CPU time of a process", || (ran_ns()? >= end_ns).then_some(()));
        }
    }

    /// Imports an image in the image layout of the OCI specification, and gives it a second name.
    pub(crate) fn import_layout(&self, archive: &Path, name: &str, second_name: &str) {
        let mut import = Command::new("ctr");
        import.args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "native"]).arg(archive);
        let mut tag = Command::new("ctr");
        tag.args(["--namespace", "k8s.io", "images", "tag", name, second_name]);
        for command in [import, tag] {
            let run = run_command(&mut self.inside(&command));
            assert_eq!(run.code(), 0, "{}", run.stderr);
        }
    }

    /// A command in both namespaces of containerd.
    pub(crate) fn inside(&self, command: &Command) -> Command {
        self.enter(&["--mount"], command)
    }

    /// A command in the PID namespace of containerd with the file system of the host, like a pod with `hostPID`: there the
    /// root directory of process 1 has the files of containerd.
    pub(crate) fn beside(&self, command: &Command) -> Command {
        let mut remounted = Command::new("unshare");
        remounted.args(["--mount-proc", "--"]).arg(command.get_program()).args(command.get_args());
        self.enter(&[], &remounted)
    }

    fn enter(&self, namespaces: &[&str], command: &Command) -> Command {
        let mut entered = Command::new("nsenter");
        entered.args(["--target", &self.pid.to_string(), "--pid"]).args(namespaces);
        entered.arg("--").arg(command.get_program()).args(command.get_args());
        entered
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn import(&self, programs: &[PathBuf]) {
        let archive = self.folder.path().join("image.tar");
        write_image(self.folder.path(), programs, &archive);
        let mut ctr = Command::new("ctr");
        ctr.args(["--namespace", "k8s.io", "images", "import", "--snapshotter", "native"]).arg(archive);
        let run = run_command(&mut self.inside(&ctr));
        assert_eq!(run.code(), 0, "{}", run.stderr);
    }

    fn request(&self, Pod { namespace, name, uid, containers }: &Pod) -> Value {
        let cgroup_parent = format!("{}/kubepods/burstable/pod{uid}", self.cgroups);
        json!({
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "cgroup_parent": cgroup_parent,
            "containers": containers,
        })
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.namespaces.kill();
        let _ = self.namespaces.wait();
        remove_cgroups(&self.cgroups);
    }
}

/// The configuration of containerd: nothing outside of its folder and of `/run`.
fn configuration(folder: &Path) -> String {
    format!(
        r#"version = 2
root = "{}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
# A virtual machine may lack CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#,
        folder.join("root").display()
    )
}

/// Writes an image as `docker save` does: of one layer.
fn write_image(folder: &Path, programs: &[PathBuf], archive: &Path) {
    let root = folder.join("image");
    make_root(&root, programs, None);
    let mut layer = tar::Builder::new(Vec::new());
    layer.follow_symlinks(false);
    layer.append_dir_all(".", &root).unwrap();
    let layer = layer.into_inner().unwrap();
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": PAUSE},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    let mut image = tar::Builder::new(File::create(archive).unwrap());
    let files = [
        ("manifest.json", manifest.to_string().into()),
        ("config.json", config.to_string().into()),
        ("layer.tar", layer),
    ];
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        image.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    image.finish().unwrap();
}

/// The only child of a process.
pub(crate) fn only_child(pid: u32) -> Option<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
}
