//! The user of a command that the profiler starts: the caller of sudo in place of root.

use std::process::Command;

use profiler_tests::{Outcome, profiler, run_beside_others, run_command};

/// The user without rights of every distribution.
const UID: &str = "65534";

/// Prints ids, groups and capabilities of the command, and its environment.
const REPORT: &str =
    "grep -E '^(Uid|Gid|Groups|Cap[A-Z][a-z]+):' /proc/self/status; echo \"user $USER $LOGNAME $HOME\"";

/// Name and home directory of the user.
fn entry() -> (String, String) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = { entries }.find(|entry| entry[2] == UID).expect("the user exists");
    (entry[0].to_owned(), entry[5].to_owned())
}

/// Runs a shell script as the command of a profiler that root runs, with these variables of sudo.
fn run(script: &str, arguments: &[&str], sudo: &[(&str, &str)]) -> Outcome {
    let mut command = profiler(&["-F", "99", "-o", "/dev/null", "--format", "folded"]);
    command.args(arguments).args(["--", "sh", "-c", script]).envs(sudo.iter().copied()).current_dir("/");
    run_command(&mut command)
}

fn run_as_root(script: &str, arguments: &[&str], sudo: &[(&str, &str)]) -> Option<Outcome> {
    rustix::process::geteuid().is_root().then(|| run(script, arguments, sudo))
}

#[track_caller]
fn assert_has_no_rights(run: &Outcome) {
    let ids = format!("{UID}\t{UID}\t{UID}\t{UID}");
    for line in [format!("Uid:\t{ids}"), format!("Gid:\t{ids}"), format!("Groups:\t{UID} ")] {
        assert!(run.stdout.contains(&line), "{line} in {run:?}");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(run.stdout.contains(&format!("{set}:\t0000000000000000")), "{set} in {run:?}");
    }
    let (name, home) = entry();
    assert!(run.stdout.contains(&format!("user {name} {name} {home}")), "{run:?}");
}

#[test]
fn with_sudo_a_command_runs_as_the_caller_of_sudo() {
    let Some(_lock) = run_beside_others() else { return };
    let sudo = [("SUDO_UID", UID), ("SUDO_GID", UID)];
    let Some(run) = run_as_root(REPORT, &[], &sudo) else { return };
    assert_has_no_rights(&run);
    let notice = run.stderr.lines().filter(|line| line.contains("the command runs as")).collect::<Vec<_>>();
    assert!(
        matches!(notice[..], [line] if line.contains(&entry().0) && line.contains("--user root")),
        "{}",
        run.stderr
    );
    let quiet = run_as_root(REPORT, &["-q"], &sudo).unwrap();
    assert_has_no_rights(&quiet);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn the_option_user_selects_the_user() {
    let Some(_lock) = run_beside_others() else { return };
    for user in [entry().0.as_str(), UID] {
        let Some(run) = run_as_root(REPORT, &["--user", user], &[]) else { return };
        assert_has_no_rights(&run);
    }
    for (arguments, sudo) in [(&["--user", "root"][..], &[("SUDO_UID", UID)][..]), (&[], &[])] {
        let run = run_as_root(REPORT, arguments, sudo).unwrap();
        assert!(run.stdout.contains("Uid:\t0\t0\t0\t0"), "{run:?}");
        assert!(!run.stderr.contains("the command runs as"), "{run:?}");
    }
}

#[test]
fn a_command_of_another_user_cannot_become_root_again_and_has_no_descriptor_of_the_profiler() {
    let Some(_lock) = run_beside_others() else { return };
    let script = "exec python3 -c '
import os
for change in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0])):
    try:
        change()
        print(\"changed\")
    except PermissionError:
        print(\"refused\")
print([fd for fd in range(1024) if os.path.exists(f\"/proc/self/fd/{fd}\")])
'";
    // The descriptors of the test itself: only those of the profiler count.
    let Some(run) = run_as_root(script, &[], &[("SUDO_UID", UID)]) else { return };
    assert_eq!(run.stdout, "refused\nrefused\nrefused\n[0, 1, 2]\n", "{}", run.stderr);
}

#[test]
fn wrong_users_are_errors_with_a_remedy() {
    let Some(_lock) = run_beside_others() else { return };
    for uid in ["x", "", "-1", "4294967295", "4294967296", "3999999999", "0x0", "+0"] {
        let Some(run) = run_as_root("echo ran", &[], &[("SUDO_UID", uid)]) else { return };
        assert_eq!((run.code(), run.stdout.as_str()), (1, ""), "{uid}: {}", run.stderr);
        assert!(run.stderr.contains("SUDO_UID") && run.stderr.contains("--user"), "{}", run.stderr);
    }
    let without_command = run_command(&mut profiler(&["-p", "1", "--user", UID]));
    assert!(without_command.code() == 2 && without_command.stderr.contains("-- COMMAND"));
    let run = run_as_root("echo ran", &[], &[("SUDO_UID", UID), ("SUDO_GID", "4294967295")]).unwrap();
    assert!(run.code() == 1 && run.stderr.contains("SUDO_GID"), "{}", run.stderr);
    for user in ["no-such-user", "3999999999", "", "4294967295"] {
        let run = run_as_root("echo ran", &["--user", user], &[]).unwrap();
        assert_eq!((run.code(), run.stdout.as_str()), (1, ""), "{user}: {}", run.stderr);
        assert!(run.stderr.contains("user"), "{}", run.stderr);
    }
}

#[test]
fn without_root_the_variables_of_sudo_are_ignored_and_no_other_user_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let program = folder.path().join("profiler");
    std::fs::copy(profiler(&[]).get_program(), &program).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command.args(["--user", "root", "--", "id"]).env("SUDO_UID", "0").current_dir("/");
    let run = run_command(&mut command);
    assert_eq!((run.code(), run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("sudo") && run.stderr.contains("root"), "{}", run.stderr);
}
