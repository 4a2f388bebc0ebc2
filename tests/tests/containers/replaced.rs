//! Tests executables and libraries that are deleted or replaced while they are mapped, as by package and image
//! updates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler::{Profile, profile::SymbolSource};
use profiler_tests::{
    FoldedStack, FoldedStacks, Outcome, Workload, profiler, run_beside_others, run_command, sample,
    sample_pid, workload_path,
};
use tempfile::TempDir;

use crate::{
    capabilities::with_capabilities,
    container::Container,
    container_builder::{ContainerBuilder, LEAST_CAPABILITIES},
};

/// Functions of the workloads, each with its name in the replacement file.
const RENAMED: [(&str, &str); 3] = [("alpha", "wrong"), ("gamma", "false"), ("plugin_leaf", "plugin_lies")];

/// Replaces a file by one that differs in symbol names alone and has the same build id.
fn replace(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    for (name, wrong) in RENAMED.map(|(name, wrong)| (format!("\0{name}\0"), format!("\0{wrong}\0"))) {
        let symbols = bytes.windows(name.len()).enumerate().filter(|(_, window)| *window == name.as_bytes());
        for at in symbols.map(|(at, _)| at).collect::<Vec<_>>() {
            bytes[at..at + name.len()].copy_from_slice(wrong.as_bytes());
        }
    }
    assert_ne!(bytes, fs::read(path).unwrap());
    let beside = path.with_extension("new");
    fs::write(&beside, bytes).unwrap();
    fs::rename(beside, path).unwrap();
}

fn delete(path: &Path) {
    fs::remove_file(path).unwrap();
}

/// A container whose program is on an overlay file system, as in container images.
struct Overlay {
    container: Container,
    _layers: TempDir,
}

const PROGRAM: &str = "/app/shares-static";

impl Overlay {
    fn start() -> Self {
        let layers = tempfile::tempdir().unwrap();
        let layer = |name: &str| {
            let path = layers.path().join(name);
            fs::create_dir(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let [lower, upper, work] = ["lower", "upper", "work"].map(layer);
        fs::copy(workload_path("shares-static"), Path::new(&lower).join("shares-static")).unwrap();
        let options = [format!("lowerdir={lower}"), format!("upperdir={upper}"), format!("workdir={work}")];
        let options = options.each_ref().map(String::as_str);
        let container = ContainerBuilder::new(&[PROGRAM, "300"]).mount("/app", "overlay", &options).start();
        Self { container, _layers: layers }
    }

    fn program(&self) -> PathBuf {
        self.container.file(PROGRAM)
    }
}

fn assert_named(stacks: &FoldedStacks) {
    assert!(stacks.percent(|stack| stack.has("alpha")) > 45.0, "{stacks:#?}");
    assert!(stacks.percent(|stack| stack.has("gamma")) > 5.0, "{stacks:#?}");
    assert_never_wrong(stacks);
}

fn assert_never_wrong(stacks: &FoldedStacks) {
    let is_wrong = |stack: &FoldedStack| RENAMED.iter().any(|(_, wrong)| stack.has(wrong));
    assert_eq!(stacks.count(is_wrong), 0, "{stacks:#?}");
}

fn sample_process(pid: u32) -> Profile {
    sample(sample_pid(pid), 2_000)
}

#[test]
fn a_deleted_or_replaced_program_on_an_overlay_is_symbolized_by_the_mapped_file() {
    let Some(_lock) = run_beside_others() else { return };
    for change in [delete, replace] {
        let overlay = Overlay::start();
        change(&overlay.program());
        let profile = sample_process(overlay.container.pid());
        assert_named(&FoldedStacks::from_profile(&profile));
        assert!(profile.first_ledger().symbolized.contains_key(&SymbolSource::SymbolTable));
    }
}

#[test]
fn a_program_on_an_overlay_is_symbolized_without_access_to_map_files() {
    let Some(_lock) = run_beside_others() else { return };
    let overlay = Overlay::start();
    let run = run_without_mapped_files(overlay.container.pid());
    assert_named(&FoldedStacks::parse(&run.stdout));
}

#[test]
fn without_access_to_map_files_a_replaced_program_is_unsymbolized_with_a_reason() {
    let Some(_lock) = run_beside_others() else { return };
    let overlay = Overlay::start();
    replace(&overlay.program());
    let run = run_without_mapped_files(overlay.container.pid());
    assert_never_wrong(&FoldedStacks::parse(&run.stdout));
    assert!(run.stderr.contains("the file at the path is not the mapped one"), "{}", run.stderr);
    assert!(run.stderr.contains("CAP_CHECKPOINT_RESTORE"), "{}", run.stderr);
}

#[test]
fn a_replaced_program_on_the_host_is_symbolized_by_the_mapped_file() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shares-static");
    fs::copy(workload_path("shares-static"), &program).unwrap();
    let workload = Workload::run(Command::new(&program).arg("300"));
    replace(&program);
    assert_named(&FoldedStacks::from_profile(&sample_process(workload.pid())));
    let run = run_without_mapped_files(workload.pid());
    assert_never_wrong(&FoldedStacks::parse(&run.stdout));
    assert!(run.stderr.contains("the file at the path is not the mapped one"), "{}", run.stderr);
}

#[test]
fn a_deleted_or_replaced_library_is_symbolized_by_the_mapped_file() {
    let Some(_lock) = run_beside_others() else { return };
    for change in [delete, replace] {
        let folder = tempfile::tempdir().unwrap();
        for file in ["dlopen", "plugin.so"] {
            fs::copy(workload_path(file), folder.path().join(file)).unwrap();
        }
        let mut workload = Workload::run(Command::new(folder.path().join("dlopen")).args(["300", "0.1"]));
        workload.wait_for("loaded");
        change(&folder.path().join("plugin.so"));
        let stacks = FoldedStacks::from_profile(&sample(sample_pid(workload.pid()), 500));
        assert!(
            stacks.percent(|stack| stack.has_chain(&["plugin_burn", "plugin_leaf"])) > 90.0,
            "{stacks:#?}"
        );
        assert_never_wrong(&stacks);
    }
}

fn run_without_mapped_files(pid: u32) -> Outcome {
    let names: Vec<_> =
        LEAST_CAPABILITIES.iter().copied().filter(|name| *name != "CHECKPOINT_RESTORE").collect();
    let pid = pid.to_string();
    let run = run_command(&mut with_capabilities(&names, &profiler(&["-p", &pid, "-F", "1999", "-d", "1"])));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    run
}
