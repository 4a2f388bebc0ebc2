//! Runs the release image under containerd as the DaemonSet of `deploy/kubernetes` says: with its security context, memory
//! limit and volumes.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use profiler_tests::{FoldedStacks, OtlpReceiver, Reception, run_beside_others, wait_until, workload_path};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    HOT_CHAIN, assert_jit_named,
    containerd::{Containerd, Pod},
    kustomization::daemon_set,
    manifest::Manifest,
    pod::{MASKED_PATHS, READ_ONLY_PATHS},
    release::release_file,
};

/// The name that containerd gives the image of the release.
fn imported_image() -> String {
    format!("docker.io/library/profiler:{}", env!("CARGO_PKG_VERSION"))
}

/// A node with the pod `shop/web-0`, and the image of the DaemonSet.
fn node(set: &Manifest) -> Containerd {
    let containerd = Containerd::start(&[workload_path("jit-static")]);
    containerd.run(&[Pod {
        namespace: "shop",
        name: "web-0",
        uid: "0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
        containers: json!({"app": ["/bin/jit-static", "300"]}),
    }]);
    containerd.import_layout(&release_file(".tar"), &imported_image(), set.image());
    containerd
}

/// A pod with the settings of the DaemonSet, and its files.
struct AgentPod {
    name: &'static str,
    folder: TempDir,
}

impl AgentPod {
    fn new(name: &'static str) -> Self {
        Self { name, folder: tempfile::tempdir().unwrap() }
    }

    /// Runs the container with other arguments until it ends, and returns its exit code.
    fn run(&self, node: &Containerd, set: &Manifest, arguments: &[&str]) -> String {
        let path = |name: &str| {
            let path = self.folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path.into_os_string().into_string().unwrap()
        };
        let volumes = set.value("/spec/volumes").as_array().unwrap().iter();
        assert!(volumes.clone().all(|volume| volume.get("emptyDir").is_some()));
        let mounts = set.container("/volumeMounts").as_array().unwrap().iter();
        let mounts = mounts
            .map(|mount| (text(&mount["mountPath"]).to_owned(), Value::from(path(text(&mount["name"])))));
        let settings = json!({
            "image": set.image(),
            "args": arguments,
            "env": environment(set),
            "mounts": mounts.collect::<serde_json::Map<_, _>>(),
            "host_pid": set.value("/spec/hostPID"),
            "security_context": set.security_context(),
            "memory_limit_bytes": memory_limit_bytes(set),
            "masked_paths": MASKED_PATHS,
            "read_only_paths": READ_ONLY_PATHS,
            "log_directory": path("log"),
            "ends": true,
        });
        node.run(&[Pod {
            namespace: "profiler",
            name: self.name,
            uid: "2d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
            containers: json!({"profiler": settings}),
        }])
    }

    /// What the container wrote to one of its outputs: lines `TIME STREAM TAG TEXT`, where the tag P marks the part of a line
    /// (`kubelet/pkg/cri/streaming` of Kubernetes; containerd's `pkg/cri/io/logger.go`).
    fn output(&self, stream: &str) -> String {
        // It does not exist before the container starts.
        let log = fs::read_to_string(self.folder.path().join("log/log")).unwrap_or_default();
        let mut output = String::new();
        for line in log.lines() {
            let mut fields = line.splitn(4, ' ').skip(1);
            let [of, tag, text] = [(); 3].map(|()| fields.next().unwrap());
            if of == stream {
                output.push_str(text);
                output.push_str(if tag == "F" { "\n" } else { "" });
            }
        }
        output
    }
}

/// The variables of the container on the node `node-1`.
fn environment(set: &Manifest) -> BTreeMap<&str, String> {
    const NODE: &str = "node-1";
    let value = |variable: &Value| match variable.pointer("/valueFrom/fieldRef/fieldPath") {
        Some(path) if path == "spec.nodeName" => NODE.to_owned(),
        Some(path) => panic!("no value of {path}"),
        None => text(&variable["value"]).replace("$(NODE_NAME)", NODE),
    };
    let variables = set.container("/env").as_array().unwrap().iter();
    variables.map(|variable| (text(&variable["name"]), value(variable))).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn memory_limit_bytes(set: &Manifest) -> u64 {
    let limit = text(set.container("/resources/limits/memory"));
    limit.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 20
}

#[test]
fn a_container_with_the_settings_of_the_daemon_set_profiles_its_node_with_the_names_of_pods() {
    let Some(_lock) = run_beside_others() else { return };
    let set = daemon_set();
    let node = node(&set);
    let pod = AgentPod::new("profiler-agent-x7c2p");
    let arguments = ["-q", "-a", "-d", "2", "-F", "1999", "--per-container", "-o", "-.folded"];
    let code = pod.run(&node, &set, &arguments);
    assert_eq!(code.trim_end(), "0", "{}", pod.output("stderr"));
    assert_eq!(pod.output("stderr"), "");
    let mut stacks = FoldedStacks::parse(&pod.output("stdout"));
    // The frame of the container is above that of the process.
    stacks.0.retain(|stack| stack.has("jit-static"));
    let names = stacks.percent(|stack| stack.comm.ends_with("(shop/web-0/app)"));
    assert!(names > 99.0, "{stacks:#?}");
    assert_jit_named(&stacks);
}

#[test]
fn a_container_with_the_settings_of_the_daemon_set_writes_its_volume_alone() {
    let Some(_lock) = run_beside_others() else { return };
    let set = daemon_set();
    let node = node(&set);
    for (name, file, code) in
        [("refused", "/tmp/a.folded", "1"), ("written", "/var/lib/profiler/a.folded", "0")]
    {
        let pod = AgentPod::new(name);
        let exit = pod.run(&node, &set, &["-q", "-a", "-d", "1", "-o", file]);
        let errors = pod.output("stderr");
        assert_eq!(exit.trim_end(), code, "{file}: {errors}");
        assert_eq!(errors.contains("Read-only file system"), code == "1", "{file}: {errors}");
        assert_eq!(pod.folder.path().join("spool/a.folded").exists(), code == "0", "{file}");
    }
}

/// The body of a response with status 200.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The metrics that the alerts use.
fn metrics_of_the_alerts() -> Vec<String> {
    let rules = fs::read_to_string(profiler_tests::file("../deploy/prometheus/profiler.rules.yaml")).unwrap();
    let words = rules.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    words.filter(|word| word.starts_with("profiler_agent_")).map(str::to_owned).collect()
}

#[test]
fn the_agent_of_the_daemon_set_answers_probes_and_sends_the_names_of_pods() {
    let Some(_lock) = run_beside_others() else { return };
    let receiver = OtlpReceiver::start(Reception::Accept);
    let set = daemon_set();
    let node = node(&set);
    let pod = AgentPod::new("profiler-agent-x7c2p");
    // The network is that of the host, and the port can be in use there.
    let mut arguments = set.arguments(&[("--listen=0.0.0.0:9464", "--listen=127.0.0.1:0")]);
    let destination = format!("--otlp={}", receiver.url());
    arguments.extend([&destination, "--window=1s", "-F", "199"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = std::thread::scope(|scope| {
        let run = scope.spawn(|| pod.run(&node, &set, &arguments));
        let address = wait_until("the agent to listen", || {
            let log = pod.output("stdout");
            let address = log.split_whitespace().find_map(|field| field.strip_prefix("listen="));
            address.map(str::to_owned)
        });
        for probe in ["readiness", "liveness"] {
            let path = text(set.container(&format!("/{probe}Probe/httpGet/path")));
            wait_until(path, || get(&address, path));
        }
        for text in ["k8s.node.name", "node-1", "k8s.namespace.name", "shop", "web-0", HOT_CHAIN[2]] {
            let is_received = || receiver.requests().iter().any(|request| has(&request.body, text));
            wait_until(&format!("a delivery with {text}"), || is_received().then_some(()));
        }
        let metrics = get(&address, "/metrics").unwrap();
        let is_missing = |name: &String| !metrics.contains(&format!("\n# TYPE {name} "));
        let missing: Vec<_> = metrics_of_the_alerts().into_iter().filter(is_missing).collect();
        assert_eq!(missing, [""; 0], "{metrics}");
        let [agent] = node.processes("profiler")[..] else { panic!("not one agent") };
        kill_process(Pid::from_raw(agent.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
        run.join().unwrap()
    });
    assert_eq!(code.trim_end(), "0", "{}{}", pod.output("stdout"), pod.output("stderr"));
    let requests = receiver.requests();
    assert!(requests.iter().all(|request| request.path == "/v1development/profiles"), "{requests:?}");
}
