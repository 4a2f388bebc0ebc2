//! The live view in a terminal: keys, resizing, signals, the end of the target, and the restored terminal.

use std::{fs, path::Path};

use profiler_tests::{FoldedStacks, Pane, Workload, profiler, run_beside_others, run_command, wait_until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const COLUMNS: u16 = 110;
const ROWS: u16 = 40;

/// A live view in a pane; the shell below prints its exit code.
struct Live {
    pane: Pane,
    folder: tempfile::TempDir,
}

impl Live {
    fn start(arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pane = Pane::open(folder.path(), COLUMNS, ROWS);
        let program = profiler(&[]).get_program().to_str().unwrap().to_owned();
        let [before, after] = ["before", "after"].map(|name| folder.path().join(name).display().to_string());
        pane.type_text(&format!(
            "stty -g > {before}; {program} live {arguments}; echo exited with $?; stty -g > {after}; echo rea''dy\n"
        ));
        Self { pane, folder }
    }

    fn for_workload(workload: &Workload) -> Self {
        let live = Self::start(&format!("-F 999 -p {}", workload.pid()));
        live.pane.wait_for("round_of_work");
        assert!(live.pane.has_alternate_screen());
        live
    }

    /// Types a file's name after `s`, and waits until the file is written.
    fn save(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        self.pane.type_text("s");
        self.pane.type_text(path.to_str().unwrap());
        self.pane.press("Enter");
        self.pane.wait_for("saved");
        // Any key clears the message, which the next call waits for.
        self.pane.press("Up");
        self.wait_until_gone("saved");
        fs::read_to_string(path).unwrap()
    }

    fn wait_until_gone(&self, text: &str) {
        wait_until(&format!("`{text}` to disappear"), || (!self.pane.text().contains(text)).then_some(()));
    }

    /// Waits for its exit, and checks the exit code and that the terminal is restored.
    fn assert_exited(&self, code: i32) {
        self.pane.wait_for("ready");
        let text = self.pane.text();
        assert!(text.contains(&format!("exited with {code}")), "{text}");
        assert!(!self.pane.has_alternate_screen());
        assert_same(&self.folder.path().join("before"), &self.folder.path().join("after"));
    }
}

fn assert_same(before: &Path, after: &Path) {
    assert_eq!(fs::read_to_string(before).unwrap(), fs::read_to_string(after).unwrap());
}

/// The process of a program that has these words in its command line.
fn pid_of(name: &str, wanted: &[&str]) -> Option<Pid> {
    let has_command_line = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let has_words = words.windows(wanted.len()).any(|words| words == wanted);
        words.first().is_some_and(|program| program.ends_with(name)) && has_words
    };
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.into_iter().find(has_command_line).and_then(Pid::from_raw)
}

#[test]
fn keys_search_zoom_pause_save_and_quit() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let live = Live::for_workload(&workload);
    live.pane.wait_for(" 0 lost");
    live.pane.type_text("/round_of");
    live.pane.wait_for("/round_of ");
    live.pane.press("Enter");
    live.pane.wait_for("samples  round_of_work");
    live.pane.press("Enter");
    live.pane.wait_for("zoomed: round_of_work");
    live.pane.press("Space");
    live.pane.wait_for("paused");
    live.pane.type_text("sx.pdf");
    live.pane.press("Enter");
    live.pane.wait_for("known: .folded");
    live.pane.press("Escape");
    live.wait_until_gone("known: .folded");
    let stacks = FoldedStacks::parse(&live.save("a.folded"));
    assert!(stacks.percent(|stack| stack.has("round_of_work")) > 90.0, "{stacks:#?}");
    assert!(live.save("a.svg").contains("round_of_work"));
    live.pane.type_text("q");
    live.assert_exited(0);
    assert!(live.pane.text().contains("samples in"), "the summary is printed at the end");
}

#[test]
fn the_view_stays_open_when_the_target_has_ended() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let live = Live::for_workload(&workload);
    workload.end();
    live.pane.wait_for("the target has ended");
    live.pane.type_text("/round_of_work");
    live.pane.press("Enter");
    live.pane.wait_for("samples  round_of_work");
    assert!(FoldedStacks::parse(&live.save("late.folded")).total() > 0);
    live.pane.press("C-c");
    live.assert_exited(0);
}

#[test]
fn a_signal_restores_the_terminal() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let live = Live::for_workload(&workload);
        let pid = pid_of("profiler-under-test", &["-p", &workload.pid().to_string()]).unwrap();
        kill_process(pid, signal).unwrap();
        live.assert_exited(0);
    }
}

#[test]
fn the_view_follows_the_size_of_the_terminal() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let live = Live::for_workload(&workload);
    live.pane.resize(30, 8);
    live.pane.wait_for("too small");
    live.pane.resize(60, 20);
    live.pane.wait_for("round_of_work");
    live.pane.type_text("q");
    live.assert_exited(0);
}

#[test]
fn a_command_has_no_output_and_is_terminated_at_the_end() {
    let Some(_lock) = run_beside_others() else { return };
    const SCRIPT: &str = "while :; do echo noise; echo noise >&2; done";
    // Its first argument distinguishes the command from those of other runs.
    let own = format!("of-{}", std::process::id());
    let live = Live::start(&format!("-- /bin/sh -c '{SCRIPT}' {own}"));
    live.pane.wait_for("hot functions");
    live.pane.wait_for(" 0 lost");
    let pid = wait_until("the command", || pid_of("/bin/sh", &[SCRIPT, &own]));
    assert!(!live.pane.text().contains("\nnoise"));
    live.pane.type_text("q");
    live.assert_exited(0);
    wait_until("the command to end", || test_kill_process(pid).err());
}

#[test]
fn without_a_terminal_the_error_names_the_alternative() {
    let run = run_command(&mut profiler(&["live", "-p", &std::process::id().to_string()]));
    assert_eq!((run.code(), run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("-o FILE"), "{}", run.stderr);
}
