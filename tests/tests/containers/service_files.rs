//! Checks the units of systemd and the configuration of Prometheus in `deploy/` with the tools that read them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::{Outcome, profiler, run_command};

fn deploy() -> PathBuf {
    profiler_tests::file("../deploy").canonicalize().unwrap()
}

/// Verifies a changed unit in a root directory with the profiler.
fn verify(unit: &str, change: impl Fn(String) -> String) -> Outcome {
    let root = tempfile::tempdir().unwrap();
    let path = |path: &str| root.path().join(path);
    fs::create_dir_all(path("usr/bin")).unwrap();
    fs::create_dir_all(path("etc/systemd/system")).unwrap();
    fs::copy(profiler(&[]).get_program(), path("usr/bin/profiler")).unwrap();
    for target in ["sysinit", "basic", "shutdown", "multi-user", "network-online"] {
        let text = "[Unit]\nDescription=A target of systemd\n";
        fs::write(path(&format!("etc/systemd/system/{target}.target")), text).unwrap();
    }
    // `ExecReload=`.
    fs::copy("/bin/kill", path("usr/bin/kill")).unwrap();
    let text = fs::read_to_string(deploy().join(unit)).unwrap();
    fs::write(path("etc/systemd/system").join(unit), change(text)).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    analyze
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(format!("--root={}", root.path().display()));
    run_command(analyze.arg(unit))
}

#[test]
fn systemd_accepts_the_units() {
    for unit in ["profiler-agent.service", "profiler-record.service"] {
        let run = verify(unit, |text| text);
        assert_eq!((run.code(), &*run.stderr), (0, ""), "{unit}: {}", run.stdout);
        let misspelled = verify(unit, |text| text.replace("StateDirectory=", "StateDirectroy="));
        assert!(misspelled.stderr.contains("StateDirectroy"), "{unit}: {}", misspelled.stderr);
        let other_program = verify(unit, |text| text.replace("/usr/bin/profiler", "/usr/bin/profilers"));
        assert_ne!(other_program.code(), 0, "{unit}: {}", other_program.stderr);
    }
}

fn promtool(arguments: &[&str], folder: &Path) -> Outcome {
    run_command(Command::new("promtool").args(arguments).current_dir(folder))
}

#[test]
fn promtool_accepts_the_configuration_and_the_rules() {
    let source = deploy().join("prometheus");
    let folder = tempfile::tempdir().unwrap();
    let rules = "profiler.rules.yaml";
    fs::copy(source.join(rules), folder.path().join(rules)).unwrap();
    // Debian builds Prometheus without the discovery of Kubernetes.
    let text = fs::read_to_string(source.join("prometheus.yaml")).unwrap();
    let (before, rest) = text.split_once("    kubernetes_sd_configs:\n").unwrap();
    let (_, after) = rest.split_once("    relabel_configs:\n").unwrap();
    let targets = "    static_configs: [{targets: ['127.0.0.1:9464']}]\n    relabel_configs:\n";
    fs::write(folder.path().join("prometheus.yaml"), [before, targets, after].concat()).unwrap();
    let arguments = ["check", "config", "--lint=all", "--lint-fatal", "prometheus.yaml"];
    let run = promtool(&arguments, folder.path());
    assert_eq!(run.code(), 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("SUCCESS: 7 rules found"), "{}", run.stdout);
}

#[test]
fn each_alert_fires_for_its_cause_and_for_no_sound_agent() {
    let folder = tempfile::tempdir().unwrap();
    let rules = deploy().join("prometheus/profiler.rules.yaml");
    fs::copy(&rules, folder.path().join("profiler.rules.yaml")).unwrap();
    let test = profiler_tests::file("prometheus/profiler.rules.test.yaml");
    fs::copy(test, folder.path().join("test.yaml")).unwrap();
    let run = promtool(&["test", "rules", "test.yaml"], folder.path());
    assert_eq!(run.code(), 0, "{}{}", run.stdout, run.stderr);
    let rules = fs::read_to_string(rules).unwrap();
    let test = fs::read_to_string(folder.path().join("test.yaml")).unwrap();
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(test.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
    }
}
