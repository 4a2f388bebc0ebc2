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
    dotnet::{compiler as dotnet_compiler, make_executable, runtime as dotnet_runtime},
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

/// Debian's packages for `purpose` whose programs are not here.
fn missing_packages(purpose: Purpose) -> Vec<&'static str> {
    let lacking = |packages: &'static [(&str, &str)]| {
        packages.iter().filter(|(program, _)| shell::find(program).is_none()).map(|(_, package)| *package)
    };
    match purpose {
        Purpose::Ebpf => missing_for_ebpf(),
        Purpose::Dependencies | Purpose::Tests | Purpose::Release => Vec::new(),
        Purpose::Workloads => lacking(&WORKLOADS).collect(),
        Purpose::EndToEnd => lacking(&END_TO_END).chain(missing_names_of_libc()).collect(),
        Purpose::Bench => {
            lacking(&BENCH).chain(missing_for_lightswitch()).chain(missing_names_of_libc()).collect()
        }
        Purpose::KernelMatrix => lacking(&KERNEL_MATRIX).collect(),
        Purpose::FreshMachine => lacking(&FRESH_MACHINE).collect(),
        Purpose::Situations => lacking(&SITUATIONS).chain(missing_postgres()).collect(),
    }
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

fn missing_for_lightswitch() -> Vec<&'static str> {
    let is_built = peers_folder().join("bin/lightswitch").is_file();
    let is_buildable = shell::find("clang").is_some() && Path::new("/usr/include/libelf.h").exists();
    if is_built || is_buildable { Vec::new() } else { BUILD_LIGHTSWITCH.to_vec() }
}

/// Its programs are not in the search path.
fn missing_postgres() -> Option<&'static str> {
    (!Path::new("/usr/lib/postgresql").exists()).then_some("postgresql")
}

/// Without the symbols of libc the start of a stack has no name.
fn missing_names_of_libc() -> Option<&'static str> {
    (!Path::new("/usr/lib/debug/.build-id").exists()).then_some("libc6-dbg")
}

const BUILD_LIGHTSWITCH: [&str; 3] = ["clang", "libelf-dev", "zlib1g-dev"];

/// Programs and the packages that bring them.
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

const END_TO_END: [(&str, &str); 20] = [
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
];

const BENCH: [(&str, &str); 4] = [
    ("perf", "linux-perf"),
    ("profile-bpfcc", "bpfcc-tools"),
    ("bpftrace", "bpftrace"),
    ("promtool", "prometheus"),
];

const KERNEL_MATRIX: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("setpriv", "util-linux"),
    ("gcc", "gcc"),
    ("musl-gcc", "musl-tools"),
];

const FRESH_MACHINE: [(&str, &str); 2] = [("debootstrap", "debootstrap"), ("unshare", "util-linux")];

const SITUATIONS: [(&str, &str); 6] = [
    ("nginx", "nginx-light"),
    ("apache2", "apache2-bin"),
    ("redis-server", "redis-server"),
    ("memcached", "memcached"),
    ("prometheus", "prometheus"),
    ("gunicorn", "gunicorn"),
];
