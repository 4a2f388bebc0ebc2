//! The sections that name other files: `.gnu_debuglink` and `.gnu_debugaltlink`.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{BuildId, Elf, Image, ParseError, Sections};

/// A file name or path, and a checksum or build id behind it.
const MAX_LINK_BYTES: u64 = 8 << 10;

/// A checksum is computed over at most this much: a debug file of more is not worth the time.
const MAX_CHECKSUM_BYTES: u64 = 1 << 30;

/// What is read at once for a checksum.
const CHECKSUM_PIECE_BYTES: u64 = 256 << 10;

/// The debug file that was split off from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// Its name, without a directory.
    pub name: PathBuf,
    /// The CRC-32 of all its bytes.
    pub crc32: u32,
}

/// The file to which `dwz` moved what several debug files share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlternateLink {
    /// Its path, absolute or from the debug file's directory on.
    pub path: PathBuf,
    /// Its build id.
    pub build_id: BuildId,
}

impl Elf {
    /// What `.gnu_debuglink` says.
    pub fn debug_link(&self, sections: &Sections) -> Option<DebugLink> {
        parse_debug_link(&self.link_section(sections, b".gnu_debuglink")?)
    }

    /// What `.gnu_debugaltlink` says.
    pub fn alternate_link(&self, sections: &Sections) -> Option<AlternateLink> {
        parse_alternate_link(&self.link_section(sections, b".gnu_debugaltlink")?)
    }

    fn link_section(&self, sections: &Sections, name: &[u8]) -> Option<Vec<u8>> {
        sections.find(name)?.raw(self.image(), MAX_LINK_BYTES).ok()
    }
}

/// The name, a zero byte, zeros up to a multiple of four, the checksum (GDB manual, "Separate Debug Files").
fn parse_debug_link(bytes: &[u8]) -> Option<DebugLink> {
    let length = memchr::memchr(0, bytes)?;
    let name = Path::new(OsStr::from_bytes(&bytes[..length]));
    // Where to look is the profiler's choice: the file may name a file, but no place.
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

/// The CRC-32 of all bytes.
pub fn crc32(image: &Image) -> Result<u32, ParseError> {
    if image.length() > MAX_CHECKSUM_BYTES {
        return Err(ParseError::TooLarge);
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut offset = 0;
    while offset < image.length() {
        let piece =
            image.read(offset, CHECKSUM_PIECE_BYTES.min(image.length() - offset), CHECKSUM_PIECE_BYTES)?;
        hasher.update(&piece);
        offset += piece.len() as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_name_and_a_checksum() {
        let link = parse_debug_link(b"libx.so.dbg\0\x78\x56\x34\x12").unwrap();
        assert_eq!(link, DebugLink { name: "libx.so.dbg".into(), crc32: 0x1234_5678 });
        let padded = parse_debug_link(b"a.dbg\0\0\0\x01\0\0\0").unwrap();
        assert_eq!(padded, DebugLink { name: "a.dbg".into(), crc32: 1 });
    }

    #[test]
    fn a_link_to_another_directory_is_none() {
        for name in ["/etc/shadow", "../x", "..", ".", "a/b", ""] {
            let mut bytes = name.as_bytes().to_vec();
            bytes.extend([0; 12]);
            assert_eq!(parse_debug_link(&bytes), None, "{name}");
        }
    }

    #[test]
    fn a_link_that_ends_too_early_is_none() {
        for bytes in [&b""[..], b"abc", b"abc\0", b"abc\0\x01\0\0"] {
            assert_eq!(parse_debug_link(bytes), None);
        }
        assert_eq!(parse_alternate_link(b"path"), None);
        assert_eq!(parse_alternate_link(b"path\0"), None);
    }

    #[test]
    fn an_alternate_link_is_a_path_and_a_build_id() {
        let link = parse_alternate_link(b"../../.dwz/x.debug\0\xab\xcd").unwrap();
        assert_eq!(link.path, Path::new("../../.dwz/x.debug"));
        assert_eq!(link.build_id.to_string(), "abcd");
    }

    #[test]
    fn the_checksum_is_that_of_the_linker() {
        assert_eq!(crc32(&Image::Memory(b"123456789".to_vec())), Ok(0xcbf4_3926));
    }
}
