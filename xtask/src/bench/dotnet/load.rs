//! Generates load on a server, and measures its throughput and latency.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::super::target::SECONDS;
use crate::{process::OwnedChild, shell, workloads};

/// Enough connections to keep two CPUs busy while each waits for its responses.
const CONNECTIONS: &str = "4";

/// Load on a server. Dropping it ends the load.
pub(super) struct Load {
    _child: OwnedChild,
}

/// Throughput and latency of a server.
#[derive(Debug, PartialEq)]
pub(in crate::bench) struct Served {
    pub(super) requests_per_second: f64,
    /// The latency that one in a thousand responses exceeds.
    pub(super) rare_milliseconds: f64,
    pub(super) longest_milliseconds: f64,
}

impl Load {
    /// Requests each of `paths` equally often.
    pub(super) fn begin(port: u16, paths: &[&str]) -> Result<Self> {
        let mut command = load(SECONDS, port, paths);
        Ok(Self { _child: OwnedChild::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))? })
    }
}

/// Generates load for this time.
pub(super) fn serve(port: u16, paths: &[&str], seconds: u64) -> Result<Served> {
    let said = shell::read(&mut load(&seconds.to_string(), port, paths))?;
    said.lines().find_map(served).context("the load says nothing")
}

fn load(seconds: &str, port: u16, paths: &[&str]) -> Command {
    let mut command = Command::new(workloads::output_folder().join("load"));
    command.args([seconds, &port.to_string(), CONNECTIONS]).args(paths);
    command
}

/// Parses `requests N in S s, p99.9 N us, longest N us`.
fn served(line: &str) -> Option<Served> {
    const US_PER_MS: f64 = 1e3;
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<f64>().ok()
    };
    Some(Served {
        requests_per_second: after("requests")? / after("in")?,
        rare_milliseconds: after("p99.9")? / US_PER_MS,
        longest_milliseconds: after("longest")? / US_PER_MS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_the_load_is_parsed() {
        let line = "requests 5000 in 2.500 s, p99.9 1500 us, longest 20000 us";
        let expected =
            Served { requests_per_second: 2000.0, rare_milliseconds: 1.5, longest_milliseconds: 20.0 };
        assert_eq!(served(line), Some(expected));
        assert_eq!(served("ready 7"), None);
    }
}
