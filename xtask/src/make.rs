//! Builds a file only if it is older than its sources.

use std::{path::Path, process::Command};

use anyhow::Result;
use fs_err as fs;

use crate::{project, shell};

/// Runs `compiler` if `program` is older than one of its `sources`.
pub(crate) fn make(program: &Path, sources: &[&Path], compiler: &mut Command) -> Result<()> {
    make_from(program, sources, || shell::run(compiler))
}

/// Calls `build` if `program` is older than one of its `sources`.
pub(crate) fn make_from(program: &Path, sources: &[&Path], build: impl FnOnce() -> Result<()>) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    if let Ok(built) = modified(program) {
        let edited = sources.iter().map(|source| modified(source)).collect::<Result<Vec<_>, _>>()?;
        if edited.iter().all(|time| *time < built) {
            return Ok(());
        }
    }
    println!("{}", project::relative(program).display());
    build()
}
