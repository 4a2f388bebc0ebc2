//! Arguments that are wrong or cannot fit this machine: their messages and exit codes.

use profiler_tests::{Workload, profiler, run_beside_others, run_command};

use super::{assert_refused, run};

#[test]
fn wrong_arguments_of_sampling_have_exit_code_two_and_a_message() {
    for (arguments, words) in [
        (&["-p", "x"][..], &["invalid value 'x'"][..]),
        (&["--nope"], &["'--nope'"]),
        (&["-p", "1", "-a"], &["cannot be used with"]),
        (&["-p", "1", "-d", "soon"], &["500ms"]),
        (&["-p", "1", "-d", "0"], &["too short", "above 0"]),
        (&["-p", "1", "-d", "9999999h"], &["the longest time is 8784h"]),
        (&["-p", "1", "-C", "3-1"], &["3-1"]),
        (&["-p", "1", "-C", "0,8000"], &["CPU 8000 does not exist", "has the CPUs 0"]),
        (&["-p", "1", "--format", "pdf"], &["folded, svg"]),
        (&["-p", "1", "-U", "-K"], &["cannot be used with"]),
        (&["-p", "0"], &["begin with 1"]),
        (&["-p", "1,0"], &["begin with 1"]),
        (&["-t", "0"], &["begin with 1"]),
        (&["-p", "1", "-F", "0"], &["0 Hz"]),
        (&["-p", "1", "--wall=0"], &["0 Hz"]),
        (&["-p", "1", "--max-overhead", "0"], &["not above 0 and at most 100 percent"]),
        (&["-p", "1", "--max-overhead", "101"], &["not above 0 and at most 100 percent"]),
        (&["-p", "1", "-o", "flame.pdf"], &["flame.pdf", ".folded, ", ".svg"]),
        (&["-p", "1", "-o", "a.nettrace", "-o", "b.nettrace"], &["second .nettrace"]),
        (&["-p", "1", "--from", "3s", "--to", "2s"], &["--from 3s is not before --to 2s"]),
        (&["-p", "1", "--user", "root"], &["--user is for -- COMMAND"]),
        (&["-a", "--children"], &["children can be followed only for processes"]),
        (&["-p", "1", "--symbol-server", "x"], &["not a symbol server"]),
        (&["1234"], &["`-p 1234`"]),
        (&["-F", "99", "1234"], &["`-p 1234`"]),
        (&["redis-server"], &["`--process redis-server`", "`-- redis-server`"]),
        (&["doctr"], &["did you mean `doctor`?", "commands: doctor, list, "]),
        (&["recrod", "-p", "1"], &["did you mean `record`?"]),
        (&["-p", "1", "-o", "out.png"], &["write `out.svg`"]),
        (&["-p", "1", "-o", "out.HTML"], &["as in `out.html`"]),
    ] {
        assert_refused(&run(arguments), 2, words);
    }
}

#[test]
fn wrong_arguments_of_other_commands_have_exit_code_two_and_a_message() {
    for (arguments, words) in [
        (&["record", "--rotate", "1m"][..], &["nothing to sample"][..]),
        (&["record", "-p", "1", "--rotate", "1m", "-o", "a.profile"], &["add %t (time) or %n (number)"]),
        (&["record", "-p", "1", "--rotate", "1m", "-o", "a-%n.pdf"], &[".svg"]),
        (&["record", "-p", "1", "--rotate", "1m", "--from", "1s"], &["do not apply to a recorder"]),
        (&["record", "-p", "1", "--rotate", "1m", "--follow"], &["--follow needs --process"]),
        (&["record", "-p", "1", "--rotate", "1m", "--log-file", "-"], &["no condition compares"]),
        (&["record", "1234", "--rotate", "1m"], &["`-p 1234`"]),
        (&["agent"], &["nothing to send to"]),
        (&["agent", "--otlp", "localhost"], &["is not a URL"]),
        (&["live", "1234"], &["`-p 1234`"]),
        (&["report", "a.profile", "-o", "b.pdf"], &[".svg"]),
        (&["report", "a.profile", "--from", "2s", "--to", "2s"], &["--from 2s is not before --to 2s"]),
        (&["top", "a.profile", "--from", "2s", "--to", "1s"], &["is not before"]),
        (&["doctor", "-p", "0"], &["begin with 1"]),
        (&["completions", "csh"], &["bash, zsh, fish"]),
        (&["man", "recrod"], &["no command `recrod`"]),
    ] {
        assert_refused(&run(arguments), 2, words);
    }
}

#[test]
fn a_target_that_does_not_exist_is_not_a_wrong_argument() {
    assert_refused(&run(&["-p", "4194303"]), 1, &["process 4194303 does not exist"]);
}

#[test]
fn a_list_without_events_is_an_error() {
    assert_refused(
        &run(&["list", "zzz"]),
        1,
        &["no event of this machine has `zzz` in its name", "profiler list"],
    );
    assert_refused(&run(&["list", "usdt:/bin/true"]), 1, &["`/bin/true` has no static probes"]);
}

#[test]
fn processes_that_outlive_the_command_are_named() {
    let Some(_lock) = run_beside_others() else { return };
    // What the shell starts holds no stream of the test.
    let script = "sleep 60 > /dev/null 2>&1 & echo $!";
    let ended = run(&["-F", "99", "-o", "/dev/null", "--format", "folded", "--", "sh", "-c", script]);
    let pid = ended.stdout.trim();
    assert!(run_command(std::process::Command::new("kill").arg(pid)).code() == 0, "{pid}");
    let warning = format!(
        "sampling ended with the target, and a process that it started runs on: sample it with -p {pid}"
    );
    assert!(ended.stderr.contains(&warning), "{}", ended.stderr);
    let alone = run(&["-F", "99", "-o", "/dev/null", "--format", "folded", "--", "sh", "-c", "true"]);
    assert!(!alone.stderr.contains("runs on"), "{}", alone.stderr);
}

#[test]
fn a_target_that_may_not_run_on_the_sampled_cpu_is_named_with_its_cpu() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    // On a machine with one CPU there is no other one.
    if online.trim() == "0" {
        return;
    }
    let pinned = run_command(std::process::Command::new("taskset").args(["-a", "-p", "-c", "1", &pid]));
    assert_eq!(pinned.code(), 0, "{}", pinned.stderr);
    let elsewhere = run_command(&mut profiler(&["-p", &pid, "-C", "0", "-d", "0.2", "-F", "999"]));
    assert_refused(&elsewhere, 3, &["may not run on CPU 0, only on CPU 1: sample it there with -C 1"]);
    let there = run_command(&mut profiler(&["-p", &pid, "-C", "1", "-d", "0.5", "-F", "999"]));
    assert!(there.code() == 0 && !there.stderr.contains("may not run"), "{}", there.stderr);
}
