//! `cargo xtask guards`: shows that the tests of SECURITY.md fail without the guards that they are for.
//!
//! Each file `tests/guards/NAME.diff` removes one guard. Its first line names the tests that have to fail then:
//! `tests: PACKAGE lib NAME ...`, or the name of an integration test in place of `lib`. `PACKAGE/FEATURE` enables a feature.

#![cfg(feature = "commands")]

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use fs_err as fs;

use crate::{project, shell};

/// A test without a deadline of its own, which is what a guard can be, fails after this time, seconds.
const TEST_LIMIT_S: &str = "240";

/// Remove each guard against an attack, one after another in a copy of the last commit, and check that its tests fail.
#[derive(Args)]
pub(crate) struct Guards {
    /// Only the guards whose names contain this
    name: Option<String>,
}

/// A guard, and the tests that fail without it.
struct Guard {
    name: String,
    diff: PathBuf,
    package: String,
    feature: Option<String>,
    /// `lib`, or the name of an integration test.
    target: String,
    tests: Vec<String>,
}

impl Guards {
    pub(crate) fn run(&self) -> Result<()> {
        let guards = all()?;
        let is_wanted = |guard: &&Guard| self.name.as_ref().is_none_or(|name| guard.name.contains(&**name));
        let copy = Copy::create()?;
        let mut useless = Vec::new();
        for guard in guards.iter().filter(is_wanted) {
            let passed = copy.passed_without(guard).with_context(|| format!("guard `{}`", guard.name))?;
            let outcome = if passed.is_empty() { "ok".to_owned() } else { passed.join(", ") + " without it" };
            println!("{}: {outcome}", guard.name);
            useless.extend(passed);
        }
        ensure!(useless.is_empty(), "tests that pass without their guards: {}", useless.join(", "));
        Ok(())
    }
}

/// All guards, by name.
fn all() -> Result<Vec<Guard>> {
    let files = project::files_below(&project::root().join("tests/guards"))?;
    files.into_iter().map(|file| read(&file)).collect()
}

fn read(diff: &Path) -> Result<Guard> {
    let text = fs::read_to_string(diff)?;
    let words = text.lines().next().and_then(|line| line.strip_prefix("tests: ")).unwrap_or_default();
    let mut words = words.split_whitespace().map(str::to_owned);
    let (package, target) = (words.next(), words.next());
    let (Some(package), Some(target)) = (package, target) else {
        bail!("{} does not begin with `tests: PACKAGE TARGET NAME`", diff.display());
    };
    let name = diff.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (package, feature) = match package.split_once('/') {
        Some((package, feature)) => (package.to_owned(), Some(feature.to_owned())),
        None => (package, None),
    };
    Ok(Guard { name, diff: diff.to_owned(), package, feature, target, tests: words.collect() })
}

/// A copy of the last commit, with the workloads of this one.
struct Copy {
    folder: PathBuf,
    build: PathBuf,
}

impl Copy {
    fn create() -> Result<Self> {
        let target = project::root().join("target");
        let (folder, build) = (target.join("guards/copy"), target.join("guards/build"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(folder.join("target"))?;
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--no-checkout"]).args([project::root(), &folder.join("repository")]);
        shell::run_quietly(&mut clone)?;
        fs::rename(folder.join("repository/.git"), folder.join(".git"))?;
        let copy = Self { folder, build };
        copy.git(&["reset", "--quiet", "--hard"])?;
        symlink(target.join("workloads"), copy.folder.join("target/workloads"))?;
        Ok(copy)
    }

    /// The tests of a guard that pass without it.
    fn passed_without(&self, guard: &Guard) -> Result<Vec<String>> {
        let diff = guard.diff.to_string_lossy();
        self.git(&["apply", "--unidiff-zero", &diff])?;
        let result = self.run_tests(guard);
        self.git(&["checkout", "--quiet", "."])?;
        result
    }

    fn run_tests(&self, guard: &Guard) -> Result<Vec<String>> {
        shell::run_quietly(self.cargo_test(guard).arg("--no-run"))?;
        let mut passed = Vec::new();
        for test in &guard.tests {
            let mut command = self.cargo_test(guard);
            command.args(["--", "--exact", test]).stdin(Stdio::null());
            let output = command.output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            ensure!(!text.contains("running 0 tests"), "there is no test `{test}`");
            if output.status.success() {
                passed.push(test.clone());
            }
        }
        Ok(passed)
    }

    fn cargo_test(&self, guard: &Guard) -> Command {
        let mut command = Command::new("timeout");
        command.args([TEST_LIMIT_S, "cargo", "test", "--locked", "--package", &guard.package]);
        command.args(guard.feature.iter().flat_map(|feature| ["--features", feature]));
        match &*guard.target {
            "lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.build);
        command.env("PROFILER_REQUIRE_PRIVILEGED", "1");
        command
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        shell::run_quietly(Command::new("git").arg("-C").arg(&self.folder).args(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_all_guards_are_in_the_table_of_attacks_and_their_diffs_apply() {
        let table = fs::read_to_string(project::root().join("SECURITY.md")).unwrap();
        for guard in all().unwrap() {
            assert!(!guard.tests.is_empty(), "{}", guard.name);
            for test in &guard.tests {
                let name = test.rsplit("::").next().unwrap();
                assert!(table.contains(&format!("`{name}`")), "{}: {name}", guard.name);
            }
            let mut apply = Command::new("git");
            apply.args(["apply", "--check", "--unidiff-zero"]).arg(&guard.diff).current_dir(project::root());
            shell::run_quietly(&mut apply).unwrap();
        }
    }
}
