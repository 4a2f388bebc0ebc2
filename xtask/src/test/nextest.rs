//! `cargo nextest run` on the workspace, by the profiles of `.config/nextest.toml`.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use fs_err as fs;

use super::junit::{self, TestCase, TestRun};
use crate::{project, workspace::cargo};

/// The exit code when a test failed (nextest's `NextestExitCode::TEST_RUN_FAILED`).
const TEST_FAILED: i32 = 100;

/// A profile of `.config/nextest.toml`: how tests run, and where the JUnit file of the run is.
#[derive(Clone, Copy)]
pub(super) enum Profile {
    Default,
    /// The tests that failed alone, once more.
    SecondTry,
    /// Where cgroup version 2 alone is mounted.
    Cgroup2Only,
    /// Tests that have been told to do more work.
    Long,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::SecondTry => "second-try",
            Self::Cgroup2Only => "cgroup2-only",
            Self::Long => "long",
        }
    }
}

/// The results of a run.
pub(super) struct Results {
    pub(super) cases: Vec<TestCase>,
    /// The time before the first test: the tests were compiled and listed.
    pub(super) build: Duration,
    /// The time of all tests.
    pub(super) run: Duration,
}

/// A run of the workspace's tests by one profile.
///
/// Packages are not selected by name: that would enable other features of their dependencies, and everything would be
/// compiled once more.
pub(super) struct Nextest {
    profile: Profile,
    command: Command,
}

impl Nextest {
    /// A run by this profile.
    pub(super) fn new(profile: Profile) -> Self {
        let command = cargo(&["nextest", "run", "--workspace", "--locked", "--profile", profile.name()]);
        Self { profile, command }
    }

    /// Adds arguments of `cargo nextest run`.
    pub(super) fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Selects tests by an expression (nextest's filterset language).
    pub(super) fn filter(self, expression: &str) -> Self {
        self.args(["--filterset", expression])
    }

    /// Sets a variable of the tests' environment.
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Changes the command.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Command) -> Result<()>) -> Result<Self> {
        change(&mut self.command)?;
        Ok(self)
    }

    /// Builds and runs the tests, and returns the results of all tests, also of those that fail.
    ///
    /// # Errors
    /// If the tests do not compile, no test is selected, or the results cannot be read.
    pub(super) fn run(mut self) -> Result<Results> {
        let path = self.junit_file();
        if path.exists() {
            // That of another run.
            fs::remove_file(&path)?;
        }
        let start = Instant::now();
        let status = self.command.status().context("failed to start cargo nextest")?;
        let elapsed = start.elapsed();
        if !status.success() && status.code() != Some(TEST_FAILED) {
            bail!("cargo nextest failed: {status}");
        }
        let text = fs::read_to_string(&path)?;
        let TestRun { elapsed: run, cases } = junit::parse(&text)?;
        Ok(Results { cases, build: elapsed.saturating_sub(run), run })
    }

    fn junit_file(&self) -> PathBuf {
        project::root().join("target/nextest").join(self.profile.name()).join("junit.xml")
    }
}
