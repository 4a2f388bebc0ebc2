//! The note beside the kernel side's object: what it was built from and with.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::project;

/// Everything that decides what the object does, besides the toolchain.
const SOURCES: [&str; 6] = [
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
        let text = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("failed to parse {}", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    }

    pub(super) fn same_toolchain(&self, other: &Self) -> bool {
        self.rustc == other.rustc && self.bpf_linker == other.bpf_linker
    }

    pub(super) fn toolchain(&self) -> String {
        format!("{} and {}", self.rustc, self.bpf_linker)
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
    let mut hash = Sha256::new();
    for source in SOURCES {
        let path = project::root().join(source);
        let files = if path.is_dir() { project::files_below(&path)? } else { vec![path] };
        for file in files {
            let content = fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            hash.update(project::relative(&file).as_os_str().as_encoded_bytes());
            // Two lengths, so that no byte can move from one file or name to the next unseen.
            hash.update([0]);
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
    }
    Ok(hexadecimal(&hash.finalize()))
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_as_sha256sum_prints_it() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn every_source_exists() {
        assert_eq!(source_sha256().unwrap().len(), 64);
    }
}
