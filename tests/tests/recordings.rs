//! Reports, filters and compares recorded profiles on the command line.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use profiler::Profile;
use profiler_tests::{
    FoldedStacks, Outcome, Workload, file, profiler, run_beside_others, run_command, workload_path,
};
use tempfile::TempDir;

/// A folder with `run.profile` and the other output files of the same run.
struct Recorded {
    folder: TempDir,
}

impl Recorded {
    /// Replays a capture, which needs no privileges.
    fn new(arguments: &[&str]) -> Self {
        let recorded = Self { folder: tempfile::tempdir().unwrap() };
        let mut replay = profiler(&["replay", "-q"]);
        replay.arg(file("captures/jit")).args(arguments);
        for name in ["run.profile", "run.folded", "run.svg", "run.html", "run.top"] {
            replay.arg("-o").arg(recorded.path(name));
        }
        let run = run_command(&mut replay);
        assert_eq!(run.code(), 0, "{}", run.stderr);
        recorded
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn profile(&self) -> PathBuf {
        self.path("run.profile")
    }

    /// Checks that a report of the recording in each format equals the file of its run.
    fn assert_reports_what_the_run_wrote(&self) {
        for name in ["run.folded", "run.svg", "run.html", "run.top", "run.profile"] {
            let again = self.path(&format!("again.{}", name.split_once('.').unwrap().1));
            let report = run_command(profiler(&["report"]).arg(self.profile()).arg("-o").arg(&again));
            assert_eq!(report.code(), 0, "{}", report.stderr);
            assert_eq!(std::fs::read(self.path(name)).unwrap(), std::fs::read(again).unwrap(), "{name}");
        }
    }
}

fn report(path: &Path, arguments: &[&str]) -> Outcome {
    run_command(profiler(&["report"]).arg(path).args(arguments))
}

#[test]
fn a_report_has_the_same_bytes_as_the_output_of_the_run() {
    Recorded::new(&[]).assert_reports_what_the_run_wrote();
    Recorded::new(&["--focus", "Generated", "--collapse-recursion", "--merge-addresses"])
        .assert_reports_what_the_run_wrote();
}

#[test]
fn a_report_of_a_live_session_has_the_same_bytes_as_its_output() {
    let Some(_lock) = run_beside_others() else { return };
    let recorded = Recorded { folder: tempfile::tempdir().unwrap() };
    let workload = Workload::start("shares");
    let mut command = profiler(&["-p", &workload.pid().to_string(), "-F", "999", "-d", "0.5"]);
    for name in ["run.profile", "run.folded", "run.svg", "run.html", "run.top"] {
        command.arg("-o").arg(recorded.path(name));
    }
    let run = run_command(&mut command);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    drop(workload);
    recorded.assert_reports_what_the_run_wrote();
    let again = report(&recorded.profile(), &["-o", "/dev/null", "--format", "top"]);
    assert_eq!(again.stderr, run.stderr, "the summary is the measurement's");
}

#[test]
fn a_report_symbolizes_a_stripped_program_by_its_build_id() {
    let Some(_lock) = run_beside_others() else { return };
    let recorded = Recorded { folder: tempfile::tempdir().unwrap() };
    let stripped = recorded.path("stripped");
    let strip = run_command(Command::new("strip").arg("-o").arg(&stripped).arg(workload_path("shares")));
    assert_eq!(strip.code(), 0, "{}", strip.stderr);
    let workload = Workload::run(Command::new(&stripped).arg("60"));
    let pid = workload.pid().to_string();
    let run = run_command(profiler(&["-p", &pid, "-F", "999", "-d", "0.5", "-o"]).arg(recorded.profile()));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    drop(workload);

    let symbols = recorded.path("symbols");
    std::fs::create_dir(&symbols).unwrap();
    std::fs::copy(workload_path("shares"), symbols.join("stripped.debug")).unwrap();
    let (unsymbolized, named) = (
        report(&recorded.profile(), &[]),
        report(&recorded.profile(), &["--debug-dir", symbols.to_str().unwrap()]),
    );
    let share =
        |report: &Outcome| FoldedStacks::parse(&report.stdout).percent(|stack| stack.has("round_of_work"));
    assert_eq!(share(&unsymbolized), 0.0, "{}", unsymbolized.stdout);
    assert!(share(&named) > 90.0, "{}", named.stdout);
    assert!(named.stderr.contains("addresses symbolized later"), "{}", named.stderr);
}

#[test]
fn filters_give_the_same_profile_while_sampling_and_in_a_report() {
    let flags = ["--focus", "demo!", "--min-share", "5%", "--hide", "^_start$"];
    let (first, later) = (Recorded::new(&flags), Recorded::new(&[]));
    let report = report(&later.profile(), &[&flags[..], &["-o", "-"]].concat());
    assert_eq!(report.stdout, std::fs::read_to_string(first.path("run.folded")).unwrap());
    assert!(
        report.stderr.contains("shown: ") && report.stderr.contains("--focus demo!"),
        "{}",
        report.stderr
    );
}

#[test]
fn a_report_without_matching_samples_has_the_exit_code_of_a_session_without_samples() {
    let recorded = Recorded::new(&[]);
    let nothing = ["--focus", "no such function"];
    let run = report(&recorded.profile(), &nothing);
    assert_eq!((run.code(), run.stdout.as_str()), (3, ""));
    assert!(run.stderr.contains("shown: 0 samples: --focus no such function"), "{}", run.stderr);
    let picture = recorded.path("nothing.svg");
    let drawn = report(&recorded.profile(), &[&nothing[..], &["-o", picture.to_str().unwrap()]].concat());
    assert_eq!((drawn.code(), drawn.stderr), (3, run.stderr));
}

#[test]
fn top_prints_a_table_of_the_hottest_functions() {
    let recorded = Recorded::new(&[]);
    let top = run_command(profiler(&["top"]).arg(recorded.profile()));
    assert_eq!((top.code(), top.stderr.as_str()), (0, ""));
    assert_eq!(top.stdout, std::fs::read_to_string(recorded.path("run.top")).unwrap());
    assert!(top.stdout.contains("demo!Demo.Program.Generated(long)"), "{}", top.stdout);
    assert!(top.stdout.lines().all(|line| line.chars().count() <= 100), "{}", top.stdout);
}

#[test]
fn the_difference_of_a_profile_to_itself_is_zero() {
    let recorded = Recorded::new(&[]);
    let diff = run_command(profiler(&["diff"]).arg(recorded.profile()).arg(recorded.profile()));
    assert_eq!(diff.code(), 0, "{}", diff.stderr);
    assert!(!diff.stdout.contains("Generated"), "{}", diff.stdout);
    let folded =
        run_command(profiler(&["diff", "-o", "-.folded"]).arg(recorded.profile()).arg(recorded.profile()));
    for line in folded.stdout.lines() {
        let mut counts = line.rsplit(' ');
        assert_eq!(counts.next(), counts.next(), "{line}");
    }
    assert!(folded.stderr.contains("more than noise"), "{}", folded.stderr);
}

#[test]
fn a_difference_lists_the_largest_change_first_and_draws_it() {
    let (whole, part) = (Recorded::new(&[]), Recorded::new(&["--ignore", "Generated"]));
    let (svg, page) = (whole.path("diff.svg"), whole.path("diff.html"));
    let mut diff = profiler(&["diff"]);
    let diff =
        run_command(diff.arg(whole.profile()).arg(part.profile()).arg("-o").arg(&svg).arg("-o").arg(&page));
    assert_eq!((diff.code(), diff.stdout.as_str()), (0, ""), "{}", diff.stderr);
    let row = diff.stderr.lines().find(|line| line.contains("demo!")).unwrap();
    assert!(row.contains("Generated") && row.contains('*'), "{}", diff.stderr);
    assert!(std::fs::read_to_string(svg).unwrap().contains("compared with"));
    assert!(std::fs::read_to_string(page).unwrap().contains("id=\"profile\">"));
}

#[test]
fn a_format_without_differences_is_rejected_with_the_formats_that_have_them() {
    let recorded = Recorded::new(&[]);
    let output = recorded.path("diff.profile");
    let diff = run_command(
        profiler(&["diff"]).arg(recorded.profile()).arg(recorded.profile()).arg("-o").arg(&output),
    );
    assert_eq!(diff.code(), 2);
    assert!(diff.stderr.contains("folded, svg, html, top"), "{}", diff.stderr);
    assert!(!output.exists());
}

#[test]
fn a_truncated_recording_is_read_as_far_as_possible_with_a_warning() {
    let recorded = Recorded::new(&[]);
    let whole = std::fs::read(recorded.profile()).unwrap();
    let cut = recorded.path("cut.profile");
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let run = report(&cut, &[]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(run.stdout, std::fs::read_to_string(recorded.path("run.folded")).unwrap());
    assert!(run.stderr.contains("damaged file (it ends too early)"), "{}", run.stderr);
}

#[test]
fn a_file_that_is_not_a_recording_is_an_error_with_its_path() {
    let recorded = Recorded::new(&[]);
    for path in [recorded.path("run.svg"), recorded.path("missing.profile")] {
        for action in ["report", "top"] {
            let run = run_command(profiler(&[action]).arg(&path));
            assert_eq!((run.code(), run.stdout.as_str()), (1, ""));
            assert!(run.stderr.contains(path.to_str().unwrap()), "{}", run.stderr);
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        }
    }
}

#[test]
fn a_report_reads_standard_input_and_tolerates_a_closed_output_pipe() {
    let recorded = Recorded::new(&[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let stdin = std::fs::File::open(recorded.profile()).unwrap();
    let status = profiler(&["report", "-q", "-"]).stdin(stdin).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn invalid_filters_are_argument_errors() {
    for (flags, word) in [
        (&["--focus", "("][..], "not a valid regular expression"),
        (&["--min-share", "200%"], "0.5%"),
        (&["--from", "soon"], "500ms"),
    ] {
        for action in [&["report", "x.profile"][..], &["-p", "1"]] {
            let run = run_command(&mut profiler(&[action, flags].concat()));
            assert_eq!((run.code(), run.stdout.as_str()), (2, ""));
            assert!(run.stderr.contains(word), "{}", run.stderr);
        }
    }
}

#[test]
fn the_library_reads_a_recording() {
    let recorded = Recorded::new(&[]);
    let profile = Profile::read(std::fs::File::open(recorded.profile()).unwrap()).unwrap();
    let folded = std::fs::read_to_string(recorded.path("run.folded")).unwrap();
    assert_eq!(FoldedStacks::from_profile(&profile), FoldedStacks::parse(&folded));
    assert!(profile.ledger().adds_up());
}
