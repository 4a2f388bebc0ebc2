//! Finds a compiler and a linker for BPF.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::TARGET;
use crate::shell;

const ADVICE: &str = "no compiler for BPF found. Either, on Debian:
    apt-get install --no-install-recommends rustc-web cargo-web libstd-rust-web-dev-bpf
or anywhere:
    rustup toolchain install nightly --profile minimal --component rust-src";

const LINKER_ADVICE: &str = "bpf-linker not found. On Debian:
    apt-get install --no-install-recommends llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev libxml2-dev
    LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version 0.13.0 --no-default-features --features llvm-22
`cargo xtask setup --only ebpf` does both";

/// What compiles the kernel side, and which versions.
pub(super) struct Toolchain {
    kind: Kind,
    linker: PathBuf,
    sysroot: PathBuf,
    pub(super) rustc_version: String,
    pub(super) linker_version: String,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Debian's Rust, whose `core` for BPF is a package.
    Debian,
    /// rustup's nightly, which builds `core` from its source.
    Nightly,
}

impl Toolchain {
    /// Debian's where it is installed, else rustup's nightly.
    pub(super) fn find() -> Result<Self> {
        let kind = Kind::find().context(ADVICE)?;
        let linker = shell::find("bpf-linker").context(LINKER_ADVICE)?;
        let sysroot = PathBuf::from(shell::read(kind.command("rustc").args(["--print", "sysroot"]))?);
        Ok(Self {
            kind,
            sysroot,
            rustc_version: shell::read(kind.command("rustc").arg("--version"))?,
            linker_version: shell::read(Command::new(&linker).arg("--version"))?,
            linker,
        })
    }

    /// `cargo COMMAND` for the kernel side.
    pub(super) fn cargo(&self, command: &str) -> Command {
        let mut cargo = self.kind.command("cargo");
        cargo.arg(command).env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        // The object must not depend on what the caller compiles other programs with.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        match self.kind {
            // aya-ebpf needs the feature `asm_experimental_arch`, which a stable compiler must be talked into.
            Kind::Debian => cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1"),
            Kind::Nightly if command == "build" => cargo.args(["-Z", "build-std=core"]),
            Kind::Nightly => &mut cargo,
        };
        cargo
    }

    /// Where the source of `core` is if it is installed.
    pub(super) fn library_sources(&self) -> PathBuf {
        library_sources(&self.sysroot)
    }
}

/// Whether something here can compile for BPF.
pub(crate) fn has_compiler() -> bool {
    Kind::find().is_some()
}

impl Kind {
    fn find() -> Option<Self> {
        let core = Path::new("/usr/lib/rustlib").join(TARGET);
        if Path::new("/usr/bin/cargo").exists() && core.exists() {
            return Some(Self::Debian);
        }
        let sysroot = shell::read(Self::Nightly.command("rustc").args(["--print", "sysroot"])).ok()?;
        library_sources(Path::new(&sysroot)).exists().then_some(Self::Nightly)
    }

    fn command(self, program: &str) -> Command {
        match self {
            Self::Debian => Command::new(Path::new("/usr/bin").join(program)),
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", program]);
                command
            }
        }
    }
}

fn library_sources(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust")
}
