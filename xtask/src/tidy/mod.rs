//! `cargo xtask tidy`: checks the rules on files and words that no compiler checks.

#![cfg(feature = "commands")]

mod architecture;
mod layers;
mod manifests;
mod rust_code;
mod text;
mod words;

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::{project, shell};

/// Fails with the list of all violations.
pub(crate) fn check() -> Result<()> {
    let files = files()?;
    let mut violations = layers::places_without_files(&files);
    violations.extend(architecture::check(&files)?);
    violations.extend(text::commit_subject(&last_commit_subject()?));
    for path in &files {
        let content = fs::read(project::root().join(path))?;
        violations.extend(text::forbidden_strings(path, &content));
        violations.extend(manifests::check(path, &String::from_utf8_lossy(&content)));
        violations.extend(words::find(path, &String::from_utf8_lossy(&content)));
        if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
            let text = String::from_utf8(content)?;
            violations.extend(text::check(path, &text));
            violations.extend(layers::check(path, &text)?);
        }
    }
    ensure!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    Ok(())
}

/// All files of the project: committed ones and those about to be.
fn files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(project::root());
    let files = shell::read(&mut git)?;
    Ok(files.lines().filter(|path| project::root().join(path).is_file()).map(str::to_owned).collect())
}

/// The first line of the last commit that is no merge.
fn last_commit_subject() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--no-merges", "--format=%s"]).current_dir(project::root());
    Ok(shell::read(&mut git)?.trim_end().to_owned())
}
