//! Section headers by name and type, and decompressed section contents (`SHF_COMPRESSED`, `.zdebug_*`).

use std::{io::Read as _, ops::Range, sync::Arc};

use flate2::bufread::ZlibDecoder;
use object::{
    LittleEndian,
    elf::{self, CompressionHeader64, SectionType},
    pod,
};
#[cfg(feature = "compressed-debug-info")]
use ruzstd::decoding::FrameDecoder;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, ParseError};

use crate::header::{Header, LE, SectionHeader};

/// The size of the section name table. Real files have a few dozen names.
const MAX_NAME_TABLE_BYTES: u64 = 4 << 20;

/// The section headers of a file, with the section names.
#[derive(Debug, Default)]
pub struct Sections {
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

/// One section.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a>(&'a SectionHeader);

impl Sections {
    pub(crate) fn read(image: &Image, header: &Header) -> Result<Self, ParseError> {
        let headers = header.section_headers(image)?;
        let names = match headers.get(header.section_names as usize) {
            Some(names) => Section(names).raw(image, MAX_NAME_TABLE_BYTES)?,
            None => Vec::new(),
        };
        Ok(Self { headers, names })
    }

    /// The first section with a name.
    pub fn find(&self, name: &[u8]) -> Option<Section<'_>> {
        self.iter().find(|section| self.name(*section) == name)
    }

    /// The first section with a type.
    pub(crate) fn find_type(&self, kind: SectionType) -> Option<Section<'_>> {
        self.iter().find(|section| section.0.sh_type.get(LE) == kind)
    }

    /// The section with an index.
    pub(crate) fn get(&self, index: u32) -> Option<Section<'_>> {
        self.headers.get(index as usize).map(Section)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Section<'_>> {
        self.headers.iter().map(Section)
    }

    /// Whether the file contains DWARF. A debug file keeps the headers of all sections but the bytes of few, so that a header
    /// without bytes does not count.
    pub fn has_dwarf(&self) -> bool {
        [&b".debug_info"[..], b".zdebug_info"]
            .iter()
            .any(|name| self.find(name).is_some_and(|found| found.is_stored()))
    }

    /// Whether the file has a full symbol table (`.symtab`).
    pub fn has_symbol_table(&self) -> bool {
        self.find_type(elf::SHT_SYMTAB).is_some()
    }

    fn name(&self, section: Section<'_>) -> &[u8] {
        let tail = self.names.get(section.0.sh_name.get(LE) as usize..).unwrap_or_default();
        tail.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Section<'_> {
    pub(crate) fn header(&self) -> &SectionHeader {
        self.0
    }

    /// Whether the file contains the bytes of the section.
    pub(crate) fn is_stored(&self) -> bool {
        self.0.sh_type.get(LE) != elf::SHT_NOBITS && self.0.sh_size.get(LE) > 0
    }

    /// The address of the first byte in memory.
    pub fn address(&self) -> ElfAddress {
        ElfAddress(self.0.sh_addr.get(LE))
    }

    /// The address range in memory.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.address().0;
        start..start.saturating_add(self.0.sh_size.get(LE))
    }

    /// Whether the section is code, in this file or in the stripped file that belongs to it.
    pub(crate) fn is_code(&self) -> bool {
        self.0.sh_flags.get(LE).contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR)
    }

    /// Reads the bytes of the section as stored, at most `limit`.
    pub(crate) fn raw(&self, image: &Image, limit: u64) -> Result<Vec<u8>, ParseError> {
        if !self.is_stored() {
            return Ok(Vec::new());
        }
        image.read(self.0.sh_offset.get(LE), self.0.sh_size.get(LE), limit)
    }

    /// Reads the contents, decompressed, at most `limit` bytes.
    pub(crate) fn contents(&self, image: &Image, limit: u64) -> Result<Arc<[u8]>, ParseError> {
        if !self.is_stored() {
            return Ok(Arc::default());
        }
        if let Some(decompressed) = self.decompressed(image, limit)? {
            return Ok(decompressed.into());
        }
        image.read_shared(self.0.sh_offset.get(LE), self.0.sh_size.get(LE), limit)
    }

    /// The contents, decompressed, at most `limit` bytes: a part of the image, unless they are compressed.
    pub(crate) fn content_image(&self, image: &Image, limit: u64) -> Result<Image, ParseError> {
        if let Some(decompressed) = self.decompressed(image, limit)? {
            return Ok(Image::Memory(decompressed));
        }
        let size = self.0.sh_size.get(LE);
        if size > limit { Err(ParseError::TooLarge) } else { image.part(self.0.sh_offset.get(LE), size) }
    }

    /// The contents of a compressed section; `None` for another one.
    fn decompressed(&self, image: &Image, limit: u64) -> Result<Option<Vec<u8>>, ParseError> {
        let (offset, size) = (self.0.sh_offset.get(LE), self.0.sh_size.get(LE));
        if self.0.sh_flags.get(LE).contains(elf::SHF_COMPRESSED) {
            return decompress_gabi(&self.raw(image, limit)?, limit).map(Some);
        }
        let is_gnu_zlib = size >= GNU_ZLIB_HEADER_BYTES as u64
            && image.read(offset, GNU_ZLIB_MAGIC.len() as u64, u64::MAX)? == GNU_ZLIB_MAGIC;
        if is_gnu_zlib { decompress_gnu_zlib(&self.raw(image, limit)?, limit).map(Some) } else { Ok(None) }
    }
}

/// Decompresses a section with `SHF_COMPRESSED`: a header, then the compressed bytes (System V gABI, "Section
/// Compression").
fn decompress_gabi(bytes: &[u8], limit: u64) -> Result<Vec<u8>, ParseError> {
    let header = pod::from_bytes::<CompressionHeader64<LittleEndian>>(bytes);
    let (header, compressed) = header.map_err(|()| ParseError::Malformed)?;
    let format = match header.ch_type.get(LE) {
        elf::ELFCOMPRESS_ZLIB => Compression::Zlib,
        #[cfg(feature = "compressed-debug-info")]
        elf::ELFCOMPRESS_ZSTD => Compression::Zstandard,
        _ => return Err(ParseError::Malformed),
    };
    decompress(format, compressed, header.ch_size.get(LE), limit)
}

const GNU_ZLIB_MAGIC: &[u8] = b"ZLIB";
const GNU_ZLIB_HEADER_BYTES: usize = 12;

/// Decompresses a section in the older GNU format, named `.zdebug_*`: `ZLIB`, the size as eight bytes big-endian, the
/// compressed bytes.
fn decompress_gnu_zlib(bytes: &[u8], limit: u64) -> Result<Vec<u8>, ParseError> {
    let (header, compressed) = bytes.split_at_checked(GNU_ZLIB_HEADER_BYTES).ok_or(ParseError::Malformed)?;
    let size = header.last_chunk().map(|size| u64::from_be_bytes(*size)).ok_or(ParseError::Malformed)?;
    decompress(Compression::Zlib, compressed, size, limit)
}

/// The compression of a section (System V gABI, `ch_type`).
#[derive(Clone, Copy)]
enum Compression {
    Zlib,
    #[cfg(feature = "compressed-debug-info")]
    Zstandard,
}

/// The maximum compression ratio of deflate. zstd can exceed it, but not for meaningful sections. The stated size is
/// allocated before decompression, so that it must be plausible.
const MAX_COMPRESSION_RATIO: u64 = 1032;

fn decompress(
    format: Compression,
    compressed: &[u8],
    uncompressed_bytes: u64,
    limit: u64,
) -> Result<Vec<u8>, ParseError> {
    if uncompressed_bytes > limit {
        return Err(ParseError::TooLarge);
    }
    if uncompressed_bytes / MAX_COMPRESSION_RATIO > compressed.len() as u64 {
        return Err(ParseError::Malformed);
    }
    let size = usize::try_from(uncompressed_bytes).map_err(|_| ParseError::TooLarge)?;
    let mut contents = Vec::new();
    contents.try_reserve_exact(size).map_err(|_| ParseError::TooLarge)?;
    let is_complete = match format {
        Compression::Zlib => {
            // Reads beyond the last byte, because the checksum is verified at the end of the stream.
            let mut stream = ZlibDecoder::new(compressed).take(uncompressed_bytes.saturating_add(1));
            stream.read_to_end(&mut contents).is_ok()
        }
        // Writes at most the reserved capacity.
        #[cfg(feature = "compressed-debug-info")]
        Compression::Zstandard => FrameDecoder::new().decode_all_to_vec(compressed, &mut contents).is_ok(),
    };
    if is_complete && contents.len() == size { Ok(contents) } else { Err(ParseError::Malformed) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{elf::Elf, test_file::TestFile};

    const TEXT: &[u8] = b"some text, some text, some text";

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn contents(file: TestFile, name: &str, limit: u64) -> Result<Vec<u8>, ParseError> {
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        let sections = elf.sections().unwrap();
        sections.find(name.as_bytes()).unwrap().contents(elf.image(), limit).map(|bytes| bytes.to_vec())
    }

    #[test]
    fn contents_are_decompressed_whatever_the_format() {
        let plain = TestFile::with_code().with(".plain", elf::SHT_PROGBITS, TEXT.to_vec());
        assert_eq!(contents(plain, ".plain", 100).unwrap(), TEXT);

        let compressed = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 31, &zlib(TEXT));
        assert_eq!(contents(compressed, ".zlib", 100).unwrap(), TEXT);

        let old = [b"ZLIB", &31_u64.to_be_bytes()[..], &zlib(TEXT)].concat();
        let old = TestFile::with_code().with(".zdebug_str", elf::SHT_PROGBITS, old);
        assert_eq!(contents(old, ".zdebug_str", 100).unwrap(), TEXT);

        // One raw block of "abc": RFC 8878, section 3.1.1.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0, b'a', b'b', b'c'];
        let compressed = TestFile::with_code().compressed(".zstd", elf::ELFCOMPRESS_ZSTD, 3, &frame);
        assert_eq!(contents(compressed, ".zstd", 100).unwrap(), b"abc");
    }

    #[test]
    fn compressed_contents_with_a_wrong_size_are_malformed() {
        let compressed = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 32, &zlib(TEXT));
        assert_eq!(contents(compressed, ".zlib", 100), Err(ParseError::Malformed));
        let much = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 1 << 40, &zlib(TEXT));
        assert_eq!(contents(much, ".zlib", 1 << 41), Err(ParseError::Malformed));
        let unknown = TestFile::with_code().compressed(".x", elf::CompressionType(99), 31, TEXT);
        assert_eq!(contents(unknown, ".x", 100), Err(ParseError::Malformed));
    }

    #[test]
    fn contents_beyond_the_limit_are_refused_before_decompression() {
        let compressed =
            TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 1 << 60, &zlib(TEXT));
        assert_eq!(contents(compressed, ".zlib", 1 << 20), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_section_without_stored_bytes_is_empty() {
        assert_eq!(contents(TestFile::with_code(), ".text", 100).unwrap(), b"");
    }
}
