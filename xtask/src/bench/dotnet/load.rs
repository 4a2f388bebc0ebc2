//! Load on a server, and how the server bears it.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::super::target::SECONDS;
use crate::{shell, workloads};

/// As many connections as keep two CPUs busy while each waits for its answers.
const CONNECTIONS: &str = "4";

/// Load that goes on until it is dropped.
pub(super) struct Load(Child);

/// What a server did in a time.
#[derive(Debug, PartialEq)]
pub(super) struct Served {
    pub(super) requests_per_second: f64,
    /// The answer that one in a thousand takes longer than.
    pub(super) rare_milliseconds: f64,
    pub(super) longest_milliseconds: f64,
}

impl Load {
    /// Asks for each of `paths` as often as for the others.
    pub(super) fn begin(port: u16, paths: &[&str]) -> Result<Self> {
        let mut command = load(SECONDS, port, paths);
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks for so long.
pub(super) fn serve(port: u16, paths: &[&str], seconds: u64) -> Result<Served> {
    let said = shell::read(&mut load(&seconds.to_string(), port, paths))?;
    said.lines().find_map(served).context("the load says nothing")
}

fn load(seconds: &str, port: u16, paths: &[&str]) -> Command {
    let mut command = Command::new(workloads::output_folder().join("load"));
    command.args([seconds, &port.to_string(), CONNECTIONS]).args(paths);
    command
}

/// `requests N in S s, p99.9 N us, longest N us`
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
    fn what_was_served_is_read() {
        let line = "requests 5000 in 2.500 s, p99.9 1500 us, longest 20000 us";
        let expected =
            Served { requests_per_second: 2000.0, rare_milliseconds: 1.5, longest_milliseconds: 20.0 };
        assert_eq!(served(line), Some(expected));
        assert_eq!(served("ready 7"), None);
    }
}
