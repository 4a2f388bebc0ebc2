//! Installs the programs that come from cargo.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use super::Purpose;
use crate::{build_ebpf::toolchain, project, shell};

/// Profilers to compare with: name, the program's name, version, further arguments.
const PEERS: [(&str, &str, &str, &[&str]); 3] = [
    ("samply", "samply", "0.13.1", &[]),
    ("profile-bee", "probee", "0.3.13", &["--no-default-features"]),
    ("lightswitch", "lightswitch", "0.7.0", &["--no-default-features", "--features", "libbpf-rs-static"]),
];

/// The linker for BPF, against the LLVM that Debian's compiler uses.
pub(super) fn bpf_linker() -> Result<()> {
    if shell::find("bpf-linker").is_some() {
        return Ok(());
    }
    let mut cargo = cargo_install("bpf-linker", toolchain::LINKER_VERSION);
    cargo.args(["--no-default-features", "--features", toolchain::LINKER_FEATURE]);
    cargo.env("LLVM_PREFIX", toolchain::LLVM_PREFIX);
    shell::run_quietly(&mut cargo)
}

/// Subcommands of cargo, and what they are needed for.
const SUBCOMMANDS: [(&str, &str, &[Purpose]); 3] = [
    // Checks licences and sources of dependencies.
    ("cargo-deny", "0.20.2", &[Purpose::Dependencies]),
    // Runs tests.
    ("cargo-nextest", "0.9.143", &[Purpose::Tests]),
    // Lists the packages of a binary in it. The workloads include a release.
    ("cargo-auditable", "0.7.7", &[Purpose::Release, Purpose::Workloads]),
];

/// Installs the subcommands that are missing for `purposes`. Unoptimized, they are there in half the time and fast enough.
pub(super) fn subcommands(purposes: &[Purpose]) -> Result<()> {
    for (name, version, needed_for) in SUBCOMMANDS {
        if needed_for.iter().any(|purpose| purposes.contains(purpose)) && shell::find(name).is_none() {
            shell::run_quietly(cargo_install(name, version).arg("--debug"))?;
        }
    }
    Ok(())
}

/// Where the profilers to compare with are.
pub(crate) fn peers_folder() -> PathBuf {
    project::root().join("target/peers")
}

/// Builds the profilers to compare with. One that does not build here is missing in the comparison.
pub(super) fn peers() {
    let folder = peers_folder();
    for (name, program, version, arguments) in PEERS {
        if folder.join("bin").join(program).is_file() {
            continue;
        }
        let mut cargo = cargo_install(name, version);
        cargo.args(arguments).arg("--root").arg(&folder).env("CARGO_TARGET_DIR", folder.join("build"));
        cargo.env("LIBBPF_SYS_LIBRARY_PATH", debian_libraries());
        if let Err(error) = shell::run_quietly(&mut cargo) {
            let text = format!("{error:#}");
            println!("{name} does not build here: {}", text.lines().last().unwrap_or_default());
        }
    }
}

/// The folder of static libraries on Debian, where lightswitch has to look for libelf.
fn debian_libraries() -> String {
    format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

fn cargo_install(name: &str, version: &str) -> Command {
    println!("cargo install {name}@{version}");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--quiet", "--locked", name, "--version", version]);
    cargo
}
