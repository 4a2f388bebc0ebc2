//! Finds a compiler and a linker for BPF.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::TARGET;
use crate::shell;

/// The versions of a toolchain, as the programs print them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Versions<'a> {
    pub(super) rustc: &'a str,
    pub(super) bpf_linker: &'a str,
}

/// The toolchain that the committed object is built with. Another one gives other bytes.
///
/// A change here comes with the object that `cargo xtask build-ebpf` then builds.
pub(super) const PINNED: Versions<'static> = Versions {
    rustc: "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)",
    bpf_linker: "bpf-linker 0.13.0",
};

/// Debian's packages with the pinned compiler and its `core` for BPF.
pub(crate) const COMPILER_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// Debian's packages that `bpf-linker` is built with.
pub(crate) const LINKER_PACKAGES: [&str; 7] =
    ["llvm-22-dev", "libpolly-22-dev", "zlib1g-dev", "libzstd-dev", "libxml2-dev", "g++", "libc6-dev"];

/// The pinned version of `bpf-linker`, as cargo calls it.
pub(crate) const LINKER_VERSION: &str = "0.13.0";

/// The feature of `bpf-linker` for the LLVM of [`LINKER_PACKAGES`], and where Debian has that.
pub(crate) const LINKER_FEATURE: &str = "llvm-22";
pub(crate) const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// How to install the pinned toolchain.
pub(super) fn advice() -> String {
    format!(
        "`cargo xtask setup --only ebpf` installs the pinned toolchain on Debian:
    apt-get install --no-install-recommends {} {}
    LLVM_PREFIX={LLVM_PREFIX} cargo install bpf-linker --version {LINKER_VERSION} --no-default-features --features {LINKER_FEATURE}",
        COMPILER_PACKAGES.join(" "),
        LINKER_PACKAGES.join(" "),
    )
}

fn missing_compiler() -> String {
    format!(
        "no compiler for BPF found. {}
Another toolchain builds an object to try, which differs from the committed one:
    rustup toolchain install nightly --profile minimal --component rust-src",
        advice()
    )
}

/// The compiler and linker of the BPF program, and their versions.
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
        let kind = Kind::find().with_context(missing_compiler)?;
        let linker =
            shell::find("bpf-linker").with_context(|| format!("bpf-linker not found. {}", advice()))?;
        let sysroot = PathBuf::from(shell::read(kind.command("rustc").args(["--print", "sysroot"]))?);
        Ok(Self {
            kind,
            sysroot,
            rustc_version: shell::read(kind.command("rustc").arg("--version"))?,
            linker_version: shell::read(Command::new(&linker).arg("--version"))?,
            linker,
        })
    }

    /// `cargo COMMAND` for the BPF program.
    pub(super) fn cargo(&self, command: &str) -> Command {
        let mut cargo = self.kind.command("cargo");
        cargo.arg(command).env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        // The object must not depend on what the caller compiles other programs with.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        match self.kind {
            // aya-ebpf needs the feature `asm_experimental_arch`, which a stable compiler refuses.
            Kind::Debian => cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1"),
            Kind::Nightly if command == "build" => cargo.args(["-Z", "build-std=core"]),
            Kind::Nightly => &mut cargo,
        };
        cargo
    }

    pub(super) fn versions(&self) -> Versions<'_> {
        Versions { rustc: &self.rustc_version, bpf_linker: &self.linker_version }
    }

    /// Fails where a fresh build cannot have the bytes of the committed object.
    pub(super) fn ensure_pinned(&self) -> Result<()> {
        let found = self.versions();
        ensure!(
            found == PINNED,
            "the BPF object cannot be compared: it is built with {} and {}, here are {} and {}. {}",
            PINNED.rustc,
            PINNED.bpf_linker,
            found.rustc,
            found.bpf_linker,
            advice()
        );
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchain(rustc_version: &str) -> Toolchain {
        Toolchain {
            kind: Kind::Debian,
            linker: PathBuf::new(),
            sysroot: PathBuf::new(),
            rustc_version: rustc_version.to_owned(),
            linker_version: PINNED.bpf_linker.to_owned(),
        }
    }

    #[test]
    fn another_compiler_is_refused_with_what_to_install() {
        let error = toolchain("rustc 1.97.0-nightly").ensure_pinned().unwrap_err().to_string();
        for part in ["rustc 1.97.0-nightly", PINNED.rustc, "rustc-web", "--version 0.13.0"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        toolchain(PINNED.rustc).ensure_pinned().unwrap();
    }
}
