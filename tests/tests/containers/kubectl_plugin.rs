//! Tests the plugin `kubectl profiler`: kubectl starts it and sends its requests to an API server of the test. `kubectl
//! exec` alone is replaced: it runs the profiler here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use profiler_tests::{
    FoldedStacks, Outcome, profiler, run_beside_others, run_command, wait_until, workload_path, write_program,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    api_server::{ApiServer, Cluster, SUFFIX},
    containerd::{self, Containerd},
    deployment::validate,
    kustomization::{daemon_set, kubectl},
    manifest::Manifest,
};

/// The pod `shop/web-0` with the containers `app` and `proxy`, on a node whose kubelet starts pods at the second request.
fn cluster() -> Cluster {
    Cluster {
        pod: json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"nodeName": "node-1", "containers": [{"name": "app"}, {"name": "proxy"}]},
            "status": {"phase": "Running"},
        }),
        statuses: vec![json!({"phase": "Pending"}), json!({"phase": "Running"})],
        refusal: None,
        log: "",
    }
}

/// kubectl with the plugin, an API server, and a program in place of the profiler in the pod.
struct Installation {
    server: ApiServer,
    folder: TempDir,
}

impl Installation {
    fn new(cluster: Cluster, profiler: &str) -> Self {
        let server = ApiServer::start(cluster);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("kubeconfig"), server.kubeconfig("shop").to_string()).unwrap();
        fs::create_dir(path("bin")).unwrap();
        let script = format!(
            "#!/bin/sh\n\
             [ \"$1\" = exec ] || exec '{}' \"$@\"\n\
             while [ \"$1\" != -- ]; do shift; done\n\
             [ \"$2\" = /profiler ] || exit 99\n\
             shift 2\n\
             {profiler}\n",
            kubectl().display()
        );
        write_program(&path("bin/kubectl"), script.as_bytes());
        Self { server, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `kubectl profiler` with arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let plugins = profiler_tests::file("../deploy/kubectl").canonicalize().unwrap();
        let own = self.path("bin");
        let path = format!("{}:{}:/usr/bin:/bin", own.display(), plugins.display());
        let mut command = Command::new("env");
        command.args([format!("PATH={path}"), format!("KUBECONFIG={}", self.path("kubeconfig").display())]);
        command.arg(format!("HOME={}", self.folder.path().display()));
        command.arg(kubectl()).arg("profiler").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        run_command(&mut self.command(arguments))
    }

    /// Checks that one pod was created and removed, and returns it.
    fn only_pod(&self) -> Value {
        let history = self.server.history();
        assert_eq!(history.created.len(), 1, "{history:?}");
        let namespace = history.created[0]["metadata"]["namespace"].as_str().unwrap();
        let removal = format!("DELETE /api/v1/namespaces/{namespace}/pods/profiler-{SUFFIX}");
        assert_eq!(history.requests.last().unwrap(), &removal, "{history:?}");
        history.created[0].clone()
    }
}

#[test]
fn kubectl_finds_the_plugin_and_shows_its_help() {
    let installation = Installation::new(cluster(), "exit 98");
    let run = installation.run(&["--help"]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stdout.contains("kubectl profiler POD [-n NAMESPACE]"), "{}", run.stdout);
}

#[test]
fn the_plugin_profiles_a_pod_of_a_node_and_removes_its_own() {
    let Some(_lock) = run_beside_others() else { return };
    let node = Containerd::start(&["shares-static", "jit-static"].map(workload_path));
    node.run(&[containerd::Pod {
        namespace: "shop",
        name: "web-0",
        uid: "0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
        containers: json!({"app": ["/bin/shares-static", "300"], "proxy": ["/bin/jit-static", "300"]}),
    }]);
    let program = profiler(&[]);
    let installation =
        Installation::new(cluster(), &format!("exec '{}' \"$@\"", program.get_program().display()));
    let run = |arguments: &[&str]| {
        let run = run_command(&mut node.inside(&installation.command(arguments)));
        assert_eq!(run.code(), 0, "{}", run.stderr);
        run
    };
    let app = run(&["web-0", "-n", "shop", "-c", "app", "-d", "1", "-F", "1999"]);
    assert_only(&app.stdout, "shares-static");
    assert!(app.stderr.contains("0 lost"), "the summary: {}", app.stderr);
    assert_is_pod_of_the_profiler(&installation.only_pod());

    let file = installation.path("proxy.folded");
    let output = format!("--output={}", file.display());
    let written = run(&["pod/web-0", "--container=proxy", "--duration=1s", &output, "--", "-q"]);
    assert_eq!((written.stdout, written.stderr), (String::new(), String::new()));
    assert_only(&fs::read_to_string(file).unwrap(), "jit-static");
}

fn assert_only(folded: &str, comm: &str) {
    let stacks = FoldedStacks::parse(folded);
    assert_eq!(stacks.percent(|stack| stack.comm == comm), 100.0, "{stacks:#?}");
}

fn assert_is_pod_of_the_profiler(pod: &Value) {
    let manifest = Manifest::of_pod(pod.clone());
    assert_eq!(manifest.security_context(), daemon_set().security_context());
    assert_eq!(manifest.image(), daemon_set().image());
    assert_eq!(manifest.value("/spec/nodeName"), "node-1");
    assert_eq!(manifest.value("/spec/hostPID"), true);
    // It ends without the plugin, after the profile of 1 s.
    assert_eq!(manifest.value("/spec/activeDeadlineSeconds"), 602);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.json");
    fs::write(&file, pod.to_string()).unwrap();
    let run = validate(&file);
    assert_eq!(run.code(), 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn the_exit_code_of_the_profiler_is_passed_on_and_no_output_is_left() {
    let installation = Installation::new(cluster(), "echo part; echo no sample >&2; exit 3");
    let output = installation.path("a.folded");
    let run = installation.run(&["web-0", "-o", output.to_str().unwrap()]);
    assert_eq!((run.code(), &*run.stderr), (3, "no sample\n"));
    installation.only_pod();
    let left = fs::read_dir(installation.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("a.folded")));
}

#[test]
fn the_arguments_of_the_profiler_select_the_pod_by_name_and_the_format_by_extension() {
    let installation = Installation::new(cluster(), "printf '%s\\n' \"$@\"");
    let output = installation.path("a.pb.gz");
    let arguments = ["web-0", "-c", "app", "-d", "2m", "-o", output.to_str().unwrap()];
    let run = installation.run(&[&arguments[..], &["--", "--wall", "a b", "-q"]].concat());
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let words = fs::read_to_string(output).unwrap();
    let target = ["--pod", "web-0", "--namespace", "shop", "--pod-container", "app"];
    let expected =
        [&target[..], &["-d", "2m", "-F", "99", "--wall", "a b", "-q", "-o", "-.a.pb.gz"]].concat();
    assert_eq!(words.lines().collect::<Vec<_>>(), expected);
    let pod = installation.only_pod();
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 780);
}

#[test]
fn a_namespace_of_its_own_an_image_and_a_context_can_be_given() {
    let installation = Installation::new(cluster(), "exit 0");
    let arguments = ["web-0", "--profiler-namespace", "profiler", "--image", "registry.example/other:2"];
    let run = installation.run(&arguments);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let pod = installation.only_pod();
    assert_eq!(pod["metadata"]["namespace"], "profiler");
    assert_eq!(pod["spec"]["containers"][0]["image"], "registry.example/other:2");

    let unknown = installation.run(&["web-0", "--context", "elsewhere"]);
    assert_eq!(unknown.code(), 1, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("elsewhere"), "{}", unknown.stderr);
}

#[test]
fn errors_name_what_failed_and_the_remedy() {
    let with = |change: fn(&mut Cluster)| {
        let mut cluster = cluster();
        change(&mut cluster);
        cluster
    };
    let cases = [
        (with(|_| {}), "web-1", "the pod web-1 was not found"),
        (with(|cluster| cluster.pod["spec"] = json!({"containers": []})), "web-0", "is on no node yet"),
        (
            with(|cluster| cluster.pod["status"]["phase"] = json!("Failed")),
            "web-0",
            "does not run: it is Failed",
        ),
        (with(|_| {}), "web-0 -c db", "has no container db, but: app proxy"),
        (
            with(|cluster| cluster.refusal = Some("violates PodSecurity \"baseline:latest\"")),
            "web-0",
            "give --profiler-namespace a namespace with the label",
        ),
        (
            with(|cluster| {
                cluster.statuses = vec![json!({"phase": "Failed"})];
                cluster.log = "profiler: needs CAP_PERFMON";
            }),
            "web-0",
            "profiler: needs CAP_PERFMON",
        ),
        (
            with(|cluster| {
                let waiting = json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}});
                cluster.statuses = vec![json!({"phase": "Pending", "containerStatuses": [waiting]})];
            }),
            "web-0",
            "(ImagePullBackOff): give the image of your registry with --image",
        ),
    ];
    for (cluster, arguments, expected) in cases {
        let installation = Installation::new(cluster, "exit 98");
        let run = installation.run(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(run.code(), 1, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{arguments}: {}", run.stderr);
        if !installation.server.history().created.is_empty() {
            installation.only_pod();
        }
    }
}

#[test]
fn wrong_arguments_are_refused_before_any_request() {
    for (arguments, expected) in [
        ("", "no pod"),
        ("web-0 web-1", "more than one pod: web-0, web-1"),
        ("web-0 --wall", "options of the profiler follow --"),
        ("web-0 -c", "-c needs a value"),
        ("web-0 -d soon", "`soon` is not a duration"),
        ("web-0 -d 5x", "`5x` is not a duration"),
    ] {
        let installation = Installation::new(cluster(), "exit 98");
        let run = installation.run(&arguments.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code(), 2, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{arguments}: {}", run.stderr);
        assert_eq!(installation.server.history().requests, [""; 0], "{arguments}");
    }
}

#[test]
fn a_signal_ends_the_profile_and_removes_the_pod() {
    let profiler = "echo $$ > \"$HOME/pid\"; exec sleep 600";
    let installation = Installation::new(cluster(), profiler);
    let output = installation.path("a.folded");
    let mut command = installation.command(&["web-0", "-o", output.to_str().unwrap()]);
    let mut plugin = command.stdin(Stdio::null()).spawn().unwrap();
    let pid = wait_until("the profile", || read_number(&installation.path("pid")));
    // `env` and kubectl become the plugin.
    let process = Pid::from_child(&plugin);
    kill_process(process, Signal::TERM).unwrap();
    let status = plugin.wait().unwrap();
    assert_eq!(status.code(), Some(143), "{status}");
    installation.only_pod();
    assert!(!output.exists() && !installation.path("a.folded.partial").exists());
    wait_until("the end of the profile", || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

fn read_number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok()
}
