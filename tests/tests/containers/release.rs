//! Tests the files of a release, which `cargo xtask workloads` packs around the static binary.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use profiler_tests::{Outcome, run_beside_others, run_command};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the path of the only release file whose name ends with `end`.
pub(crate) fn release_file(end: &str) -> PathBuf {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.to_str().unwrap().ends_with(end));
    let file = files.next().unwrap_or_else(|| panic!("no {end} in {}", folder().display()));
    assert_eq!(files.next(), None, "two files end with {end}");
    file
}

fn folder() -> PathBuf {
    profiler_tests::workload_path("dist")
}

fn succeed(command: &mut Command) -> Outcome {
    let run = run_command(command);
    assert_eq!(run.code(), 0, "{command:?}: {}{}", run.stdout, run.stderr);
    run
}

fn assert_is_this_version(program: &Path) {
    let run = succeed(Command::new(program).arg("--version"));
    assert!(run.stdout.starts_with(&format!("profiler {VERSION} (OTLP ")), "{}", run.stdout);
}

#[test]
fn checksums_cover_every_file_of_the_release() {
    let run =
        succeed(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder()));
    assert_eq!(run.stdout.lines().count() + 1, fs::read_dir(folder()).unwrap().count(), "{}", run.stdout);
    for end in [".cdx.json", ".deb", ".tar.gz", ".tar"] {
        assert!(run.stdout.contains(&format!("{end}: OK")), "{}", run.stdout);
    }
}

#[test]
fn the_bill_of_materials_has_the_packages_that_the_binary_lists_and_cargo_links() {
    let binary = release_file(".cdx.json").with_extension("").with_extension("");
    let listed = auditable_info::json_from_file(&binary, auditable_info::Limits::default()).unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let listed = listed["packages"].as_array().unwrap().iter();
    let listed = packages(listed.filter(|package| package["kind"] != "build"));
    let document: Value = serde_json::from_slice(&fs::read(release_file(".cdx.json")).unwrap()).unwrap();
    let program = &document["metadata"]["component"];
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(program["version"], VERSION);
    assert_eq!(packages(document["components"].as_array().unwrap().iter().chain([program])), listed);
    assert_eq!(linked_packages(), listed);
}

/// Names and versions.
fn packages<'a>(packages: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let text = |value: &'a Value| value.as_str().unwrap();
    packages.map(|package| format!("{} v{}", text(&package["name"]), text(&package["version"]))).collect()
}

/// The packages that a build of the profiler links, procedural macros left out.
fn linked_packages() -> BTreeSet<String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--package", "profiler-cli", "--target", &target]);
    cargo.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]);
    let tree = succeed(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).stdout;
    let name_and_version = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().map(name_and_version).collect()
}

#[test]
fn the_tarball_has_the_binary_with_its_manual_and_manifests() {
    let folder = tempfile::tempdir().unwrap();
    succeed(
        Command::new("tar").arg("-xzf").arg(release_file("-linux-amd64.tar.gz")).arg("-C").arg(folder.path()),
    );
    let top = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    assert_is_this_version(&top.join("profiler"));
    for file in ["man/man1/profiler.1", "completions/_profiler", "deploy/pod.yaml", "LICENSE-MIT"] {
        assert!(top.join(file).is_file(), "{file}");
    }
    assert!(top.join("deploy/kubernetes/overlays/otlp/kustomization.yaml").is_file());
    let help = succeed(Command::new(top.join("deploy/kubectl/kubectl-profiler")).arg("--help"));
    assert!(help.stdout.contains("kubectl profiler POD"), "{}", help.stdout);
}

#[test]
fn dpkg_installs_the_package_and_its_binary_runs() {
    let Some(_lock) = run_beside_others() else { return };
    let root = tempfile::tempdir().unwrap();
    let database = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder)).unwrap();
    }
    fs::write(database.join("status"), "").unwrap();
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.path().display()));
        dpkg
    };
    succeed(dpkg().arg("--install").arg(release_file(".deb")));
    let status = succeed(dpkg().args(["--status", "profiler"])).stdout;
    assert!(status.contains("Status: install ok installed"), "{status}");
    assert!(status.contains(&format!("Version: {VERSION}\n")), "{status}");
    // Compares the installed files with the checksums of the package, and prints only differences.
    assert_eq!(succeed(dpkg().args(["--verify", "profiler"])).stdout, "");
    assert_is_this_version(&root.path().join("usr/bin/profiler"));
    for file in ["man/man1/profiler.1.gz", "bash-completion/completions/profiler", "doc/profiler/copyright"] {
        assert!(root.path().join("usr/share").join(file).is_file(), "{file}");
    }
}

#[test]
fn dpkg_deb_reads_the_fields_of_the_package() {
    let field = |name: &str| {
        let run = succeed(Command::new("dpkg-deb").arg("--field").arg(release_file(".deb")).arg(name));
        run.stdout.trim_end().to_owned()
    };
    assert_eq!(field("Package"), "profiler");
    assert_eq!(field("Depends"), "", "a static binary needs no other package");
    let architecture = succeed(Command::new("dpkg").arg("--print-architecture")).stdout;
    assert_eq!(field("Architecture"), architecture.trim_end());
}
