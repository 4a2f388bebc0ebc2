//! Links to debug files: `.gnu_debuglink` with its CRC-32, and `.gnu_debugaltlink` (`dwz`).

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use profiler_binary_reader::{Image, ParseError};

use crate::{build_id::BuildId, elf::Elf, section::Sections};

/// The size of a link section: a file name or path, then a checksum or build id.
const MAX_LINK_BYTES: u64 = 8 << 10;

/// The largest file whose checksum is computed.
const MAX_CHECKSUM_BYTES: u64 = 1 << 30;

/// The bytes of one read for a checksum.
const CHECKSUM_CHUNK_BYTES: u64 = 256 << 10;

/// The content of `.gnu_debuglink`: a reference to the debug file of a stripped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// The file name, without a directory.
    pub name: PathBuf,
    /// The CRC-32 of the whole file.
    pub crc32: u32,
}

/// The content of `.gnu_debugaltlink`: a reference to the file into which `dwz` moved DWARF that several debug files share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlternateLink {
    /// The path, absolute or relative to the directory of the debug file.
    pub path: PathBuf,
    /// The build id of the file.
    pub build_id: BuildId,
}

impl Elf {
    /// Reads `.gnu_debuglink`; `None` when it is missing or malformed.
    pub fn debug_link(&self, sections: &Sections) -> Option<DebugLink> {
        parse_debug_link(&self.link_section(sections, b".gnu_debuglink")?)
    }

    /// Reads `.gnu_debugaltlink`; `None` when it is missing or malformed.
    pub fn alternate_link(&self, sections: &Sections) -> Option<AlternateLink> {
        parse_alternate_link(&self.link_section(sections, b".gnu_debugaltlink")?)
    }

    fn link_section(&self, sections: &Sections, name: &[u8]) -> Option<Vec<u8>> {
        sections.find(name)?.read(self.image(), MAX_LINK_BYTES).ok()
    }
}

/// The name, a zero byte, zeros up to a multiple of four, the checksum (GDB manual, "Separate Debug Files").
fn parse_debug_link(bytes: &[u8]) -> Option<DebugLink> {
    let length = memchr::memchr(0, bytes)?;
    let name = Path::new(OsStr::from_bytes(&bytes[..length]));
    // The caller chooses the directories: the section must not name one.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let crc32 = bytes.get((length + 1).next_multiple_of(4)..)?.first_chunk()?;
    Some(DebugLink { name: name.to_owned(), crc32: u32::from_le_bytes(*crc32) })
}

/// The path, a zero byte, the build id (GDB manual, "MiniDebugInfo" and dwz(1)).
fn parse_alternate_link(bytes: &[u8]) -> Option<AlternateLink> {
    let length = memchr::memchr(0, bytes)?;
    let path = PathBuf::from(OsStr::from_bytes(&bytes[..length]));
    Some(AlternateLink { path, build_id: BuildId::new(&bytes[length + 1..])? })
}

/// Computes the CRC-32 of a file of at most 1 GiB, as in `.gnu_debuglink`.
///
/// # Errors
/// When the file is larger or cannot be read.
pub fn compute_crc32(image: &Image) -> Result<u32, ParseError> {
    if image.length() > MAX_CHECKSUM_BYTES {
        return Err(ParseError::TooLarge);
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut offset = 0;
    while offset < image.length() {
        let chunk =
            image.read(offset, CHECKSUM_CHUNK_BYTES.min(image.length() - offset), CHECKSUM_CHUNK_BYTES)?;
        hasher.update(&chunk);
        offset += chunk.len() as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_link_has_a_name_and_a_checksum() {
        let link = parse_debug_link(b"libx.so.dbg\0\x78\x56\x34\x12").unwrap();
        assert_eq!(link, DebugLink { name: "libx.so.dbg".into(), crc32: 0x1234_5678 });
        let padded = parse_debug_link(b"a.dbg\0\0\0\x01\0\0\0").unwrap();
        assert_eq!(padded, DebugLink { name: "a.dbg".into(), crc32: 1 });
    }

    #[test]
    fn a_debug_link_with_a_directory_is_ignored() {
        for name in ["/etc/shadow", "../x", "..", ".", "a/b", ""] {
            let mut bytes = name.as_bytes().to_vec();
            bytes.extend([0; 12]);
            assert_eq!(parse_debug_link(&bytes), None, "{name}");
        }
    }

    #[test]
    fn a_truncated_link_is_ignored() {
        for bytes in [&b""[..], b"abc", b"abc\0", b"abc\0\x01\0\0"] {
            assert_eq!(parse_debug_link(bytes), None);
        }
        assert_eq!(parse_alternate_link(b"path"), None);
        assert_eq!(parse_alternate_link(b"path\0"), None);
    }

    #[test]
    fn an_alternate_link_has_a_path_and_a_build_id() {
        let link = parse_alternate_link(b"../../.dwz/x.debug\0\xab\xcd").unwrap();
        assert_eq!(link.path, Path::new("../../.dwz/x.debug"));
        assert_eq!(link.build_id.to_string(), "abcd");
    }

    #[test]
    fn the_checksum_is_the_crc_32_of_the_linker() {
        assert_eq!(compute_crc32(&Image::Memory(b"123456789".to_vec())), Ok(0xcbf4_3926));
    }
}
