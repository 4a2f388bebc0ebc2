//! Tests debug information outside of the executable: split DWARF, and the shared file of `dwz`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use profiler::Profile;
use profiler_tests::{
    Workload, file, run_beside_others, run_command, sample, sample_pid, skip_unless_required,
};

/// The functions of `tests/workloads/shares.c` that take nine tenths of its time.
const FUNCTIONS: [&str; 2] = ["alpha", "beta"];

/// Compiles the workload `shares` in `folder`.
fn compile(folder: &Path, name: &str, flags: &[&str]) {
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-std=gnu17",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-fno-inline",
        "-fno-omit-frame-pointer",
        "-pthread",
    ]);
    gcc.args(flags).arg("-o").arg(name).arg(file("workloads/shares.c")).current_dir(folder);
    let run = run_command(&mut gcc);
    assert_eq!(run.code(), 0, "{}", run.stderr);
}

fn profile(program: &Path) -> Profile {
    let workload = Workload::run(Command::new(program).arg("600"));
    sample(sample_pid(workload.pid()).inlines(true).lines(true), 500)
}

/// The number of frames of the workload's functions, and the number of those with a source line within their
/// function.
fn frames_with_lines(profile: &Profile) -> (usize, usize) {
    let source = fs::read_to_string(file("workloads/shares.c")).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let is_in = |function: &str, line: u32| {
        let before = lines.get(..line as usize).unwrap_or_default();
        let start = before.iter().rfind(|line| FUNCTIONS.iter().any(|name| is_definition(line, name)));
        start.is_some_and(|start| is_definition(start, function))
    };
    let (mut all, mut right) = (0, 0);
    for sample in profile.samples() {
        for frame in profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)) {
            let name = profile.string(frame.name);
            if FUNCTIONS.contains(&name) {
                all += 1;
                let location = frame.location.filter(|at| profile.string(at.file).ends_with("shares.c"));
                right += usize::from(location.is_some_and(|at| is_in(name, at.line)));
            }
        }
    }
    (all, right)
}

fn is_definition(line: &str, function: &str) -> bool {
    line.contains(&format!(" {function}(")) && !line.starts_with(' ') && !line.ends_with(';')
}

fn assert_all_have_lines(profile: &Profile) {
    let (all, right) = frames_with_lines(profile);
    assert!(all > 300, "{all} frames");
    assert!(right * 100 >= all * 99, "{right} of {all} frames have the line of their function");
}

#[test]
fn source_lines_come_from_split_dwarf_beside_the_program() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "split", &["-gsplit-dwarf"]);
    let is_split = |path: &Path| path.extension().is_some_and(|extension| extension == "dwo");
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(files.into_iter().any(|path| is_split(&path)), "gcc leaves a .dwo file");
    assert_all_have_lines(&profile(&folder.path().join("split")));
}

#[test]
fn source_lines_and_names_come_from_the_shared_file_of_dwz() {
    let Some(_lock) = run_beside_others() else { return };
    let exists = Command::new("dwz").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if exists.is_err() {
        return skip_unless_required("dwz is missing: cargo xtask setup");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let run = run_command(Command::new(program).args(arguments).current_dir(folder.path()));
        assert_eq!(run.code(), 0, "{program}: {}", run.stderr);
    };
    for name in ["one", "two"] {
        compile(folder.path(), name, &[]);
        // Without symbols the names, too, come from the debug information.
        run("strip", &["--strip-all", "--keep-section=.debug_*", name]);
    }
    run("dwz", &["-m", "shared.debug", "one", "two"]);
    assert_all_have_lines(&profile(&folder.path().join("one")));
    fs::remove_file(folder.path().join("shared.debug")).expect("dwz moves what both programs have");
    assert_eq!(frames_with_lines(&profile(&folder.path().join("two"))), (0, 0), "the shared file is needed");
}
