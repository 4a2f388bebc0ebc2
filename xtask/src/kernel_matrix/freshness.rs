//! Compares the committed table of kernels with the sources that it was made from.

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::{digest, project, workspace};

/// What decides how the profiler does on another kernel: the compiled BPF program, what loads it, what examines the
/// kernel, what reads processes; and what the matrix checks.
const SOURCES: [&str; 5] = [
    "profiler/src/doctor",
    "profiler/src/session",
    "profiler/src/sys",
    "xtask/src/kernel_matrix/check.rs",
    "xtask/src/kernel_matrix/init.sh",
];

/// Packages with code of the same kind.
const PACKAGES: [&str; 4] =
    ["profiler-common", "profiler-processes", "profiler-sampler", "profiler-unwind-tables"];

/// Whether a source changed since the table in docs/kernels.md was written.
pub(super) fn sources_have_changed() -> Result<bool> {
    let path = project::root().join("docs/kernels.md");
    let text = fs::read_to_string(&path)?;
    Ok(!text.contains(&note(&digest()?)))
}

/// The line beside the table that names its sources.
pub(super) fn note(digest: &str) -> String {
    format!("<!-- kernel-matrix of the sources {digest} -->")
}

/// A hash over all sources. A module may have become a package.
pub(super) fn digest() -> Result<String> {
    let mut sources: Vec<String> = SOURCES.map(str::to_owned).into();
    sources.retain(|source| project::root().join(source).exists());
    let packages = workspace::packages()?;
    let packages = packages.iter().filter(|package| PACKAGES.contains(&package.name.as_str()));
    sources.extend(
        packages
            .map(|package| project::relative(&workspace::folder(package).join("src")).display().to_string()),
    );
    ensure!(sources.len() >= SOURCES.len(), "sources of the kernel matrix have moved: {}", file!());
    digest::of_sources(&sources.iter().map(String::as_str).collect::<Vec<_>>())
}
