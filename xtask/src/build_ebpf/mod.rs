//! `cargo xtask build-ebpf`: compiles the BPF programs into the object that the profiler embeds.
//!
//! The object is committed, so that users need neither the eBPF toolchain nor LLVM. The stamp beside it holds the hashes
//! of sources and object and the toolchain; `--check` builds the object again with the pinned
//! toolchain, from a copy of the sources at another path, and compares every byte; it fails where that toolchain is
//! missing. `--log` builds an object with log lines for development, which is neither committed nor embedded.

#![cfg(feature = "commands")]

mod object_file;
mod source_copy;
mod stamp;
pub(crate) mod toolchain;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use cargo_metadata::Package;
use clap::Args;
use fs_err as fs;

use crate::{digest::sha256, project, setup, shell, workspace};
use stamp::Stamp;
use toolchain::{PINNED, Toolchain};

/// Where the object with log lines is written; `crates/sampler/src/ebpf/bpf_log.rs` reads it.
const LOG_OBJECT: &str = "target/bpf-log/profiler.bpf.o";
const TARGET: &str = "bpfel-unknown-none";
const REBUILD: &str = "run `cargo xtask build-ebpf` and commit the result";

/// Compile the BPF programs into the object that the profiler embeds.
#[derive(Args)]
pub(crate) struct BuildEbpf {
    /// Change nothing; fail if the committed object is not what the sources give, at whatever path they are.
    #[arg(long)]
    check: bool,
    /// Build an object that logs the unwinder's decisions, for a profiler with the feature `bpf-log`, and leave the
    /// committed object as it is.
    #[arg(long, conflicts_with = "check")]
    log: bool,
}

impl BuildEbpf {
    pub(crate) fn run(&self) -> Result<()> {
        match (self.check, self.log) {
            (true, _) => check(),
            (_, true) => write_log_object(),
            _ => write(),
        }
    }
}

fn write() -> Result<()> {
    let (object, stamp) = build(&Toolchain::find()?)?;
    let path = object_path();
    let folder = path.parent().context("the object is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(&path, object)?;
    stamp.write(&stamp_path())?;
    println!("{}: {stamp}", project::relative(&path).display());
    Ok(())
}

/// Builds the object with log lines into the folder where a profiler with the feature `bpf-log` reads it.
fn write_log_object() -> Result<()> {
    let object = compile(&Toolchain::find()?, project::root(), &["--features", "log"])?;
    let path = project::root().join(LOG_OBJECT);
    fs::create_dir_all(path.parent().context("the object is in a folder")?)?;
    fs::write(&path, &object)?;
    println!(
        "{LOG_OBJECT}: {} bytes; `cargo run --features bpf-log -- --no-sandbox -vv ...` prints its log",
        object.len()
    );
    Ok(())
}

/// Fails if the stamp does not name the sources, the committed object and the pinned toolchain.
pub(crate) fn check_stamp() -> Result<()> {
    let committed = fs::read(object_path()).with_context(|| format!("no BPF object: {REBUILD}"))?;
    let stamp = Stamp::read(&stamp_path()).with_context(|| format!("no stamp: {REBUILD}"))?;
    ensure!(stamp.source_sha256 == stamp::source_sha256()?, "the BPF object is stale: {REBUILD}");
    ensure!(stamp.object_sha256 == sha256(&committed), "object and stamp do not belong together: {REBUILD}");
    ensure!(
        stamp.versions() == PINNED,
        "the object was built with another toolchain than the pinned one: {REBUILD}"
    );
    Ok(())
}

/// The step of `cargo xtask prove`.
pub(crate) fn install_and_check() -> Result<()> {
    setup::install(&[setup::Purpose::Ebpf])?;
    check()
}

/// Fails if the committed object is not what the sources give.
fn check() -> Result<()> {
    check_stamp()?;
    let path = object_path();
    let committed = fs::read(&path)?;
    let toolchain = Toolchain::find()?;
    toolchain.ensure_pinned()?;
    let copy = source_copy::create(&project::root().join("target/ebpf-sources-elsewhere"))?;
    let object = compile(&toolchain, &copy, &[])?;
    if object != committed {
        return Err(difference(&committed, &compile(&toolchain, project::root(), &[])?));
    }
    let fresh = stamp_of(&toolchain, &object)?;
    println!("{}: as built from a copy of the sources; {fresh}", project::relative(&path).display());
    Ok(())
}

/// Why the object from a copy of the sources is not the committed one. `in_place` is the one from the sources themselves.
fn difference(committed: &[u8], in_place: &[u8]) -> Error {
    if committed == in_place {
        return anyhow!("the BPF object depends on the path of its sources: see the flags of the compiler");
    }
    anyhow!("a fresh build of the BPF program differs from the committed object: {REBUILD}")
}

fn build(toolchain: &Toolchain) -> Result<(Vec<u8>, Stamp)> {
    let object = compile(toolchain, project::root(), &[])?;
    let stamp = stamp_of(toolchain, &object)?;
    Ok((object, stamp))
}

fn stamp_of(toolchain: &Toolchain, object: &[u8]) -> Result<Stamp> {
    Ok(Stamp {
        source_sha256: stamp::source_sha256()?,
        object_sha256: sha256(object),
        object_bytes: object.len(),
        rustc: toolchain.rustc_version.clone(),
        bpf_linker: toolchain.linker_version.clone(),
        instructions: object_file::instructions(object)?,
    })
}

/// Compiles the BPF programs below `sources` with further arguments of cargo; the stripped object.
fn compile(toolchain: &Toolchain, sources: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let target_folder = sources.join("target/ebpf");
    let flags = serde_json::to_string(&remap_flags(toolchain, sources)?)?;
    let mut cargo = toolchain.cargo("build");
    cargo
        .args(["--quiet", "--release", "--locked", "--target", TARGET, "--config"])
        .arg(format!("target.{TARGET}.rustflags={flags}"))
        .arg("--target-dir")
        .arg(&target_folder)
        .args(arguments)
        .current_dir(bpf_crate(sources));
    shell::run(&mut cargo)?;

    let built = fs::read(target_folder.join(TARGET).join("release/profiler"))?;
    let object = object_file::strip_debug_info(&built)?;
    ensure_no_machine_path(&object, sources)?;
    Ok(object)
}

/// Compiler flags that take the builder's folders out of the object, for the same bytes on every machine.
///
/// The folders named instead exist nowhere: LLVM copies the source lines of files that it can open into BTF.
fn remap_flags(toolchain: &Toolchain, sources: &Path) -> Result<Vec<String>> {
    let mut folders = dependency_folders(toolchain, sources)?;
    folders.insert(sources.to_owned(), "/profiler".to_owned());
    folders.insert(toolchain.library_sources(), "/rust".to_owned());
    let flag = |(from, to): (PathBuf, String)| format!("--remap-path-prefix={}={to}", from.display());
    Ok(folders.into_iter().map(flag).collect())
}

/// Where cargo has unpacked each dependency, with the name it gets instead.
fn dependency_folders(toolchain: &Toolchain, sources: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let metadata = workspace::metadata(toolchain.cargo("metadata").current_dir(bpf_crate(sources)))?;
    let downloaded = metadata.packages.into_iter().filter(|package| package.source.is_some());
    let folder = |package: Package| {
        (workspace::folder(&package).to_owned(), format!("/cargo/{}-{}", package.name, package.version))
    };
    Ok(downloaded.map(folder).collect())
}

fn ensure_no_machine_path(object: &[u8], sources: &Path) -> Result<()> {
    for folder in [sources.to_owned(), shell::cargo_home(), shell::home()] {
        let name = folder.as_os_str().as_encoded_bytes();
        let found = name.len() > 1 && object.windows(name.len()).any(|window| window == name);
        ensure!(!found, "the BPF object names a folder of this machine: {}", folder.display());
    }
    Ok(())
}

fn bpf_crate(sources: &Path) -> PathBuf {
    sources.join("profiler-ebpf")
}

fn object_path() -> PathBuf {
    embedded().with_extension("o")
}

fn stamp_path() -> PathBuf {
    embedded().with_extension("json")
}

fn embedded() -> PathBuf {
    project::root().join("crates/sampler/src/ebpf/profiler.bpf.o")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_the_cause() {
        assert!(difference(b"1", b"1").to_string().contains("depends on the path"));
        assert!(difference(b"1", b"2").to_string().contains(REBUILD));
    }
}
