//! Installs what reads the formats of other tools: their published libraries, into a folder of the project.

use std::process::Command;

use anyhow::Result;

use crate::{project, shell};

/// The decoder of pprof's messages, speedscope with its schema, and what checks a document by a schema.
const PACKAGES: [&str; 3] = ["pprof-format@2.3.2", "speedscope@1.25.0", "ajv@8.20.0"];

/// Installs them where they are not.
pub(super) fn install() -> Result<()> {
    let folder = project::root().join("target/readers");
    if folder.join("node_modules/ajv").is_dir() {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    shell::run_quietly(npm.arg(folder).args(PACKAGES))
}
