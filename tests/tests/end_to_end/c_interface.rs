//! Tests the C interface with a program in C that AddressSanitizer checks.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::{FoldedStack, FoldedStacks, Workload, run_beside_others, run_command};

/// The folder with the library that cargo has built for this test.
fn library_folder() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libprofiler_capi.so").is_file(), "{}", folder.display());
    folder
}

/// Compiles a program with sanitizers, which report wrong accesses and memory that is not freed.
fn compile(source: &Path, program: &Path) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined"]);
    gcc.arg("-I").arg(repository().join("crates/capi/include")).arg(source).arg("-L").arg(library_folder());
    let rpath = format!("-Wl,-rpath,{}", library_folder().display());
    let compiled = run_command(gcc.args(["-lprofiler_capi", &rpath, "-o"]).arg(program));
    assert!(compiled.status.success(), "{}", compiled.stderr);
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether a stack is in the function that the workload `chain` calls last.
fn is_in_chain(stack: &FoldedStack) -> bool {
    stack.frames.iter().any(|frame| frame == "leaf")
}

#[test]
fn a_program_in_c_samples_writes_and_symbolizes() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, folded) = (folder.path().join("program"), folder.path().join("folded"));
    compile(&repository().join("crates/capi/tests/program.c"), &program);

    let workload = Workload::start("chain");
    let run = run_command(Command::new(&program).arg(workload.pid().to_string()).arg(&folded));
    assert!(run.status.success(), "{}{}", run.stdout, run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines[0], "1 there is no target to sample");
    assert_eq!(lines[1], format!("main in {}", program.display()));
    assert!(lines[3].starts_with("1 `no such format` is not a known format"), "{}", lines[3]);
    let stacks = FoldedStacks::parse(&fs::read_to_string(&folded).unwrap());
    assert_eq!(lines[2], format!("samples {}", stacks.count(|_| true)));
    assert!(stacks.count(is_in_chain) > 0, "{stacks:#?}");
}

#[test]
fn the_program_of_the_document_writes_folded_stacks() {
    let Some(_lock) = run_beside_others() else { return };
    let document = fs::read_to_string(repository().join("docs/c.md")).unwrap();
    let (_, block) = document.split_once("```c\n").unwrap();
    let (program, _) = block.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, compiled) = (folder.path().join("hot.c"), folder.path().join("hot"));
    fs::write(&source, program).unwrap();
    compile(&source, &compiled);

    let workload = Workload::start("chain");
    let run = run_command(Command::new(&compiled).arg(workload.pid().to_string()));
    assert!(run.status.success(), "{}", run.stderr);
    let stacks = FoldedStacks::parse(&run.stdout);
    assert!(stacks.count(is_in_chain) > 0, "{stacks:#?}");
}
