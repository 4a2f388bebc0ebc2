//! Writes files and folders as a deterministic tar archive, compressed with gzip if asked for.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// The files and folders of an archive, all owned by root.
pub(super) struct Tree {
    /// By path; a folder sorts before what it contains.
    entries: BTreeMap<String, Entry>,
    time_s: u64,
}

enum Entry {
    File { content: Vec<u8>, mode: u32 },
    Folder { mode: u32 },
}

impl Tree {
    /// An empty archive, whose entries are dated `time_s` seconds after 1970.
    pub(super) fn new(time_s: u64) -> Self {
        Self { entries: BTreeMap::new(), time_s }
    }

    /// Adds a file with mode 0644.
    pub(super) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { content: content.into(), mode: 0o644 });
    }

    /// Adds a file with mode 0644, or with mode 0755 if it is a script.
    pub(super) fn file_or_script(&mut self, path: &str, content: &[u8]) {
        if content.starts_with(b"#!") { self.program(path, content) } else { self.file(path, content) }
    }

    /// Adds a program.
    pub(super) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { content: content.into(), mode: 0o755 });
    }

    /// Adds a folder. Folders that contain files are added with these.
    pub(super) fn folder(&mut self, path: &str, mode: u32) {
        self.add(path, Entry::Folder { mode });
    }

    /// Adds the entry and the folders above it.
    fn add(&mut self, path: &str, entry: Entry) {
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..end].to_owned()).or_insert(Entry::Folder { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Paths and contents of the files, sorted by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File { content, .. } => Some((path.as_str(), content.as_slice())),
            Entry::Folder { .. } => None,
        })
    }

    /// The archive in the ustar format. Each path begins with `prefix`, whose own folder comes first.
    pub(super) fn tar(&self, prefix: &str) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        if !prefix.is_empty() {
            self.append(&mut archive, prefix, &Entry::Folder { mode: 0o755 })?;
        }
        for (path, entry) in &self.entries {
            self.append(&mut archive, &format!("{prefix}{path}"), entry)?;
        }
        Ok(archive.into_inner()?)
    }

    /// The archive of [`Self::tar`], compressed.
    pub(super) fn tar_gz(&self, prefix: &str) -> Result<Vec<u8>> {
        Ok(gzip(&self.tar(prefix)?)?)
    }

    fn append(&self, archive: &mut tar::Builder<Vec<u8>>, path: &str, entry: &Entry) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_mtime(self.time_s);
        let content: &[u8] = match entry {
            Entry::File { content, mode } => {
                header.set_entry_type(EntryType::Regular);
                header.set_mode(*mode);
                set_path(&mut header, path)?;
                content
            }
            Entry::Folder { mode } => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(*mode);
                set_path(&mut header, &format!("{}/", path.trim_end_matches('/')))?;
                &[]
            }
        };
        header.set_size(u64::try_from(content.len())?);
        header.set_cksum();
        archive.append(&header, content)?;
        Ok(())
    }
}

/// Sets the path as it is: [`Header::set_path`] drops a leading `./`, with which the paths of Debian packages begin.
fn set_path(header: &mut Header, path: &str) -> Result<()> {
    let name = header.as_ustar_mut().and_then(|header| header.name.get_mut(..path.len()));
    let name = name.with_context(|| format!("{path} is too long for the name field of a ustar header"))?;
    name.copy_from_slice(path.as_bytes());
    Ok(())
}

/// Compresses with neither a time nor a file name in the header.
pub(super) fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    const TIME_S: u64 = 1_700_000_000;

    #[test]
    fn an_archive_does_not_depend_on_the_order_of_additions() {
        let mut forwards = Tree::new(TIME_S);
        forwards.file("a/b", "1");
        forwards.program("a-b", "2");
        let mut backwards = Tree::new(TIME_S);
        backwards.program("a-b", "2");
        backwards.file("a/b", "1");
        assert!(forwards.tar("").unwrap() == backwards.tar("").unwrap());
        assert!(forwards.tar_gz("").unwrap() == backwards.tar_gz("").unwrap());
    }

    #[test]
    fn entries_are_sorted_dated_and_owned_by_root() {
        let mut tree = Tree::new(TIME_S);
        tree.program("usr/bin/program", "content");
        tree.file_or_script("usr/script", b"#!/bin/sh");
        tree.file_or_script("usr/text", b"text");
        tree.folder("tmp", 0o1777);
        let tar = tree.tar("./").unwrap();
        let mut archive = tar::Archive::new(tar.as_slice());
        let mut listing = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), TIME_S);
            let mode = header.mode().unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            listing.push(format!("{path} {mode:o} {content}"));
        }
        assert_eq!(
            listing,
            [
                "./ 755 ",
                "./tmp/ 1777 ",
                "./usr/ 755 ",
                "./usr/bin/ 755 ",
                "./usr/bin/program 755 content",
                "./usr/script 755 #!/bin/sh",
                "./usr/text 644 text",
            ]
        );
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error() {
        let mut tree = Tree::new(TIME_S);
        tree.file(&"x".repeat(100), "");
        assert!(tree.tar("").is_ok());
        assert!(tree.tar("./").is_err());
    }

    #[test]
    fn compressed_bytes_have_no_time_and_decompress_to_the_content() {
        let compressed = gzip(b"content").unwrap();
        // RFC 1952: flags at 3, the modification time at 4 to 7.
        assert_eq!(compressed[3..8], [0; 5]);
        let mut content = String::new();
        GzDecoder::new(compressed.as_slice()).read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
    }
}
