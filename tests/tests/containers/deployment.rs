//! Validates the Kubernetes manifests of `deploy/` and runs the release image with their security contexts.

use std::{fs, path::Path, process::Command};

use profiler_tests::{
    FoldedStack, FoldedStacks, Outcome, hide_kernel_addresses, measure_alone, run_beside_others, run_command,
    workload_path,
};
use serde_json::{Value, json};

use crate::{
    HOT_CHAIN, assert_jit_named, cgroups, container::Container, container_builder::ContainerBuilder,
    manifest::Manifest, pod::ImageContainer,
};

/// The oldest version with the field `appArmorProfile`, and the newest that the validator supports.
const KUBERNETES_VERSIONS: [&str; 2] = ["1.30", "1.37"];

/// Replaces the output options of the manifests by folded output.
const FOLDED_OUTPUT: (&str, &str) = ("-.html", "-.folded");

fn pod() -> Manifest {
    Manifest::pod("pod.yaml")
}

fn sidecar() -> Manifest {
    Manifest::pod("sidecar.yaml")
}

pub(crate) fn debug_container() -> Manifest {
    Manifest::partial_container("debug-container.yaml")
}

/// The stacks of a run with `-q`, which prints nothing else.
fn stacks(run: &Outcome) -> FoldedStacks {
    assert_eq!(run.code(), 0, "{}", run.stderr);
    FoldedStacks::parse(&run.stdout)
}

fn words(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|word| (*word).to_owned()).collect()
}

/// Validates all documents of a file for each of the versions.
pub(crate) fn validate(file: &Path) -> Outcome {
    let packages = profiler_tests::file("../target/readers/kubernetes-validate");
    assert!(packages.is_dir(), "{} is missing: run `cargo xtask setup`", packages.display());
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).args(["-m", "kubernetes_validate", "--strict"]);
    python.args(KUBERNETES_VERSIONS.iter().flat_map(|version| ["-k", version]));
    run_command(python.arg(file))
}

#[test]
fn kubernetes_validate_accepts_the_manifests() {
    let folder = tempfile::tempdir().unwrap();
    let ephemeral = folder.path().join("ephemeral.json");
    fs::write(&ephemeral, pod_with_ephemeral_container().to_string()).unwrap();
    let deploy = profiler_tests::file("../deploy");
    for file in [deploy.join("pod.yaml"), deploy.join("sidecar.yaml"), ephemeral] {
        let run = validate(&file);
        assert_eq!(run.code(), 0, "{}: {}{}", file.display(), run.stdout, run.stderr);
    }
}

#[test]
fn kubernetes_validate_rejects_an_unknown_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.json");
    let mut pod = pod_with_ephemeral_container();
    pod["spec"]["ephemeralContainers"][0]["securityContext"]["appArmor"] = json!("Unconfined");
    fs::write(&file, pod.to_string()).unwrap();
    assert_ne!(validate(&file).code(), 0);
}

/// A pod as `kubectl debug --custom` leaves it.
fn pod_with_ephemeral_container() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app"},
        "spec": {
            "containers": [{"name": "app", "image": "app"}],
            "ephemeralContainers": [{
                "name": "profiler",
                "image": "profiler",
                "targetContainerName": "app",
                "securityContext": debug_container().security_context(),
            }],
        },
    })
}

#[test]
fn all_manifests_have_the_same_capabilities_and_the_version_of_the_release() {
    for manifest in [pod(), sidecar()] {
        assert_eq!(manifest.capabilities(), debug_container().capabilities());
        let tag = format!(":{}", env!("CARGO_PKG_VERSION"));
        assert!(manifest.image().ends_with(&tag), "{}", manifest.image());
    }
}

#[test]
fn the_pod_profiles_a_container_of_its_node_by_id() {
    let Some(_lock) = run_beside_others() else { return };
    assert_eq!(pod().value("/spec/hostPID"), true);
    let id = cgroups::id();
    let place = format!("kubepods/besteffort/pod0d4b8f4e/{id}");
    let target = ContainerBuilder::workload("jit-static", &["300"]).cgroup(&place).start();
    let mut arguments = pod().arguments(&[("CONTAINER_ID", &id[..12]), ("30", "1"), FOLDED_OUTPUT]);
    arguments.extend(words(&["-F", "1999"]));
    let host = std::process::id();
    assert_jit_named(&stacks(&ImageContainer::new(&pod(), host, &arguments, None).run()));
    drop(target);
}

#[test]
fn the_sidecar_profiles_the_application_when_a_command_is_executed_in_it() {
    let Some(_lock) = run_beside_others() else { return };
    assert_eq!(sidecar().value("/spec/shareProcessNamespace"), true);
    // Process 1 waits, like the pause process of a pod.
    let application = ContainerBuilder::new(&["sh", "-c", "jit-static 300 & wait"])
        .program(&workload_path("jit-static"))
        .start();
    let running = ImageContainer::new(&sidecar(), application.pid(), &sidecar().arguments(&[]), None).start();
    let profile = ["/profiler", "-q", "-a", "-d", "1", "-F", "1999", "-o", "-.folded"];
    let stacks = stacks(&running.exec(&profile));
    assert_jit_named(&FoldedStacks(
        stacks.0.into_iter().filter(|stack| stack.comm == "jit-static").collect(),
    ));
    assert!(Path::new(&format!("/proc/{}", running.pid())).exists(), "the idle profiler has ended");
}

#[test]
fn an_ephemeral_container_profiles_its_target_container() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).start();
    let arguments = words(&["-q", "-p", "1", "-d", "1", "-F", "1999", "-o", "-.folded"]);
    let run = ImageContainer::new(&debug_container(), target.pid(), &arguments, None).run();
    assert_jit_named(&stacks(&run));
}

/// Which parts of a target that needs every capability of the manifests are symbolized.
#[derive(Debug, PartialEq, Eq)]
struct SymbolizedParts {
    /// JIT code whose perf map only its owner may read.
    jit: bool,
    /// Functions of an executable that was deleted while it ran.
    deleted: bool,
    /// Kernel functions.
    kernel: bool,
}

const ALL_PARTS: SymbolizedParts = SymbolizedParts { jit: true, deleted: true, kernel: true };

fn start_demanding_target() -> Container {
    const USER: u32 = 65_534;
    let script = "umask 077; syscalls-static 300 & shares-static 300 & exec jit-static 300";
    let mut builder = ContainerBuilder::new(&["sh", "-c", script]).user(USER).capabilities(&[]);
    // runc gives a file system at /tmp the mode of the folder below it: the user has to own it to write there.
    builder = builder.mount("/tmp", "tmpfs", &[&format!("uid={USER}")]);
    for program in ["jit-static", "shares-static", "syscalls-static"] {
        builder = builder.program(&workload_path(program));
    }
    let target = builder.start();
    target.wait_for("syscalls-static");
    target.wait_for("shares-static");
    fs::remove_file(target.file("/bin/shares-static")).unwrap();
    target
}

fn profile_without(missing: Option<&str>) -> Outcome {
    let target = start_demanding_target();
    let arguments = words(&["-a", "-d", "1", "-F", "1999", "-o", "-.folded"]);
    ImageContainer::new(&debug_container(), target.pid(), &arguments, missing).run()
}

fn symbolized_parts(run: &Outcome) -> SymbolizedParts {
    let stacks = stacks(run);
    let has = |comm: &str, is: &dyn Fn(&FoldedStack) -> bool| {
        stacks.count(|stack| stack.comm == comm && is(stack)) > 0
    };
    SymbolizedParts {
        jit: has("jit-static", &|stack| stack.has(HOT_CHAIN[2])),
        deleted: has("shares-static", &|stack| stack.has("alpha")),
        kernel: has("syscalls-static", &|stack| stack.frames.iter().any(|frame| frame.contains("sys_read"))),
    }
}

#[test]
fn with_all_capabilities_of_the_manifests_everything_is_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    assert_eq!(symbolized_parts(&profile_without(None)), ALL_PARTS);
}

/// With kernel settings that hold for the whole machine.
mod measured {
    use super::*;

    #[test]
    fn each_capability_of_the_manifests_is_needed() {
        let Some(_lock) = measure_alone() else { return };
        let _settings = hide_kernel_addresses();
        for name in debug_container().capabilities() {
            let run = profile_without(Some(&name));
            let expected = match name.as_str() {
                "BPF" | "PERFMON" => {
                    assert_eq!(run.code(), 1, "{name}: {}", run.stderr);
                    assert!(run.stderr.contains(&format!("CAP_{name}")), "{}", run.stderr);
                    continue;
                }
                "SYS_PTRACE" => SymbolizedParts { jit: false, deleted: false, ..ALL_PARTS },
                "DAC_READ_SEARCH" => SymbolizedParts { jit: false, deleted: false, ..ALL_PARTS },
                "CHECKPOINT_RESTORE" => SymbolizedParts { deleted: false, ..ALL_PARTS },
                "SYSLOG" => SymbolizedParts { kernel: false, ..ALL_PARTS },
                other => panic!("no test shows what {other} is for"),
            };
            assert_eq!(symbolized_parts(&run), expected, "{name}: {}", run.stderr);
        }
    }
}
