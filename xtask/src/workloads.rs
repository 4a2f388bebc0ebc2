//! `cargo xtask workloads`: builds the programs that the end-to-end tests profile, into `target/workloads`.

#![cfg(feature = "commands")]

mod aspnet;
mod single_file;
mod unwinding;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use clap::Args;
use fs_err as fs;

pub(crate) use crate::rust_workload::output_folder;
use crate::{
    dist,
    make::make,
    project,
    rust_workload::{self, source_folder},
    setup, static_binary,
};

/// Build the programs that the end-to-end tests profile.
#[derive(Args)]
pub(crate) struct Workloads {}

/// Flags that keep frame pointers and every call of the source.
const C_FLAGS: [&str; 12] = [
    "-std=gnu17",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
    "-fno-inline",
    "-fno-optimize-sibling-calls",
    "-pthread",
];

/// Flags that keep every call of a program without frame pointers.
const FRAMELESS_CHAIN_FLAGS: [&str; 2] = ["-std=gnu17", "-fno-optimize-sibling-calls"];

/// A program in C that exports what a .NET runtime exports, and has no symbol table.
const FALSE_RUNTIME: &str = "false_runtime";

/// Programs in C that are also linked statically, as `NAME-static`: they run in containers without libraries.
const STATIC_PROGRAMS: [&str; 5] = ["jit", "mutexes", "page_reader", "shares", "syscalls"];

/// Programs in Rust; the other files are their modules.
const RUST_PROGRAMS: [&str; 3] = ["demo", "inlines", "load"];

/// What the .NET program uses of its runtime.
const ASSEMBLIES: [&str; 16] = [
    "System.Collections",
    "System.ComponentModel.Primitives",
    "System.Console",
    "System.Diagnostics.Process",
    "System.IO.FileSystem",
    "System.Net.Primitives",
    "System.Net.Sockets",
    "System.Private.CoreLib",
    "System.Reflection.Emit.ILGeneration",
    "System.Reflection.Emit.Lightweight",
    "System.Reflection.Primitives",
    "System.Runtime",
    "System.Runtime.Extensions",
    "System.Text.Encoding.Extensions",
    "System.Threading",
    "System.Threading.Thread",
];

impl Workloads {
    pub(crate) fn run(&self) -> Result<()> {
        build()
    }
}

/// Builds what is older than its source.
pub(crate) fn build() -> Result<()> {
    fs::create_dir_all(output_folder())?;
    for source in project::files_below(&source_folder())? {
        let is_here = source.parent() == Some(&source_folder());
        if is_here && source.extension().is_some_and(|extension| extension == "c") {
            build_c(&source)?;
        }
    }
    for program in STATIC_PROGRAMS {
        build_static(program)?;
    }
    for program in RUST_PROGRAMS {
        rust_workload::build(program)?;
    }
    build_frameless_chain()?;
    build_false_runtime()?;
    unwinding::build()?;
    build_go()?;
    build_dotnet()?;
    // The product itself, for containers that have nothing else.
    let profiler = output_folder().join("profiler");
    fs::copy(static_binary::build(static_binary::QUICK)?, &profiler)?;
    let release = output_folder().join("dist");
    if release.exists() {
        fs::remove_dir_all(&release)?;
    }
    dist::pack(&profiler, &release)
}

/// Builds the programs in C that virtual machines run.
pub(crate) fn build_for_virtual_machines() -> Result<()> {
    fs::create_dir_all(output_folder())?;
    for program in ["shortlived", "forkstorm", "syscalls"] {
        build_c(&source_folder().join(program).with_extension("c"))?;
    }
    build_static("shares")?;
    build_frameless_chain()?;
    unwinding::build_static_with_musl()
}

fn build_frameless_chain() -> Result<()> {
    let program = output_folder().join("chain-frameless");
    compile_c(&unwinding::FLAGS, &source_folder().join("chain.c"), &program, &FRAMELESS_CHAIN_FLAGS)
}

fn build_false_runtime() -> Result<()> {
    let source = source_folder().join(FALSE_RUNTIME).with_extension("c");
    compile_c(&C_FLAGS, &source, &output_folder().join(FALSE_RUNTIME), &["-rdynamic", "-s"])
}

fn build_c(source: &Path) -> Result<()> {
    let name = source.file_stem().context("a source file has a name")?;
    let program = output_folder().join(name);
    if name == FALSE_RUNTIME {
        return Ok(());
    }
    if ["plugin", "lazy"].iter().any(|library| name == *library) {
        return compile_c(&C_FLAGS, source, &program.with_extension("so"), &["-shared", "-fPIC"]);
    }
    compile_c(&C_FLAGS, source, &program, &[])
}

fn build_static(name: &str) -> Result<()> {
    let source = source_folder().join(name).with_extension("c");
    compile_c(&C_FLAGS, &source, &output_folder().join(format!("{name}-static")), &["-static"])
}

fn compile_c(common_flags: &[&str], source: &Path, program: &Path, flags: &[&str]) -> Result<()> {
    let mut gcc = Command::new("gcc");
    gcc.args(common_flags).args(flags).arg("-o").arg(program).arg(source);
    let mut sources = vec![source.to_owned()];
    let is_header = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "h");
    sources.extend(project::files_below(&source_folder())?.into_iter().filter(is_header));
    make(program, &sources.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &mut gcc)
}

/// Stripped, as the programs of most images are.
fn build_go() -> Result<()> {
    let (source, program) = (source_folder().join("goroutines.go"), output_folder().join("goroutines"));
    let mut go = setup::go();
    go.args(["build", "-ldflags=-s -w", "-o"]).arg(&program).arg(&source);
    make(&program, &[&source], &mut go)
}

fn build_dotnet() -> Result<()> {
    let source_folder = project::root().join("tests/dotnet");
    let folder = output_folder().join("dotnet");
    fs::create_dir_all(folder.join("app"))?;
    fs::copy(source_folder.join("run"), folder.join("run"))?;
    for config in ["3.1.json", "8.0.json", "9.0.json", "aspnet.json"] {
        fs::copy(source_folder.join(config), folder.join("app").join(config))?;
    }
    let framework = setup::dotnet_runtime("3.1").join("shared/Microsoft.NETCore.App/3.1.23");
    let program = folder.join("app/app.dll");
    let sources = [
        "App.cs",
        "Events.cs",
        "Frameless.cs",
        "Gaps.cs",
        "Replaced.cs",
        "Reuse.cs",
        "Services.cs",
        "Storms.cs",
        "Waits.cs",
    ]
    .map(|name| source_folder.join(name));
    compile_with_mcs(&sources, &framework, &ASSEMBLIES, &program)?;
    single_file::build(&program)?;
    aspnet::build(&folder.join("app"), &framework, &folder.join("app/9.0.json"))
}

/// Compiles C# by Mono's compiler, with assemblies of a framework that it can read.
fn compile_with_mcs(
    sources: &[PathBuf],
    framework: &Path,
    assemblies: &[&str],
    program: &Path,
) -> Result<()> {
    let mut mcs = Command::new("mcs");
    // 1701 and 1702: an assembly of the framework refers to another version of one.
    mcs.args(["-nostdlib", "-noconfig", "-optimize+", "-warnaserror", "-nowarn:1701,1702"]);
    for assembly in assemblies {
        mcs.arg(format!("-reference:{}/{assembly}.dll", framework.display()));
    }
    mcs.arg(format!("-out:{}", program.display())).args(sources);
    make(program, &sources.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &mut mcs)
}
