//! `cargo xtask tidy`: holds the rules on files and modules that no compiler checks.

mod layers;
mod rust_code;
mod text;

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};
use clap::Args;

use crate::{project, shell};

/// Check the rules on files and modules.
#[derive(Args)]
pub(crate) struct Tidy {}

impl Tidy {
    pub(crate) fn run(&self) -> Result<()> {
        check()
    }
}

/// Fails with the list of all broken rules.
pub(crate) fn check() -> Result<()> {
    let mut violations = Vec::new();
    let library = fs::read_to_string(project::root().join("profiler/src/lib.rs"))?;
    let public = layers::PublicNames::of(&library)?;
    for path in files()? {
        let content = fs::read(project::root().join(&path))?;
        violations.extend(text::forbidden_strings(&path, &content));
        if Path::new(&path).extension().is_some_and(|extension| extension == "rs") {
            let text = String::from_utf8(content)?;
            violations.extend(text::check(&path, &text));
            violations.extend(layers::check(&path, &text, &public)?);
        }
    }
    ensure!(violations.is_empty(), "{} broken rules:\n{}", violations.len(), violations.join("\n"));
    Ok(())
}

/// All files of the project: committed ones and those about to be.
fn files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(project::root());
    let files = shell::read(&mut git)?;
    Ok(files.lines().filter(|path| project::root().join(path).is_file()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_is_tidy() {
        if let Err(violations) = super::check() {
            panic!("{violations}");
        }
    }
}
