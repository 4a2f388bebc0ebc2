//! SHA-256 as hexadecimal digits.

#![cfg(feature = "commands")]

use anyhow::Result;
use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::project;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One hash over names and contents of files and folders of the project.
pub(crate) fn of_sources(sources: &[&str]) -> Result<String> {
    let mut listing = String::new();
    for source in sources {
        let path = project::root().join(source);
        let files = if path.is_dir() { project::files_below(&path)? } else { vec![path] };
        for file in files {
            let content = fs::read(&file)?;
            listing += &format!("{}  {}\n", sha256(&content), project::relative(&file).display());
        }
    }
    Ok(sha256(listing.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_the_format_of_sha256sum() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_hash_of_sources_depends_on_names_and_contents() {
        let one = of_sources(&["xtask/src/main.rs"]).unwrap();
        assert_eq!(of_sources(&["xtask/src/main.rs"]).unwrap(), one);
        assert_ne!(of_sources(&["xtask/src/digest.rs"]).unwrap(), one);
        assert!(of_sources(&["no/such/file"]).is_err());
    }
}
