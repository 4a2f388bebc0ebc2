//! Whether the committed table still speaks of this code.

use std::fs;

use anyhow::{Context as _, Result};

use crate::{digest, project};

/// The sources that decide how the profiler works on another kernel: the compiled BPF object, its loader, the manager of
/// the unwind tables, `profiler doctor`, and the checks of the matrix.
const SOURCES: [&str; 7] = [
    "profiler/src/doctor",
    "profiler/src/sampler",
    "profiler/src/session/unwinding",
    "profiler/src/sys",
    "profiler/src/unwind",
    "xtask/src/kernel_matrix/check.rs",
    "xtask/src/kernel_matrix/init.sh",
];

/// Whether a source changed since the table in docs/kernels.md was written.
pub(super) fn has_changed() -> Result<bool> {
    let path = project::root().join("docs/kernels.md");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(!text.contains(&note(&digest()?)))
}

/// The line by which the table is known to speak of these sources.
pub(super) fn note(digest: &str) -> String {
    format!("<!-- kernel-matrix of the sources {digest} -->")
}

/// A hash over all sources.
pub(super) fn digest() -> Result<String> {
    digest::of_sources(&SOURCES)
}
