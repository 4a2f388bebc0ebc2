//! `cargo xtask kernel-matrix`: the static binary on kernels from the oldest supported to the newest.
//!
//! Debian's kernels are booted in virtual machines that need nothing but a CPU, one of them for each row of a
//! table in docs/kernels.md. A row that is not as it must be fails the command.

#![cfg(feature = "commands")]

mod check;
mod freshness;
mod image;
mod initramfs;
mod machine;
mod many_cpus;
mod report;
mod repository;
mod transcript;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use fs_err as fs;

use self::{image::Image, transcript::Transcript};
use crate::{project, setup, static_binary, workloads};

/// Run the static binary on the oldest, the newest and more kernels, in virtual machines.
#[derive(Args)]
pub(crate) struct KernelMatrix {
    /// Do nothing if the table in docs/kernels.md was made from the same sources.
    #[arg(long)]
    if_changed: bool,
    /// Put the table into docs/kernels.md.
    #[arg(long)]
    write: bool,
    /// Instead of the matrix, sample a machine with many CPUs, and print the memory that the profiler takes.
    #[arg(long, conflicts_with_all = ["if_changed", "write"])]
    many_cpus: bool,
}

/// What became of one kernel.
struct Row {
    kernel: String,
    time: Duration,
    /// A figure for each column, or what is wrong; what is wrong alone if the kernel did not get to its end.
    cells: Vec<Result<String>>,
}

impl KernelMatrix {
    pub(crate) fn run(&self) -> Result<()> {
        if self.many_cpus {
            let initramfs = prepare()?;
            println!("{}", many_cpus::run(&image::with_small_lru_maps()?, &initramfs)?);
            return Ok(());
        }
        if self.if_changed && !freshness::sources_have_changed()? {
            println!("skipped: the table in docs/kernels.md was made from these sources");
            return Ok(());
        }
        let rows = run_all()?;
        println!("{}", report::table(&rows));
        let failures = report::failures(&rows);
        ensure!(
            failures.is_empty(),
            "{}\nwhat the machines said: {}",
            failures.join("\n"),
            folder().display()
        );
        if self.write { report::write(&rows, &freshness::digest()?) } else { Ok(()) }
    }
}

/// The step of `cargo xtask prove`.
pub(crate) fn run_always() -> Result<()> {
    KernelMatrix { if_changed: false, write: false, many_cpus: false }.run()
}

/// The step of `cargo xtask prove` for a machine with many CPUs.
pub(crate) fn run_many_cpus() -> Result<()> {
    KernelMatrix { if_changed: false, write: false, many_cpus: true }.run()
}

/// The step of `cargo xtask test`.
pub(crate) fn run_if_changed() -> Result<()> {
    KernelMatrix { if_changed: true, write: false, many_cpus: false }.run()
}

/// Makes the machines' file system, and returns its path.
fn prepare() -> Result<PathBuf> {
    ensure!(cfg!(target_arch = "x86_64"), "the kernel matrix is of x86-64 kernels and needs such a machine");
    setup::install(&[setup::Purpose::KernelMatrix])?;
    fs::create_dir_all(folder())?;
    workloads::build_for_virtual_machines()?;
    initramfs::build(&static_binary::build(static_binary::QUICK)?)
}

fn run_all() -> Result<Vec<Row>> {
    let initramfs = prepare()?;
    let images = image::all()?;
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    let mut rows = Vec::new();
    for images in images.chunks(at_once) {
        let at_once = thread::scope(|scope| {
            let machines: Vec<_> =
                images.iter().map(|image| scope.spawn(|| row(image, &initramfs))).collect();
            machines.into_iter().map(thread::ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
        });
        rows.extend(at_once.map_err(|_| anyhow!("a thread panicked"))?);
    }
    Ok(rows)
}

fn row(image: &Image, initramfs: &Path) -> Row {
    let kernel = image.release.clone();
    let (time, cells) = match machine::boot(&machine::OF_MATRIX, image, initramfs) {
        Ok((console, time)) => (time, check::all(&Transcript::parse(&console))),
        Err(error) => (Duration::ZERO, vec![Err(error)]),
    };
    println!("Linux {kernel}: {:.0} s", time.as_secs_f64());
    Row { kernel, time, cells }
}

/// Where kernels, the machines' file system and what they said are.
fn folder() -> PathBuf {
    project::root().join("target/kernels")
}
