//! The stamp beside the BPF object: hashes of its sources and bytes, toolchain versions, program sizes.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::{Context as _, Result};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::toolchain::Versions;
use crate::digest;

/// Everything that decides what the object does, besides the toolchain.
pub(super) const SOURCES: [&str; 6] = [
    "profiler-common/Cargo.toml",
    "profiler-common/src",
    "profiler-ebpf/.cargo/config.toml",
    "profiler-ebpf/Cargo.lock",
    "profiler-ebpf/Cargo.toml",
    "profiler-ebpf/src",
];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) source_sha256: String,
    pub(super) object_sha256: String,
    pub(super) object_bytes: usize,
    pub(super) rustc: String,
    pub(super) bpf_linker: String,
    /// Each function's size in BPF instructions, which is what the verifier limits.
    pub(super) instructions: BTreeMap<String, u64>,
}

impl Stamp {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path)?;
        serde_json::from_slice(&text).with_context(|| format!("failed to parse {}", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Ok(fs::write(path, text)?)
    }

    pub(super) fn versions(&self) -> Versions<'_> {
        Versions { rustc: &self.rustc, bpf_linker: &self.bpf_linker }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, instructions:", self.object_bytes)?;
        self.instructions.iter().try_for_each(|(function, count)| write!(f, " {function} {count}"))
    }
}

/// One hash over names and contents of all sources.
pub(super) fn source_sha256() -> Result<String> {
    digest::of_sources(&SOURCES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_ebpf::toolchain::PINNED;

    #[test]
    fn the_committed_stamp_belongs_to_the_committed_sources() {
        let stamp = Stamp::read(&super::super::stamp_path()).unwrap();
        assert_eq!(stamp.source_sha256, source_sha256().unwrap(), "run `cargo xtask build-ebpf`");
    }

    #[test]
    fn the_committed_object_was_built_with_the_pinned_toolchain() {
        let stamp = Stamp::read(&super::super::stamp_path()).unwrap();
        assert_eq!(stamp.versions(), PINNED);
    }
}
