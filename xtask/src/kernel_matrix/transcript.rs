//! Parses the console output of a machine: the steps of `init.sh`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::bench::stacks::{self, Stack};

/// The last line.
const DONE: &str = "== done";

/// All steps by name.
pub(super) struct Transcript {
    pub(super) kernel: String,
    steps: BTreeMap<String, Step>,
}

/// One command that was run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Step {
    pub(super) exit_code: i32,
    /// On standard output.
    pub(super) printed: String,
    /// On standard error.
    pub(super) said: String,
}

/// Whether the machine came to its end.
pub(super) fn is_complete(console: &str) -> bool {
    console.lines().any(|line| line == DONE)
}

impl Transcript {
    pub(super) fn parse(console: &str) -> Self {
        let mut transcript = Self { kernel: String::new(), steps: BTreeMap::new() };
        let mut lines = console.lines();
        while let Some(line) = lines.next() {
            if let Some(release) = line.strip_prefix("== kernel ") {
                release.clone_into(&mut transcript.kernel);
            } else if let Some((name, code)) =
                line.strip_prefix("== step ").and_then(|rest| rest.split_once(' '))
            {
                let exit_code = code.parse().unwrap_or(-1);
                let printed = until("== said", &mut lines);
                let said = until("== end", &mut lines);
                transcript.steps.insert(name.to_owned(), Step { exit_code, printed, said });
            }
        }
        transcript
    }

    pub(super) fn step(&self, name: &str) -> Result<&Step> {
        self.steps.get(name).with_context(|| format!("step {name} is missing"))
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = (&str, &Step)> {
        self.steps.iter().map(|(name, step)| (name.as_str(), step))
    }
}

impl Step {
    /// The first line of the profiler's summary: `profiler: N samples in N s of TARGET, N lost`.
    pub(super) fn summary(&self) -> Option<&str> {
        self.said.lines().find(|line| line.starts_with("profiler: ") && line.contains(" samples in "))
    }

    /// How long it sampled.
    pub(super) fn sampled_seconds(&self) -> Option<f64> {
        let (_, rest) = self.summary()?.split_once(" samples in ")?;
        rest.split(' ').next()?.parse().ok()
    }

    /// The profile that it printed.
    pub(super) fn stacks(&self) -> Vec<Stack> {
        // A workload may have printed, too.
        let profile: String = self.printed.split_inclusive('\n').filter(|line| line.contains(';')).collect();
        stacks::of_folded(&profile)
    }
}

fn until<'a>(end: &str, lines: &mut impl Iterator<Item = &'a str>) -> String {
    lines.take_while(|line| *line != end).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "[    0.9] boot\n== kernel 6.1.0\n== step command 7\nready 132\na;main;run 3\n== said\n\
                           profiler: 3 samples in 1.5 s of a, 0 lost\n== end\nKilled\n== step log 0\n== said\n== end\n== done\n";

    #[test]
    fn steps_have_their_code_and_both_outputs() {
        let transcript = Transcript::parse(CONSOLE);
        assert_eq!(transcript.kernel, "6.1.0");
        let step = transcript.step("command").unwrap();
        assert_eq!((step.exit_code, step.said.as_str()), (7, "profiler: 3 samples in 1.5 s of a, 0 lost\n"));
        assert_eq!(step.sampled_seconds(), Some(1.5));
        assert_eq!(step.stacks(), [(["run", "main", "a"].map(str::to_owned).to_vec(), 3)]);
        assert_eq!(transcript.step("log").unwrap(), &Step::default());
        assert!(transcript.step("none").is_err());
    }

    #[test]
    fn a_transcript_without_its_last_line_is_incomplete() {
        assert!(is_complete(CONSOLE));
        let cut = &CONSOLE[..CONSOLE.len() / 2];
        assert!(!is_complete(cut));
        Transcript::parse(cut);
    }
}
