//! Renders the kustomizations of `deploy/kubernetes` with kubectl, and checks what they deploy.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::run_command;
use serde_json::{Value, json};

use crate::{
    deployment::{debug_container, validate},
    manifest::Manifest,
};

/// The kustomizations that a user applies.
const OVERLAYS: [&str; 2] = ["otlp", "pyroscope"];

/// kubectl from `cargo xtask setup`.
pub(crate) fn kubectl() -> PathBuf {
    let path = profiler_tests::file("../target/readers/kubectl/bin/kubectl");
    assert!(path.is_file(), "{} is missing: run `cargo xtask setup`", path.display());
    path.canonicalize().unwrap()
}

/// The DaemonSet of the base.
pub(crate) fn daemon_set() -> Manifest {
    Manifest::of_workload(only_daemon_set(&documents(&render(&folder().join("base")))))
}

fn folder() -> PathBuf {
    profiler_tests::file("../deploy/kubernetes")
}

fn render(kustomization: &Path) -> String {
    let run = run_command(Command::new(kubectl()).arg("kustomize").arg(kustomization));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(run.stderr, "", "a warning");
    run.stdout
}

/// Renders an overlay of the base with components, in a copy of the folder.
fn render_with(components: &[&str]) -> String {
    let copy = tempfile::tempdir().unwrap();
    let run = run_command(Command::new("cp").arg("-r").arg(folder()).arg(copy.path()));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let overlay = copy.path().join("kubernetes/overlays/tested");
    fs::create_dir(&overlay).unwrap();
    let components: Vec<_> = components.iter().map(|name| format!("../../components/{name}")).collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../base"],
        "components": components,
    });
    fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    render(&overlay)
}

fn documents(rendered: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(rendered).unwrap()
}

fn only_daemon_set(documents: &[Value]) -> &Value {
    let sets: Vec<_> = documents.iter().filter(|document| document["kind"] == "DaemonSet").collect();
    assert_eq!(sets.len(), 1);
    sets[0]
}

fn all_components() -> Vec<String> {
    let entries = fs::read_dir(folder().join("components")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_rendered_document_is_valid() {
    let components = all_components();
    let components: Vec<&str> = components.iter().map(String::as_str).collect();
    let mut all = vec![render(&folder().join("base")), render_with(&components)];
    all.extend(OVERLAYS.map(|name| render(&folder().join("overlays").join(name))));
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("all.yaml");
    fs::write(&file, all.join("\n---\n")).unwrap();
    let run = validate(&file);
    assert_eq!(run.code(), 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn the_base_has_all_that_the_daemon_set_refers_to() {
    let documents = documents(&render(&folder().join("base")));
    let set = only_daemon_set(&documents);
    let pod = &set["spec"]["template"];
    assert_eq!(set["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    let name_of = |kind: &str| {
        let document = documents.iter().find(|document| document["kind"] == kind).unwrap();
        &document["metadata"]["name"]
    };
    assert_eq!(name_of("Namespace"), &set["metadata"]["namespace"]);
    assert_eq!(name_of("ServiceAccount"), &pod["spec"]["serviceAccountName"]);
    assert_eq!(name_of("PriorityClass"), &pod["spec"]["priorityClassName"]);
    let mounts = daemon_set();
    let mounts = mounts.container("/volumeMounts").as_array().unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert_eq!(names(mounts), names(volumes));
}

fn names(values: &[Value]) -> Vec<&Value> {
    values.iter().map(|value| &value["name"]).collect()
}

#[test]
fn the_agent_has_no_more_rights_than_a_profile_of_its_node_needs() {
    let set = daemon_set();
    assert_eq!(set.capabilities(), debug_container().capabilities());
    let expected = json!({
        "runAsUser": 0,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": set.security("/capabilities"),
        "appArmorProfile": {"type": "Unconfined"},
        "seccompProfile": {"type": "Unconfined"},
    });
    assert_eq!(set.security_context(), &expected);
    assert_eq!(set.value("/spec/hostPID"), true);
    assert_eq!(set.value("/spec/automountServiceAccountToken"), false);
    for absent in ["hostNetwork", "hostIPC", "securityContext"] {
        assert_eq!(set.value(&format!("/spec/{absent}")), &Value::Null, "{absent}");
    }
    let volumes = set.value("/spec/volumes").as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()), "{volumes:?}");
    let tag = format!(":{}", env!("CARGO_PKG_VERSION"));
    assert!(set.image().ends_with(&tag), "{}", set.image());
}

#[test]
fn the_spool_fits_into_its_volume_and_probes_use_the_port_of_the_agent() {
    const MIB: u64 = 1 << 20;
    let set = daemon_set();
    let arguments = set.arguments(&[]);
    let value = |option: &str| {
        let value = arguments.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {option} in {arguments:?}"))
    };
    let mib = |text: &str, unit: &str| text.strip_suffix(unit).unwrap().parse::<u64>().unwrap() * MIB;
    let limit = mib(set.value("/spec/volumes/0/emptyDir/sizeLimit").as_str().unwrap(), "Mi");
    assert!(mib(value("--spool-max"), "M") < limit);
    assert_eq!(set.container("/volumeMounts/0/mountPath"), value("--spool"));
    let port = set.container("/ports/0");
    assert!(value("--listen").ends_with(&format!(":{}", port["containerPort"])));
    for (probe, path) in [("liveness", "/healthz"), ("readiness", "/readyz")] {
        let request = set.container(&format!("/{probe}Probe/httpGet"));
        assert_eq!((&request["path"], &request["port"]), (&json!(path), &port["name"]));
    }
}

#[test]
fn overlays_add_their_destination_alone() {
    let base = daemon_set();
    for name in OVERLAYS {
        let overlay = documents(&render(&folder().join("overlays").join(name)));
        let overlay = Manifest::of_workload(only_daemon_set(&overlay));
        assert_eq!(overlay.security_context(), base.security_context());
        let mut arguments = overlay.arguments(&[]);
        let destination = arguments.pop().unwrap();
        assert!(destination.starts_with(&format!("--{name}=http://")), "{destination}");
        assert_eq!(arguments, base.arguments(&[]));
    }
}

#[test]
fn each_component_changes_what_it_is_for() {
    let base = daemon_set();
    let with = |component| {
        let documents = documents(&render_with(&[component]));
        Manifest::of_workload(only_daemon_set(&documents))
    };
    let mut tested = Vec::new();
    for (component, capability) in [
        ("dotnet-services", "DAC_OVERRIDE"),
        ("linux-5.10", "SYS_RESOURCE"),
        ("perf-event-paranoid", "SYS_ADMIN"),
    ] {
        let expected = [base.capabilities(), vec![capability.to_owned()]].concat();
        assert_eq!(with(component).capabilities(), expected, "{component}");
        tested.push(component);
    }
    let paranoid = with("perf-event-paranoid");
    assert_eq!(paranoid.security_context()["allowPrivilegeEscalation"], Value::Null);

    let token = with("bearer-token");
    let file = token.arguments(&[]).pop().unwrap();
    let mount = token.container("/volumeMounts/1");
    assert_eq!(file, format!("--bearer-token-file={}/token", mount["mountPath"].as_str().unwrap()));
    assert_eq!(mount["name"], *token.value("/spec/volumes/1/name"));

    let spool = with("node-spool");
    assert_eq!(names(spool.value("/spec/volumes").as_array().unwrap()), ["spool"]);
    assert_ne!(spool.value("/spec/volumes/0/hostPath/path"), &Value::Null);

    let kubelet = with("kubelet");
    assert_eq!(kubelet.arguments(&[]).pop().unwrap(), "--kubelet=https://$(HOST_IP):10250");
    assert_eq!(kubelet.value("/spec/automountServiceAccountToken"), true);
    assert_eq!(kubelet.security_context(), base.security_context());
    let documents = documents(&render_with(&["kubelet"]));
    let role = documents.iter().find(|document| document["kind"] == "ClusterRole").unwrap();
    assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]));

    tested.extend(["bearer-token", "kubelet", "node-spool"]);
    tested.sort_unstable();
    assert_eq!(all_components(), tested);
}
