//! Section headers by name and type, and what the sections hold, unpacked.

use std::{io::Read as _, ops::Range, sync::Arc};

use flate2::bufread::ZlibDecoder;
use object::{
    LittleEndian,
    elf::{self, CompressionHeader64, SectionType},
    pod,
};
use ruzstd::decoding::FrameDecoder;

use super::{
    Image, ParseError,
    header::{Header, LE, SectionHeader},
};
use profiler_addresses::ElfAddress;

/// The names of a few dozen sections: more is a lie.
const MAX_NAME_TABLE_BYTES: u64 = 4 << 20;

/// The section headers of a file with their names.
#[derive(Debug, Default)]
pub struct Sections {
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

/// One section.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a>(&'a SectionHeader);

impl Sections {
    pub(super) fn read(image: &Image, header: &Header) -> Result<Self, ParseError> {
        let headers = header.section_headers(image)?;
        let names = match headers.get(header.section_names as usize) {
            Some(names) => Section(names).raw(image, MAX_NAME_TABLE_BYTES)?,
            None => Vec::new(),
        };
        Ok(Self { headers, names })
    }

    /// The first section of that name.
    pub fn find(&self, name: &[u8]) -> Option<Section<'_>> {
        self.iter().find(|section| self.name(*section) == name)
    }

    /// The first section of that type.
    pub(super) fn of_type(&self, kind: SectionType) -> Option<Section<'_>> {
        self.iter().find(|section| section.0.sh_type.get(LE) == kind)
    }

    /// The section with that number.
    pub(super) fn get(&self, index: u32) -> Option<Section<'_>> {
        self.headers.get(index as usize).map(Section)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Section<'_>> {
        self.headers.iter().map(Section)
    }

    /// Whether the file has DWARF of its own. A stripped file has not, and one that was split off keeps the
    /// header of every section but the bytes of few.
    pub fn has_dwarf(&self) -> bool {
        [&b".debug_info"[..], b".zdebug_info"]
            .iter()
            .any(|name| self.find(name).is_some_and(|found| found.is_stored()))
    }

    /// Whether the file has a full symbol table.
    pub fn has_symbol_table(&self) -> bool {
        self.of_type(elf::SHT_SYMTAB).is_some()
    }

    fn name(&self, section: Section<'_>) -> &[u8] {
        let tail = self.names.get(section.0.sh_name.get(LE) as usize..).unwrap_or_default();
        tail.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Section<'_> {
    pub(super) fn header(&self) -> &SectionHeader {
        self.0
    }

    /// Whether the file holds its bytes.
    pub(super) fn is_stored(&self) -> bool {
        self.0.sh_type.get(LE) != elf::SHT_NOBITS && self.0.sh_size.get(LE) > 0
    }

    /// Where it begins in memory.
    pub fn address(&self) -> ElfAddress {
        ElfAddress(self.0.sh_addr.get(LE))
    }

    /// The addresses it takes in memory.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.address().0;
        start..start.saturating_add(self.0.sh_size.get(LE))
    }

    /// Whether it holds code, here or in the file this one was split off from.
    pub(super) fn is_code(&self) -> bool {
        self.0.sh_flags.get(LE).contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR)
    }

    /// The bytes as they stand in the file.
    pub(super) fn raw(&self, image: &Image, limit: u64) -> Result<Vec<u8>, ParseError> {
        if !self.is_stored() {
            return Ok(Vec::new());
        }
        image.read(self.0.sh_offset.get(LE), self.0.sh_size.get(LE), limit)
    }

    /// The contents, unpacked, at most `limit` bytes.
    pub fn contents(&self, image: &Image, limit: u64) -> Result<Arc<[u8]>, ParseError> {
        if !self.is_stored() {
            return Ok(Arc::default());
        }
        let (offset, size) = (self.0.sh_offset.get(LE), self.0.sh_size.get(LE));
        if self.0.sh_flags.get(LE).contains(elf::SHF_COMPRESSED) {
            return unpack(&self.raw(image, limit)?, limit);
        }
        let is_gnu_zlib = size >= GNU_ZLIB_HEADER_BYTES as u64
            && image.read(offset, GNU_ZLIB_MAGIC.len() as u64, u64::MAX)? == GNU_ZLIB_MAGIC;
        if is_gnu_zlib {
            return unpack_gnu_zlib(&self.raw(image, limit)?, limit);
        }
        image.read_shared(offset, size, limit)
    }
}

/// A section with `SHF_COMPRESSED`: a header, then the packed bytes (System V gABI, "Section Compression").
fn unpack(bytes: &[u8], limit: u64) -> Result<Arc<[u8]>, ParseError> {
    let header = pod::from_bytes::<CompressionHeader64<LittleEndian>>(bytes);
    let (header, packed) = header.map_err(|()| ParseError::Malformed)?;
    let format = match header.ch_type.get(LE) {
        elf::ELFCOMPRESS_ZLIB => Compression::Zlib,
        elf::ELFCOMPRESS_ZSTD => Compression::Zstandard,
        _ => return Err(ParseError::Malformed),
    };
    decompress(format, packed, header.ch_size.get(LE), limit)
}

const GNU_ZLIB_MAGIC: &[u8] = b"ZLIB";
const GNU_ZLIB_HEADER_BYTES: usize = 12;

/// The older form, sections named `.zdebug_*`: `ZLIB`, the size as eight bytes big endian, the packed bytes.
fn unpack_gnu_zlib(bytes: &[u8], limit: u64) -> Result<Arc<[u8]>, ParseError> {
    let (header, packed) = bytes.split_at_checked(GNU_ZLIB_HEADER_BYTES).ok_or(ParseError::Malformed)?;
    let size = header.last_chunk().map(|size| u64::from_be_bytes(*size)).ok_or(ParseError::Malformed)?;
    decompress(Compression::Zlib, packed, size, limit)
}

/// The compression of a section (System V gABI, `ch_type`).
#[derive(Clone, Copy)]
enum Compression {
    Zlib,
    Zstandard,
}

/// What deflate makes of a byte at most; zstd could make more, but not of a section that means something. The size
/// that is stated is taken in memory before the first byte is unpacked.
const MAX_PACKING: u64 = 1032;

fn decompress(
    format: Compression,
    packed: &[u8],
    unpacked_bytes: u64,
    limit: u64,
) -> Result<Arc<[u8]>, ParseError> {
    if unpacked_bytes > limit {
        return Err(ParseError::TooLarge);
    }
    if unpacked_bytes / MAX_PACKING > packed.len() as u64 {
        return Err(ParseError::Malformed);
    }
    let size = usize::try_from(unpacked_bytes).map_err(|_| ParseError::TooLarge)?;
    let mut unpacked = Vec::new();
    unpacked.try_reserve_exact(size).map_err(|_| ParseError::TooLarge)?;
    let is_complete = match format {
        Compression::Zlib => ZlibDecoder::new(packed).take(unpacked_bytes).read_to_end(&mut unpacked).is_ok(),
        // Writes at most the reserved capacity.
        Compression::Zstandard => FrameDecoder::new().decode_all_to_vec(packed, &mut unpacked).is_ok(),
    };
    if is_complete && unpacked.len() == size { Ok(unpacked.into()) } else { Err(ParseError::Malformed) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{
        super::{Elf, test_file::TestFile},
        *,
    };

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
    fn contents_are_unpacked_whatever_they_are_packed_with() {
        let plain = TestFile::with_code().with(".plain", elf::SHT_PROGBITS, TEXT.to_vec());
        assert_eq!(contents(plain, ".plain", 100).unwrap(), TEXT);

        let packed = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 31, &zlib(TEXT));
        assert_eq!(contents(packed, ".zlib", 100).unwrap(), TEXT);

        let old = [b"ZLIB", &31_u64.to_be_bytes()[..], &zlib(TEXT)].concat();
        let old = TestFile::with_code().with(".zdebug_str", elf::SHT_PROGBITS, old);
        assert_eq!(contents(old, ".zdebug_str", 100).unwrap(), TEXT);

        // One raw block of "abc": RFC 8878, section 3.1.1.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0, b'a', b'b', b'c'];
        let packed = TestFile::with_code().compressed(".zstd", elf::ELFCOMPRESS_ZSTD, 3, &frame);
        assert_eq!(contents(packed, ".zstd", 100).unwrap(), b"abc");
    }

    #[test]
    fn packing_that_lies_about_its_size_is_malformed() {
        let packed = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 32, &zlib(TEXT));
        assert_eq!(contents(packed, ".zlib", 100), Err(ParseError::Malformed));
        let much = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 1 << 40, &zlib(TEXT));
        assert_eq!(contents(much, ".zlib", 1 << 41), Err(ParseError::Malformed));
        let unknown = TestFile::with_code().compressed(".x", elf::CompressionType(99), 31, TEXT);
        assert_eq!(contents(unknown, ".x", 100), Err(ParseError::Malformed));
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused_before_it_is_unpacked() {
        let packed = TestFile::with_code().compressed(".zlib", elf::ELFCOMPRESS_ZLIB, 1 << 60, &zlib(TEXT));
        assert_eq!(contents(packed, ".zlib", 1 << 20), Err(ParseError::TooLarge));
    }

    #[test]
    fn a_section_without_bytes_is_empty() {
        assert_eq!(contents(TestFile::with_code(), ".text", 100).unwrap(), b"");
    }
}
