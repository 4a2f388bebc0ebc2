//! Installs the programs that come from cargo.

use std::process::Command;

use anyhow::Result;

use crate::shell;

/// The linker for BPF, against the LLVM that Debian's compiler uses.
pub(super) fn bpf_linker() -> Result<()> {
    if shell::find("bpf-linker").is_some() {
        return Ok(());
    }
    let mut cargo = cargo_install("bpf-linker", "0.13.0");
    cargo.args(["--no-default-features", "--features", "llvm-22"]).env("LLVM_PREFIX", "/usr/lib/llvm-22");
    shell::run_quietly(&mut cargo)
}

/// Checks licences and sources of dependencies.
pub(super) fn cargo_deny() -> Result<()> {
    if shell::find("cargo-deny").is_some() {
        return Ok(());
    }
    // Unoptimized, it is there in half the time and fast enough.
    shell::run_quietly(cargo_install("cargo-deny", "0.20.2").arg("--debug"))
}

fn cargo_install(name: &str, version: &str) -> Command {
    println!("cargo install {name}@{version}");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--quiet", "--locked", name, "--version", version]);
    cargo
}
