//! `cargo xtask setup`: installs the programs that the project's own commands need.
//!
//! Packages are installed by name, by the ordinary clients of their registries. Installed programs are left unchanged.

#![cfg(feature = "commands")]

mod apt;
mod cargo_install;
mod dotnet;
mod go;
mod native_aot;
mod package;
mod readers;

use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};

pub(crate) use self::{
    cargo_install::peers_folder,
    dotnet::{compiler as dotnet_compiler, runtime as dotnet_runtime},
    go::go,
    native_aot::library as native_aot_library,
};

use crate::{build_ebpf::toolchain, shell};

/// Install the programs that the project's own commands need.
#[derive(Args)]
pub(crate) struct Setup {
    /// Install what one purpose needs instead of what `cargo xtask test` needs.
    #[arg(long, value_name = "PURPOSE")]
    only: Vec<Purpose>,
    /// Install what `cargo xtask bench` compares with, too.
    #[arg(long)]
    bench: bool,
}

/// What a program is needed for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// To compile the BPF program.
    Ebpf,
    /// To check dependencies.
    Dependencies,
    /// To run tests.
    Tests,
    /// To build and run the workloads of the end-to-end tests.
    Workloads,
    /// To run the end-to-end tests: containers, perf to compare with, a browser for the page, a
    /// terminal for the live view, what reads the formats of other tools, and the compiler that checks
    /// the types of the page's script.
    EndToEnd,
    /// To list the packages of a release in its binary.
    Release,
    /// To compare with other profilers.
    Bench,
    /// To boot kernels in virtual machines.
    KernelMatrix,
    /// To run the tests on a minimal system.
    FreshMachine,
    /// Servers on which findings are tested.
    Situations,
}

impl Setup {
    pub(crate) fn run(&self) -> Result<()> {
        let mut purposes = self.only.clone();
        if purposes.is_empty() {
            purposes.extend(FOR_TESTS);
        }
        if self.bench {
            purposes.push(Purpose::Bench);
        }
        install(&purposes)?;
        if purposes.contains(&Purpose::Bench) {
            cargo_install::peers();
        }
        Ok(())
    }
}

/// What `cargo xtask test` needs.
pub(crate) const FOR_TESTS: [Purpose; 4] =
    [Purpose::Dependencies, Purpose::Tests, Purpose::Workloads, Purpose::EndToEnd];

/// Installs what is missing for `purposes`.
pub(crate) fn install(purposes: &[Purpose]) -> Result<()> {
    apt::install(&purposes.iter().copied().flat_map(missing_packages).collect::<Vec<_>>())?;
    if purposes.contains(&Purpose::Ebpf) {
        cargo_install::bpf_linker()?;
    }
    cargo_install::subcommands(purposes)?;
    if purposes.contains(&Purpose::Workloads) {
        dotnet::install()?;
        go::install()?;
        native_aot::install()?;
    }
    if purposes.contains(&Purpose::EndToEnd) {
        readers::install()?;
    }
    Ok(())
}

/// Debian's packages for `purpose` that are not here.
fn missing_packages(purpose: Purpose) -> Vec<&'static str> {
    let needed: &[_] = match purpose {
        Purpose::Ebpf => return missing_for_ebpf(),
        Purpose::Dependencies | Purpose::Tests | Purpose::Release => &[],
        Purpose::Workloads => &WORKLOADS,
        Purpose::EndToEnd => &END_TO_END,
        Purpose::Bench if peers_folder().join("bin/lightswitch").is_file() => &BENCH,
        Purpose::Bench => &[BENCH.as_slice(), &BUILD_LIGHTSWITCH].concat(),
        Purpose::KernelMatrix => &KERNEL_MATRIX,
        Purpose::FreshMachine => &FRESH_MACHINE,
        Purpose::Situations => &SITUATIONS,
    };
    needed.iter().filter(|(file, _)| !is_here(file)).map(|(_, package)| *package).collect()
}

/// Whether a file is here, or a program in the search path.
fn is_here(file: &str) -> bool {
    if file.starts_with('/') { Path::new(file).exists() } else { shell::find(file).is_some() }
}

fn missing_for_ebpf() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if !toolchain::has_compiler() {
        packages.extend(toolchain::COMPILER_PACKAGES);
    }
    if shell::find("bpf-linker").is_none() {
        packages.extend(toolchain::LINKER_PACKAGES);
    }
    packages
}

/// Without the symbols of libc the start of a stack has no name.
const NAMES_OF_LIBC: (&str, &str) = ("/usr/lib/debug/.build-id", "libc6-dbg");

const BUILD_LIGHTSWITCH: [(&str, &str); 3] =
    [("clang", "clang"), ("/usr/include/libelf.h", "libelf-dev"), ("/usr/include/zlib.h", "zlib1g-dev")];

/// Programs, by name or path, and the packages that bring them.
const WORKLOADS: [(&str, &str); 9] = [
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("musl-gcc", "musl-tools"),
    ("javac", "openjdk-17-jdk-headless"),
    ("mcs", "mono-mcs"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("python3", "python3"),
    ("pip3", "python3-pip"),
];

const END_TO_END: [(&str, &str); 21] = [
    ("perf", "linux-perf"),
    ("luajit", "luajit"),
    ("runc", "runc"),
    ("containerd", "containerd"),
    ("busybox", "busybox-static"),
    ("chromium", "chromium"),
    ("dwz", "dwz"),
    ("gcc", "gcc"),
    ("openssl", "openssl"),
    ("promtool", "prometheus"),
    ("systemd-analyze", "systemd"),
    ("tmux", "tmux"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
    ("unzip", "unzip"),
    ("rsvg-convert", "librsvg2-bin"),
    ("pdftotext", "poppler-utils"),
    // Perl itself is always there, its library comes with this.
    ("prove", "perl"),
    NAMES_OF_LIBC,
];

const BENCH: [(&str, &str); 5] = [
    ("perf", "linux-perf"),
    ("profile-bpfcc", "bpfcc-tools"),
    ("bpftrace", "bpftrace"),
    ("promtool", "prometheus"),
    NAMES_OF_LIBC,
];

const KERNEL_MATRIX: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("setpriv", "util-linux"),
    ("gcc", "gcc"),
    ("musl-gcc", "musl-tools"),
];

const FRESH_MACHINE: [(&str, &str); 2] = [("debootstrap", "debootstrap"), ("unshare", "util-linux")];

const SITUATIONS: [(&str, &str); 7] = [
    ("nginx", "nginx-light"),
    ("apache2", "apache2-bin"),
    ("redis-server", "redis-server"),
    ("memcached", "memcached"),
    ("prometheus", "prometheus"),
    ("gunicorn", "gunicorn"),
    // Its programs are not in the search path.
    ("/usr/lib/postgresql", "postgresql"),
];
