//! The workloads that keep no frame pointers, into a folder of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

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

/// A static program whose C library has no call frame information.
const LIBRARIES_MUSL: Variant = Variant {
    name: "libraries-musl",
    source: "unwinding/libraries.c",
    compiler: "musl-gcc",
    flags: &["-static"],
};

const VARIANTS: [Variant; 24] = [
    Variant { name: "dlopen", source: "dlopen.c", compiler: "gcc", flags: &[] },
    Variant { name: "plugin.so", source: "plugin.c", compiler: "gcc", flags: &["-shared", "-fPIC"] },
    Variant { name: "replugs", source: "replugs.c", compiler: "gcc", flags: &[] },
    Variant {
        name: "small.so",
        source: "plugin.c",
        compiler: "gcc",
        flags: &[
            "-shared",
            "-fPIC",
            "-DFRAME_BYTES=64",
            "-Dplugin_burn=small_burn",
            "-Dplugin_leaf=small_leaf",
        ],
    },
    Variant {
        name: "large.so",
        source: "plugin.c",
        compiler: "gcc",
        flags: &[
            "-shared",
            "-fPIC",
            "-DFRAME_BYTES=96",
            "-Dplugin_burn=large_burn",
            "-Dplugin_leaf=large_leaf",
        ],
    },
    Variant { name: "lazy_binding", source: "lazy_binding.c", compiler: "gcc", flags: &[] },
    Variant {
        name: "lazy.so",
        source: "lazy.c",
        compiler: "gcc",
        flags: &["-shared", "-fPIC", "-Wl,-z,lazy"],
    },
    Variant { name: "threads", source: "threads.c", compiler: "gcc", flags: &[] },
    Variant { name: "waits", source: "waits.c", compiler: "gcc", flags: &[] },
    Variant { name: "occurrences", source: "occurrences.c", compiler: "gcc", flags: &[] },
    Variant { name: "off_cpu", source: "off_cpu.c", compiler: "gcc", flags: &[] },
    Variant { name: "parked", source: "parked.c", compiler: "gcc", flags: &[] },
    Variant { name: "switches", source: "switches.c", compiler: "gcc", flags: &[] },
    Variant { name: "empty_programs", source: "empty_programs.c", compiler: "gcc", flags: &[] },
    Variant { name: "forkstorm", source: "forkstorm.c", compiler: "gcc", flags: &[] },
    Variant {
        name: "shapes-static-pie",
        source: "unwinding/shapes.c",
        compiler: "gcc",
        flags: &["-static-pie"],
    },
    Variant { name: "shapes-musl", source: "unwinding/shapes.c", compiler: "musl-gcc", flags: &["-static"] },
    LIBRARIES_MUSL,
    Variant {
        name: "libraries-musl-shared",
        source: "unwinding/libraries.c",
        compiler: "musl-gcc",
        flags: &[],
    },
    // As in images: without symbols. So is the musl of distributions.
    Variant { name: "waits-musl", source: "waits.c", compiler: "musl-gcc", flags: &["-static", "-s"] },
    Variant { name: "waits-musl-shared", source: "waits.c", compiler: "musl-gcc", flags: &["-s"] },
    // Nothing but `.debug_frame`, as debuggers read it.
    Variant {
        name: "shapes-debug-frame",
        source: "unwinding/shapes.c",
        compiler: "musl-gcc",
        flags: &["-static", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    },
    // `.eh_frame` of the C library's startup code, and `.debug_frame` of its own.
    Variant {
        name: "shapes-both-frames",
        source: "unwinding/shapes.c",
        compiler: "gcc",
        flags: &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    },
    // As lld and mold link: without call frame information for the PLT.
    Variant {
        name: "linkage-bare",
        source: "unwinding/linkage.c",
        compiler: "gcc",
        flags: &["-Wl,-z,now", "-Wl,--no-ld-generated-unwind-info"],
    },
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
