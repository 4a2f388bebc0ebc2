//! Arguments of `profiler agent`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use profiler::{Builder, DEFAULT_MAX_OVERHEAD_PERCENT, Profiler, Target};
use profiler_agent::{Filter, PROBABILITY_LIMITS, WINDOW_LIMITS, naming::Label};

use crate::{byte_size::parse_byte_size, duration::parse_duration, event_log::LogFormat};

/// The default of `-F`: 10 millicores on a node with two busy CPUs, and no multiple of the rhythm of other timers.
const FREQUENCY_HZ: u64 = 19;

/// Arguments of `profiler agent`.
#[derive(Args, Debug)]
pub(crate) struct AgentArguments {
    /// Send to this OpenTelemetry receiver: http://HOST:4318, https://HOST/PATH (the URL of requests as it is), or
    /// grpc://HOST:4317, grpcs://HOST
    #[arg(long, value_name = "URL", conflicts_with = "pyroscope")]
    pub(crate) otlp: Option<String>,
    /// Send to this Grafana Pyroscope: http://HOST:4040
    #[arg(long, value_name = "URL")]
    pub(crate) pyroscope: Option<String>,
    /// Write each window to this directory, as UNIX-SECONDS.profile; the oldest files beyond --spool-max are removed
    #[arg(long, value_name = "DIR")]
    pub(crate) write_dir: Option<PathBuf>,
    /// Samples per second on each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = FREQUENCY_HZ, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frequency: u64,
    /// Also sample every thread at this frequency, whether it runs or waits. Needs a kernel with BTF
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) wall: Option<u64>,
    /// The time of one window, from 1s to 10m: each is sent by itself. The first one is shorter, by a random time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_window)]
    pub(crate) window: Duration,
    /// Send this header with each request: X-Scope-OrgID=shop. Can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) header: Vec<(String, String)>,
    /// Send the token in this file with each request (Authorization: Bearer); it is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) bearer_token_file: Option<PathBuf>,
    /// Trust the certificates in this file, PEM, in place of those of Mozilla
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Keep what the backend does not take in this directory, until it does, also across a restart
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// The most bytes in --spool and in --write-dir: 64M, 1G
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_byte_size)]
    pub(crate) spool_max: u64,
    /// Send only the samples of resources with these attributes: 'k8s.namespace.name=shop,service.name!=test-*'. All conditions
    /// hold; * matches any text. Can be repeated: one of them holds
    #[arg(long, value_name = "EXPR")]
    pub(crate) only: Vec<Filter>,
    /// Leave out the samples of resources with these attributes, as --only. Can be repeated
    #[arg(long, value_name = "EXPR")]
    pub(crate) drop: Vec<Filter>,
    /// Give each resource this attribute, where it has no other value: deployment.environment.name=prod. Can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) label: Vec<Label>,
    /// Ask the kubelet of this node for labels and owners of pods: https://NODE:10250. The token and the certificates are those
    /// of the pod's service account
    #[arg(long, value_name = "URL")]
    pub(crate) kubelet: Option<String>,
    /// Sample each window with this probability, from 0.001 to 1; the values of its samples are multiplied by the inverse
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = parse_probability)]
    pub(crate) probability: f64,
    /// Serve /metrics, /healthz and /readyz at this address: 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// The most time that the BPF programs may take on each CPU, percent: beyond it, stacks are cut, then ticks are skipped
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_MAX_OVERHEAD_PERCENT)]
    pub(crate) max_overhead: f64,
    /// End after this time: 30, 2m [default: at SIGTERM or Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// The format of the lines on standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Logfmt)]
    pub(crate) log_format: LogFormat,
}

impl AgentArguments {
    /// A builder of a session of all processes.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Profiler::builder()
            .target(Target::Everything)
            .frequency_hz(self.frequency)
            .max_overhead_percent(self.max_overhead);
        self.wall.into_iter().fold(builder, Builder::wall_clock_hz)
    }
}

/// Parses `--window`.
fn parse_window(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        window if WINDOW_LIMITS.contains(&window) => Ok(window),
        _ => Err("a window takes from 1s to 10m".to_owned()),
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("give NAME=VALUE".to_owned()),
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(probability) if PROBABILITY_LIMITS.contains(&probability) => Ok(probability),
        _ => Err("a probability is a number from 0.001 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// The arguments alone, without the command.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArguments,
    }

    fn parse(line: &str) -> Result<AgentArguments, clap::Error> {
        Line::try_parse_from(std::iter::once("agent").chain(line.split_whitespace())).map(|line| line.agent)
    }

    #[test]
    fn the_defaults_are_those_of_the_documents() {
        let arguments = parse("--otlp http://a").unwrap();
        assert_eq!((arguments.frequency, arguments.wall), (19, None));
        assert_eq!((arguments.window, arguments.spool_max), (Duration::from_secs(60), 64 << 20));
        assert_eq!((arguments.probability, arguments.listen), (1.0, None));
        let library = Profiler::builder().target(Target::Everything).frequency_hz(19);
        assert_eq!(format!("{:?}", arguments.builder()), format!("{library:?}"));
    }

    #[test]
    fn pairs_and_filters_are_parsed() {
        let line =
            "--pyroscope http://a --header a=b=c --label x=1 --label y=2 --only service.name=a* --drop a!=b";
        let arguments = parse(line).unwrap();
        assert_eq!(arguments.header, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!((arguments.label.len(), arguments.only.len(), arguments.drop.len()), (2, 1, 1));
    }

    #[test]
    fn wrong_values_are_refused() {
        for line in [
            "--otlp http://a --pyroscope http://b",
            "--otlp http://a --window 500ms",
            "--otlp http://a --window 11m",
            "--otlp http://a --header a",
            "--otlp http://a --label =b",
            "--otlp http://a --only shop",
            "--otlp http://a --probability 0",
            "--otlp http://a --probability 1.5",
            "--otlp http://a --probability nan",
            "--otlp http://a --listen 9464",
            "--otlp http://a -F 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
