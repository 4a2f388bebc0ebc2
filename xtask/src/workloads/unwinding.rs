//! The workloads that keep no frame pointers, into a folder of their own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use crate::{
    make::make,
    project,
    rust_workload::{output_folder, source_folder},
};

/// Flags for GNU compilers: no frame pointers, optimized as a release, with every call and name of the source.
pub(super) const FLAGS: [&str; 11] = [
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O2",
    "-g",
    "-fomit-frame-pointer",
    "-fno-inline",
    "-fno-ipa-cp",
    "-fno-ipa-sra",
    "-pthread",
];

/// A program that is built in more than one way, or from a source that others keep frame pointers in.
struct Variant {
    name: &'static str,
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
}

impl Variant {
    const fn new(
        compiler: &'static str,
        name: &'static str,
        source: &'static str,
        flags: &'static [&'static str],
    ) -> Self {
        Self { name, source, compiler, flags }
    }
}

/// A static program whose C library has no call frame information.
const LIBRARIES_MUSL: Variant =
    Variant::new("musl-gcc", "libraries-musl", "unwinding/libraries.c", &["-static"]);

const VARIANTS: [Variant; 24] = [
    Variant::new("gcc", "dlopen", "dlopen.c", &[]),
    Variant::new("gcc", "plugin.so", "plugin.c", &["-shared", "-fPIC"]),
    Variant::new("gcc", "replugs", "replugs.c", &[]),
    Variant::new(
        "gcc",
        "small.so",
        "plugin.c",
        &["-shared", "-fPIC", "-DFRAME_BYTES=64", "-Dplugin_burn=small_burn", "-Dplugin_leaf=small_leaf"],
    ),
    Variant::new(
        "gcc",
        "large.so",
        "plugin.c",
        &["-shared", "-fPIC", "-DFRAME_BYTES=96", "-Dplugin_burn=large_burn", "-Dplugin_leaf=large_leaf"],
    ),
    Variant::new("gcc", "lazy_binding", "lazy_binding.c", &[]),
    Variant::new("gcc", "lazy.so", "lazy.c", &["-shared", "-fPIC", "-Wl,-z,lazy"]),
    Variant::new("gcc", "threads", "threads.c", &[]),
    Variant::new("gcc", "waits", "waits.c", &[]),
    Variant::new("gcc", "occurrences", "occurrences.c", &[]),
    Variant::new("gcc", "off_cpu", "off_cpu.c", &[]),
    Variant::new("gcc", "parked", "parked.c", &[]),
    Variant::new("gcc", "switches", "switches.c", &[]),
    Variant::new("gcc", "empty_programs", "empty_programs.c", &[]),
    Variant::new("gcc", "forkstorm", "forkstorm.c", &[]),
    Variant::new("gcc", "shapes-static-pie", "unwinding/shapes.c", &["-static-pie"]),
    Variant::new("musl-gcc", "shapes-musl", "unwinding/shapes.c", &["-static"]),
    LIBRARIES_MUSL,
    Variant::new("musl-gcc", "libraries-musl-shared", "unwinding/libraries.c", &[]),
    // As in images: without symbols. So is the musl of distributions.
    Variant::new("musl-gcc", "waits-musl", "waits.c", &["-static", "-s"]),
    Variant::new("musl-gcc", "waits-musl-shared", "waits.c", &["-s"]),
    // Nothing but `.debug_frame`, as debuggers read it.
    Variant::new(
        "musl-gcc",
        "shapes-debug-frame",
        "unwinding/shapes.c",
        &["-static", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ),
    // `.eh_frame` of the C library's startup code, and `.debug_frame` of its own.
    Variant::new(
        "gcc",
        "shapes-both-frames",
        "unwinding/shapes.c",
        &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ),
    // As lld and mold link: without call frame information for the PLT.
    Variant::new(
        "gcc",
        "linkage-bare",
        "unwinding/linkage.c",
        &["-Wl,-z,now", "-Wl,--no-ld-generated-unwind-info"],
    ),
];

pub(super) fn build() -> Result<()> {
    fs::create_dir_all(folder())?;
    for source in project::files_below(&source_folder().join("unwinding"))? {
        let program = folder().join(source.file_stem().context("a source file has a name")?);
        match source.extension().and_then(|extension| extension.to_str()) {
            Some("c") => compile("gcc", &source, &program, &["-Wl,-z,now"])?,
            Some("cpp") => compile("g++", &source, &program, &[])?,
            Some("rs") => compile_rust(&source, &program)?,
            _ => {}
        }
    }
    VARIANTS.iter().try_for_each(build_variant)
}

/// Builds the program that virtual machines run.
pub(super) fn build_static_with_musl() -> Result<()> {
    fs::create_dir_all(folder())?;
    build_variant(&LIBRARIES_MUSL)
}

fn build_variant(variant: &Variant) -> Result<()> {
    let source = source_folder().join(variant.source);
    compile(variant.compiler, &source, &folder().join(variant.name), variant.flags)
}

fn compile(compiler: &str, source: &Path, program: &Path, flags: &[&str]) -> Result<()> {
    let mut command = Command::new(compiler);
    command.args(FLAGS).args(flags).arg("-o").arg(program).arg(source);
    make(program, &[source, &source_folder().join("lifetime.h")], &mut command)
}

/// Compiles as cargo builds a release: rustc omits frame pointers by default. The v0 mangling distinguishes the instances
/// of a generic function.
fn compile_rust(source: &Path, program: &Path) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--edition", "2024", "-O", "-g", "-C", "symbol-mangling-version=v0", "-o"])
        .arg(program)
        .arg(source);
    make(program, &[source, &source_folder().join("lifetime.rs")], &mut rustc)
}

fn folder() -> PathBuf {
    output_folder().join("unwinding")
}
