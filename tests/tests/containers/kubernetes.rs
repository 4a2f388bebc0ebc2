//! Tests Kubernetes pods as targets, under containerd.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use profiler::{Format, Profile};
use profiler_agent::naming::{Naming, NamingOptions};
use profiler_tests::{
    FoldedStacks, Outcome, Recorder, profiler, run_beside_others, run_command, wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    containerd::{Containerd, Pod, only_child},
    pod::has_signal_thread,
};

/// A containerd with the containers `app` and `proxy` of `web-0` and `app` of `web-1`, each with a workload of its own.
fn start() -> Containerd {
    let workloads = ["shares-static", "jit-static", "syscalls-static"];
    let containerd = Containerd::start(&workloads.map(workload_path));
    containerd.run(&[
        Pod {
            namespace: "shop",
            name: "web-0",
            uid: "0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
            containers: json!({"app": ["/bin/shares-static", "300"], "proxy": ["/bin/jit-static", "300"]}),
        },
        Pod {
            namespace: "shop",
            name: "web-1",
            uid: "1d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
            containers: json!({"app": ["/bin/syscalls-static", "300"]}),
        },
    ]);
    containerd
}

/// The profiler with a target, for a second.
fn profile_of(target: &[&str], output: &str) -> Command {
    profiler(&[target, &["-q", "-d", "1", "-F", "1999", "-o", output]].concat())
}

/// The names of the sampled processes.
fn sampled(run: &Outcome) -> BTreeSet<String> {
    assert_eq!(run.code(), 0, "{}", run.stderr);
    FoldedStacks::parse(&run.stdout).0.into_iter().map(|stack| stack.comm).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_pod_is_sampled_by_its_name_with_all_containers_or_one() {
    let Some(_lock) = run_beside_others() else { return };
    let containerd = start();
    let whole = ["--pod", "web-0", "-n", "shop"];
    let app = ["--pod", "web-0", "-n", "shop", "--pod-container", "app"];
    let of_pod = |target: &[&str]| run_command(&mut containerd.inside(&profile_of(target, "-.folded")));
    assert_eq!(sampled(&of_pod(&whole)), set(&["shares-static", "jit-static"]));
    assert_eq!(sampled(&of_pod(&app)), set(&["shares-static"]));
    assert_eq!(sampled(&of_pod(&["--pod", "web-1"])), set(&["syscalls-static"]));

    let host_pid = |target: &[&str]| run_command(&mut containerd.beside(&profile_of(target, "-.folded")));
    assert_eq!(sampled(&host_pid(&whole)), set(&["shares-static", "jit-static"]));
    assert_eq!(sampled(&host_pid(&app)), set(&["shares-static"]));

    let ambiguous = of_pod(&["--pod", "web", "-n", "shop"]);
    assert_eq!(ambiguous.code(), 1, "{}", ambiguous.stdout);
    assert!(ambiguous.stderr.contains("shop/web-0, shop/web-1"), "{}", ambiguous.stderr);
    let missing = of_pod(&["--pod", "web-0", "-n", "test"]);
    assert!(missing.stderr.contains("in the namespace `test`"), "{}", missing.stderr);
}

#[test]
fn samples_have_the_names_of_their_pods_and_containers() {
    let Some(_lock) = run_beside_others() else { return };
    let containerd = start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.profile");
    let run = run_command(&mut containerd.inside(&profile_of(&["-a"], path.to_str().unwrap())));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let profile = Profile::read(std::fs::File::open(path).unwrap()).unwrap();
    for (comm, expected) in [
        ("shares-static", ["shop", "web-0", "app"]),
        ("jit-static", ["shop", "web-0", "proxy"]),
        ("syscalls-static", ["shop", "web-1", "app"]),
    ] {
        let process = profile.processes().iter().find(|process| profile.string(process.comm) == comm);
        let names = process.unwrap().kubernetes.unwrap();
        let names = [names.namespace, names.pod, names.container.unwrap()];
        assert_eq!(names.map(|name| profile.string(name)), expected);
    }
    let mut pprof = Vec::new();
    Format::Pprof.write(&profile, &mut pprof).unwrap();
    let mut decoded = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*pprof), &mut decoded).unwrap();
    for label in ["k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "web-1", "proxy"] {
        let label = label.as_bytes();
        assert!(decoded.windows(label.len()).any(|window| window == label), "{label:?}");
    }
}

#[test]
fn every_sample_of_a_pod_has_its_resource_also_after_a_restart() {
    let Some(_lock) = run_beside_others() else { return };
    let containerd = Containerd::start(&[workload_path("shares-static")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.profile");
    let of_node = profiler(&["-a", "-q", "-F", "199", "-o", path.to_str().unwrap()]);
    let mut recording = containerd.inside(&of_node).stdin(Stdio::null()).spawn().unwrap();
    // `nsenter` has the profiler as a child.
    let recorder = wait_until("the profiler to sample", || {
        only_child(recording.id()).filter(|pid| has_signal_thread(*pid))
    });
    containerd.run(&[Pod {
        namespace: "shop",
        name: "web-7d4b9c6f5-x2k7p",
        uid: "2d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e",
        containers: json!({
            "app": [["/bin/shares-static", "300"], ["/bin/shares-static", "300"]],
            "claims": ["/bin/busybox", "env", "OTEL_SERVICE_NAME=shop-web", "/bin/shares-static", "300"],
        }),
    }]);
    containerd.await_samples("shares-static", 2);
    kill_process(Pid::from_raw(recorder.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert_eq!(recording.wait().unwrap().code(), Some(0));
    let profile = Profile::read(std::fs::File::open(path).unwrap()).unwrap();

    let options = NamingOptions::of_node(Some("node-1".to_owned())).unwrap();
    let window = Naming::new(options).unwrap().window(profile);
    let mut resources = BTreeSet::new();
    for sample in window.profile().samples() {
        let process = window.profile().thread(sample.thread).process;
        if window.profile().string(window.profile().process(process).comm) == "shares-static" {
            resources.insert(window.resource_of(process));
        }
    }
    let attributes: Vec<_> = resources.iter().map(|index| &window.resources()[*index].attributes).collect();
    let services: Vec<_> = attributes
        .iter()
        .map(|of| (of["k8s.container.name"].as_str(), of["service.name"].as_str()))
        .collect();
    assert_eq!(services.iter().filter(|service| **service == ("app", "web")).count(), 2, "{attributes:#?}");
    assert_eq!(
        services.iter().filter(|service| **service == ("claims", "shop-web")).count(),
        1,
        "{attributes:#?}"
    );
    assert_eq!(services.len(), 3, "{attributes:#?}");
    for of in attributes {
        assert_eq!((&*of["k8s.namespace.name"], &*of["k8s.pod.name"]), ("shop", "web-7d4b9c6f5-x2k7p"));
        assert_eq!(of["k8s.pod.uid"], "2d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e");
        assert_eq!(of["container.image.name"], "docker.io/local/workloads:1");
        assert_eq!(of["k8s.node.name"], "node-1");
    }
}

/// A StatefulSet replaces a pod by one with the same name.
#[test]
fn the_next_pod_with_the_name_is_followed() {
    let Some(_lock) = run_beside_others() else { return };
    let containerd = Containerd::start(&[workload_path("shares-static")]);
    let start = |uid| {
        let containers = json!({"app": ["/bin/shares-static", "300"]});
        containerd.run(&[Pod { namespace: "shop", name: "worker-0", uid, containers }]);
    };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("part-%n.profile");
    let options = ["record", "--follow", "--rotate", "60s", "--pod", "worker-0", "-n", "shop", "-o"];
    let command = profiler(&[&options[..], &[output.to_str().unwrap()]].concat());
    let mut recorder = Recorder::run(&mut containerd.inside(&command));
    recorder.wait_for("event=waiting");
    for uid in ["3d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e", "4d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e"] {
        start(uid);
        recorder.wait_for("event=started");
        containerd.await_samples("shares-static", 1);
        containerd.remove_pods();
        recorder.wait_for("event=waiting");
    }
    // With its PID namespace, all of its processes end.
    drop(containerd);
    assert_eq!(recorder.end().0, Vec::<String>::new());
    let processes = ["part-1.profile", "part-2.profile"].map(|name| {
        let profile = Profile::read(std::fs::File::open(folder.path().join(name)).unwrap()).unwrap();
        let names = profile.processes().iter().filter_map(|process| process.kubernetes);
        let pods: BTreeSet<_> = names.map(|names| profile.string(names.pod).to_owned()).collect();
        assert_eq!(pods, set(&["worker-0"]), "{name}");
        // The process of the container runtime that executes the program is in the pod as well.
        let sampled = profile.samples().iter().map(|sample| profile.thread(sample.thread).process);
        let of_program = sampled
            .map(|process| profile.process(process))
            .filter(|process| profile.string(process.comm) == "shares-static");
        of_program.map(|process| process.pid).collect::<BTreeSet<_>>()
    });
    assert!(processes.iter().all(|pids| pids.len() == 1), "{processes:?}");
    assert!(processes[0].is_disjoint(&processes[1]), "{processes:?}");
}
