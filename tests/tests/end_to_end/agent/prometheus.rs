//! Checks the metrics of `profiler agent` with the programs of Prometheus.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use profiler_tests::skip_unless_required;

/// Checks the text and the names of metrics with the program of Prometheus.
pub(super) fn check_with_promtool(metrics: &str) {
    let mut command = Command::new("promtool");
    let spawned = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = spawned else { return skip_unless_required("promtool is missing") };
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
}
