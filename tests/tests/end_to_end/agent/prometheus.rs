//! Tests that Prometheus scrapes the metrics of `profiler agent`, and evaluates the rules of `deploy/prometheus` on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    thread,
};

use profiler_tests::{
    OtlpReceiver, Reception, Workload, file, run_beside_others, skip_unless_required, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::process::{Agent, exchange, path_text};

/// A Prometheus server that scrapes one address each second. Dropping it stops it.
struct Prometheus {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts a server at a port that the kernel chooses; `None` if the program is missing.
    fn start(scraped: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: profiler-agent, static_configs: [{{targets: ['{scraped}']}}]}}]\n",
            file("../deploy/prometheus/profiler.rules.yaml").display()
        );
        fs::write(folder.path().join("prometheus.yaml"), configuration).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}/prometheus.yaml", path_text(&folder)));
        command.arg(format!("--storage.tsdb.path={}/data", path_text(&folder)));
        command.arg("--web.listen-address=127.0.0.1:0").stdin(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            skip_unless_required("prometheus is missing");
            return None;
        };
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listens = log.find(|line| line.contains("Listening on"));
        let address = listens.as_deref().and_then(|line| line.split("address=").nth(1)).unwrap().to_owned();
        // The pipe must not get full.
        thread::spawn(move || log.for_each(drop));
        Some(Self { child, address, _folder: folder })
    }

    /// The data of a response of the HTTP API (<https://prometheus.io/docs/prometheus/latest/querying/api/>), once there is one.
    fn data(&self, path: &str) -> Option<Value> {
        // By HTTP/1.0, the server closes the connection.
        let response = exchange(&self.address, &format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n"));
        let (_, body) = response.split_once("\r\n\r\n")?;
        let mut answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{answer}");
        Some(answer["data"].take())
    }

    /// All series of the last scrape, as the text format writes them.
    fn series(&self) -> Option<BTreeMap<String, f64>> {
        let data = self.data("query?query=%7Bjob%3D%22profiler-agent%22%7D")?;
        let series =
            data["result"].as_array()?.iter().filter(|series| series["metric"]["__name__"] != "ALERTS");
        Some(series.map(|series| (written(&series["metric"]), value(series))).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It has ended unless the test succeeded or failed before.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A series in the text format, without the labels that Prometheus adds.
fn written(metric: &Value) -> String {
    let added = ["__name__", "instance", "job"];
    let labels = metric.as_object().unwrap().iter().filter(|(name, _)| !added.contains(&name.as_str()));
    let labels: BTreeSet<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
    let labels: Vec<_> = labels.into_iter().collect();
    format!("{}{{{}}}", metric["__name__"].as_str().unwrap(), labels.join(","))
}

fn value(series: &Value) -> f64 {
    series["value"][1].as_str().unwrap().parse().unwrap()
}

/// The series of `/metrics`, with sorted labels.
fn served(metrics: &str) -> BTreeMap<String, f64> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels: BTreeSet<_> = labels.trim_end_matches('}').split(',').collect();
        let labels: Vec<_> = labels.into_iter().collect();
        (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
    });
    series.collect()
}

fn names(series: &BTreeMap<String, f64>) -> BTreeSet<&str> {
    series.keys().map(|series| series.split('{').next().unwrap()).collect()
}

#[test]
fn prometheus_scrapes_all_metrics_with_the_values_that_are_served() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let receiver = OtlpReceiver::start(Reception::Accept);
    let agent = Agent::start(&["--otlp", &receiver.url(), "--listen", "127.0.0.1:0"]);
    let Some(prometheus) = Prometheus::start(&agent.address()) else { return };
    wait_until("a scrape after a delivery", || {
        let series = prometheus.series()?;
        let delivered = series.get("profiler_agent_samples_total{outcome=\"delivered\"}")?;
        (series.get("up{}") == Some(&1.0) && *delivered > 0.0).then_some(())
    });
    let of_agent = |series: BTreeMap<String, f64>| -> BTreeMap<String, f64> {
        series.into_iter().filter(|(series, _)| series.starts_with("profiler_agent_")).collect()
    };
    // Until a scrape and the text are of the time between the same two windows.
    let series = wait_until("a scrape of what is served now", || {
        let (scraped, served) = (of_agent(prometheus.series()?), of_agent(served(&agent.metrics())));
        (scraped == served).then_some(scraped)
    });
    let sum = |name: &str| -> f64 {
        series.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, value)| value).sum()
    };
    let account = sum("profiler_agent_samples_total{") + sum("profiler_agent_pending_samples{");
    assert_eq!(sum("profiler_agent_received_samples_total{"), account, "{series:?}");

    let (scraped, served) = (prometheus.series().unwrap(), served(&agent.metrics()));
    let of_scrape = |name: &&str| *name == "up" || name.starts_with("scrape_");
    let scraped_names: BTreeSet<_> = names(&scraped).into_iter().filter(|name| !of_scrape(name)).collect();
    assert_eq!(scraped_names, names(&served));
    let targets = prometheus.data("targets").unwrap();
    let target = &targets["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{targets}");
    assert_rules_are_evaluated(&prometheus);
    agent.signal(Signal::TERM);
    agent.finish();
}

/// Checks that each rule of `deploy/prometheus` is loaded, and evaluated without an error. The agent answers.
fn assert_rules_are_evaluated(prometheus: &Prometheus) {
    let text = fs::read_to_string(file("../deploy/prometheus/profiler.rules.yaml")).unwrap();
    let expected: Vec<_> = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let rules = wait_until("an evaluation of the rules", || {
        let data = prometheus.data("rules")?;
        let rules = data["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    let names: Vec<_> = rules.iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(names, expected);
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    assert_eq!(rules[0]["state"], "inactive", "{}", rules[0]);
}

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
