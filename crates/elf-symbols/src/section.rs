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

/// Where the contents of a section are: in the file, or in memory if the file has them compressed.
#[derive(Debug)]
pub(crate) struct SectionContent {
    decompressed: Option<Image>,
    /// The offsets of the first byte and of the end, in the file or in the decompressed bytes.
    offsets: Range<u64>,
}

impl SectionContent {
    /// The number of bytes, without compression.
    pub(crate) fn bytes(&self) -> u64 {
        self.offsets.end - self.offsets.start
    }

    /// The number of bytes in memory.
    pub(crate) fn decompressed_bytes(&self) -> u64 {
        self.decompressed.as_ref().map_or(0, Image::length)
    }

    /// Reads `size` bytes at `offset` of the contents. `file`: the file of the section.
    pub(crate) fn read(&self, file: &Image, offset: u64, size: u64) -> Result<Vec<u8>, ParseError> {
        let start = self.offsets.start.checked_add(offset).ok_or(ParseError::Malformed)?;
        let is_within = start.checked_add(size).is_some_and(|end| end <= self.offsets.end);
        if is_within { self.image(file).read(start, size, size) } else { Err(ParseError::Malformed) }
    }

    /// Reads the string at `offset` of the contents. `file`: the file of the section.
    pub(crate) fn read_string(&self, file: &Image, offset: u64) -> Result<Vec<u8>, ParseError> {
        let start = self.offsets.start.checked_add(offset).ok_or(ParseError::Malformed)?;
        self.image(file).read_string(start, self.offsets.end)
    }

    fn image<'a>(&'a self, file: &'a Image) -> &'a Image {
        self.decompressed.as_ref().unwrap_or(file)
    }
}

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
            Some(names) => Section(names).read(image, MAX_NAME_TABLE_BYTES)?,
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
        self.iter().find(|section| section.has_type(kind))
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
        self.has_stored([b".debug_info", b".zdebug_info"])
    }

    /// Whether the file contains call frame information for debuggers (`.debug_frame`).
    pub fn has_debug_frame(&self) -> bool {
        self.has_stored([b".debug_frame", b".zdebug_frame"])
    }

    fn has_stored(&self, names: [&[u8]; 2]) -> bool {
        names.iter().any(|name| self.find(name).is_some_and(|found| found.is_stored()))
    }

    /// Whether the file has a full symbol table (`.symtab`).
    pub fn has_symbol_table(&self) -> bool {
        self.find_type(elf::SHT_SYMTAB).is_some()
    }

    /// The address ranges of code, sorted; empty where the file has no section headers.
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        let code = self.iter().filter(|section| section.is_code() && section.is_stored());
        let mut ranges: Vec<_> = code.map(|section| section.addresses()).collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// The names of all sections.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|section| self.name(section))
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

    pub(crate) fn has_type(&self, kind: SectionType) -> bool {
        self.0.sh_type.get(LE) == kind
    }

    /// Whether the file contains the bytes of the section.
    pub(crate) fn is_stored(&self) -> bool {
        self.0.sh_type.get(LE) != elf::SHT_NOBITS && self.0.sh_size.get(LE) > 0
    }

    /// The place of the first byte in the file.
    pub(crate) fn file_offset(&self) -> u64 {
        self.0.sh_offset.get(LE)
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

    /// Whether the bytes are compressed as the flag of the section says.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] for a section that is loaded into memory: it cannot be compressed (System V gABI,
    /// "Section Attribute Flags").
    pub(crate) fn is_compressed(&self) -> Result<bool, ParseError> {
        let flags = self.0.sh_flags.get(LE);
        match flags.contains(elf::SHF_COMPRESSED) {
            true if flags.contains(elf::SHF_ALLOC) => Err(ParseError::Malformed),
            is_compressed => Ok(is_compressed),
        }
    }

    /// Reads the bytes of the section as stored, at most `limit`.
    fn stored(&self, image: &Image, limit: u64) -> Result<Vec<u8>, ParseError> {
        image.read(self.0.sh_offset.get(LE), self.0.sh_size.get(LE), limit)
    }

    /// Reads the contents of a section that is not one of DWARF, decompressed if its flag says so, at most `limit` bytes.
    pub(crate) fn read(&self, image: &Image, limit: u64) -> Result<Vec<u8>, ParseError> {
        if !self.is_stored() {
            return Ok(Vec::new());
        }
        let stored = self.stored(image, limit)?;
        if self.is_compressed()? { decompress_gabi(&stored, limit) } else { Ok(stored) }
    }

    /// Locates the contents of a section that is not one of DWARF, and decompresses at most `limit` bytes if its flag
    /// says so. There is no limit for a section that is not compressed: its bytes stay in the file.
    pub(crate) fn locate(&self, image: &Image, limit: u64) -> Result<SectionContent, ParseError> {
        if !self.is_stored() {
            return Ok(SectionContent { decompressed: None, offsets: 0..0 });
        }
        if self.is_compressed()? {
            let bytes = decompress_gabi(&self.stored(image, limit)?, limit)?;
            let offsets = 0..bytes.len() as u64;
            return Ok(SectionContent { decompressed: Some(Image::Memory(bytes)), offsets });
        }
        let start = self.0.sh_offset.get(LE);
        let end = start.checked_add(self.0.sh_size.get(LE)).ok_or(ParseError::Malformed)?;
        Ok(SectionContent { decompressed: None, offsets: start..end })
    }

    /// Reads the contents of a section of DWARF, decompressed, at most `limit` bytes.
    pub(crate) fn contents(&self, image: &Image, limit: u64) -> Result<Arc<[u8]>, ParseError> {
        if !self.is_stored() {
            return Ok(Arc::default());
        }
        if let Some(decompressed) = self.decompressed(image, limit)? {
            return Ok(decompressed.into());
        }
        image.read_shared(self.0.sh_offset.get(LE), self.0.sh_size.get(LE), limit)
    }

    /// The contents of a section of DWARF, decompressed, at most `limit` bytes: a part of the image, unless they are
    /// compressed.
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
        if self.is_compressed()? {
            return decompress_gabi(&self.stored(image, limit)?, limit).map(Some);
        }
        let is_gnu_zlib = size >= GNU_ZLIB_HEADER_BYTES as u64
            && image.read(offset, GNU_ZLIB_MAGIC.len() as u64, u64::MAX)? == GNU_ZLIB_MAGIC;
        if is_gnu_zlib { decompress_gnu_zlib(&self.stored(image, limit)?, limit).map(Some) } else { Ok(None) }
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
    use super::*;
    use crate::{
        elf::Elf,
        test_file::{TestFile, zlib},
    };

    const TEXT: &[u8] = b"some text, some text, some text";

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
    fn every_section_that_is_compressed_is_read_decompressed() {
        let id_of = |bytes| Elf::parse(Image::Memory(bytes)).unwrap().build_id().map(ToString::to_string);
        let notes = TestFile::with_code().build_id(&[0xab; 20]).compress(2, elf::ELFCOMPRESS_ZLIB, zlib);
        assert_eq!(id_of(notes.bytes()), Some("ab".repeat(20)));

        let link = [&b"x.dbg\0\0\0"[..], &[1, 0, 0, 0]].concat();
        let link = TestFile::with_code().with(".gnu_debuglink", elf::SHT_PROGBITS, link);
        let link = Elf::parse(Image::Memory(link.compress(2, elf::ELFCOMPRESS_ZLIB, zlib).bytes())).unwrap();
        assert_eq!(link.debug_link(&link.sections().unwrap()).unwrap().crc32, 1);

        let names = TestFile::with_code().with(".plain", elf::SHT_PROGBITS, TEXT.to_vec());
        let names = names.compress_names(elf::ELFCOMPRESS_ZLIB, zlib);
        assert_eq!(contents(names, ".plain", 100).unwrap(), TEXT);
    }

    #[test]
    fn a_section_that_is_loaded_into_memory_cannot_be_compressed() {
        let flags = elf::SHF_ALLOC | elf::SHF_COMPRESSED;
        let file = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 31, &zlib(TEXT));
        assert_eq!(contents(file.section_flags(2, flags), ".zlib", 100), Err(ParseError::Malformed));
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
