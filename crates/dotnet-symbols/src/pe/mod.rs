//! The container of .NET code: a PE file's sections and where its managed parts are.
//!
//! Source: Microsoft, "PE Format"; ECMA-335 II.25.

pub mod precompiled;

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_binary_reader::{ByteCursor, ByteRange, Image, PagedImage, ParseError, SegmentLayout};

/// The linker of Windows allows as many.
const MAX_SECTIONS: u64 = 96;

const SECTION_BYTES: u64 = 40;
const COFF_HEADER_BYTES: u64 = 24;
/// Of the optional header, up to the directory of the managed header.
const OPTIONAL_HEADER_BYTES: u64 = 112 + 15 * 8;
const CLI_HEADER_BYTES: usize = 72;
const EXPORTS_HEADER_BYTES: usize = 40;

/// The name of the header of a composite image, which has no managed header.
const COMPOSITE_HEADER: &[u8] = b"RTR_HEADER";

/// Exported names that are looked at. Compilers write one or two.
const MAX_EXPORTS: u32 = 64;

/// The machine that code is for, as an image for Linux states it: x86-64 and AArch64, each with the number of the
/// system mixed in.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 0xaa64 } else { 0x8664 } ^ 0x7b79;

/// Which bytes of the memory that holds the image come from which bytes of the file.
#[derive(Clone, Copy, Debug)]
struct Section {
    address: u32,
    file: ByteRange,
    is_code: bool,
}

/// A place in the memory of an image, relative to its start: what Windows calls an RVA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    pub address: u32,
    pub bytes: u32,
}

/// The headers of a PE file with managed code.
#[derive(Debug)]
pub struct Pe {
    sections: Vec<Section>,
    /// Whether its machine code is for this machine.
    pub is_of_this_machine: bool,
    pub metadata: Directory,
    /// The header of the precompiled code; empty where there is none.
    pub native_header: ByteRange,
    /// Whether it says where that header is as composite images do.
    pub is_composite: bool,
}

/// Whether a file begins as PE files do.
pub fn is_pe(image: &Image) -> bool {
    let mut magic = [0; 2];
    image.read_into(0, &mut magic).is_ok_and(|()| &magic == b"MZ")
}

impl Pe {
    pub fn read(pieces: &mut PagedImage) -> Result<Self, ParseError> {
        let all = pieces.full_range();
        let at = u32::from_le_bytes(pieces.read_array(all.skip(0x3c)?)?);
        let header = all.skip(at.into())?;
        let coff: [u8; COFF_HEADER_BYTES as usize] = pieces.read_array(header)?;
        let mut fields = ByteCursor::new(&coff, 0);
        if fields.array()? != *b"PE\0\0" {
            return Err(ParseError::Malformed);
        }
        let machine = fields.u16()?;
        let sections = u64::from(fields.u16()?);
        fields.skip(12);
        let optional_bytes = u64::from(fields.u16()?);
        let optional = header.skip(COFF_HEADER_BYTES)?;
        let sections = read_sections(pieces, optional.skip(optional_bytes)?, sections)?;
        let mut pe = Self {
            sections,
            is_of_this_machine: machine == MACHINE,
            metadata: Directory::default(),
            native_header: ByteRange::default(),
            is_composite: false,
        };
        let Directories { exports, managed } = Directories::read(pieces, optional.prefix(optional_bytes)?)?;
        if managed != Directory::default() {
            let header: [u8; CLI_HEADER_BYTES] = pieces.read_array(pe.span(managed)?)?;
            pe.metadata = Directory::read(&mut ByteCursor::new(&header, 8))?;
            let native_header = Directory::read(&mut ByteCursor::new(&header, 64))?;
            if native_header != Directory::default() {
                pe.native_header = pe.span(native_header)?;
            }
        }
        if let Some(address) = pe.composite_header(pieces, exports)? {
            pe.native_header = pe.rest_from(address)?;
            pe.is_composite = true;
        }
        Ok(pe)
    }

    /// Where in the file the bytes of a directory are.
    pub fn span(&self, directory: Directory) -> Result<ByteRange, ParseError> {
        self.rest_from(directory.address)?.prefix(directory.bytes.into())
    }

    /// Where in the file the metadata is that a managed header leads to.
    pub fn metadata_of(&self, pieces: &mut PagedImage, managed: Directory) -> Result<ByteRange, ParseError> {
        let header: [u8; CLI_HEADER_BYTES] = pieces.read_array(self.span(managed)?)?;
        self.span(Directory::read(&mut ByteCursor::new(&header, 8))?)
    }

    /// Where in the file the bytes from an address on are, up to the end of their section.
    pub fn rest_from(&self, address: u32) -> Result<ByteRange, ParseError> {
        let span = self.sections.iter().find_map(|section| {
            let offset = address.checked_sub(section.address)?;
            section.file.skip(offset.into()).ok().filter(|rest| rest.len() > 0)
        });
        span.ok_or(ParseError::Malformed)
    }

    /// Where its sections are.
    pub fn layout(&self) -> SegmentLayout {
        SegmentLayout::from_sections(self.sections.iter().map(|section| {
            let Section { address, file, is_code } = *section;
            (FileOffset(file.start), ElfAddress(address.into()), file.len(), is_code)
        }))
    }

    /// The address of the header that a composite image exports.
    fn composite_header(
        &self,
        pieces: &mut PagedImage,
        exports: Directory,
    ) -> Result<Option<u32>, ParseError> {
        if exports == Directory::default() {
            return Ok(None);
        }
        let header: [u8; EXPORTS_HEADER_BYTES] = pieces.read_array(self.span(exports)?)?;
        let mut fields = ByteCursor::new(&header, 24);
        let (count, functions) = (fields.u32()?.min(MAX_EXPORTS), fields.u32()?);
        let (names, ordinals) = (fields.u32()?, fields.u32()?);
        for index in 0..count {
            let name =
                u32::from_le_bytes(pieces.read_array(self.rest_from(names)?.skip(u64::from(index) * 4)?)?);
            if pieces.read_up_to(self.rest_from(name)?, COMPOSITE_HEADER.len() as u64)? == COMPOSITE_HEADER {
                let ordinal = self.rest_from(ordinals)?.skip(u64::from(index) * 2)?;
                let ordinal = u64::from(u16::from_le_bytes(pieces.read_array(ordinal)?));
                let function = pieces.read_array(self.rest_from(functions)?.skip(ordinal * 4)?)?;
                return Ok(Some(u32::from_le_bytes(function)));
            }
        }
        Ok(None)
    }

    /// The address in the image of code that runs at `address`, in a mapping of the file's bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    ///
    /// The runtime maps each section from the file on its own, or the whole file as it is: both ways the offset in the
    /// file says what it is. The pages at the ends of a mapping show the neighbours' bytes too, which are no code.
    pub fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<u32> {
        let distance = address.0.checked_sub(mapping_start.0)?;
        let offset = mapping_offset.0.checked_add(distance)?;
        let section = self
            .sections
            .iter()
            .find(|section| section.is_code && (section.file.start..section.file.end).contains(&offset))?;
        section.address.checked_add(u32::try_from(offset - section.file.start).ok()?)
    }
}

impl Directory {
    pub fn read(fields: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        Ok(Self { address: fields.u32()?, bytes: fields.u32()? })
    }

    pub fn contains(self, address: u32) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes)
    }
}

fn read_sections(pieces: &mut PagedImage, table: ByteRange, count: u64) -> Result<Vec<Section>, ParseError> {
    if count > MAX_SECTIONS {
        return Err(ParseError::TooLarge);
    }
    let mut sections = Vec::new();
    for index in 0..count {
        let header: [u8; SECTION_BYTES as usize] = pieces.read_array(table.skip(index * SECTION_BYTES)?)?;
        sections.push(Section::read(&header)?);
    }
    Ok(sections)
}

impl Section {
    fn read(header: &[u8]) -> Result<Self, ParseError> {
        const IS_CODE: u32 = 0x20;
        let mut fields = ByteCursor::new(header, 12);
        let address = fields.u32()?;
        let file_bytes = u64::from(fields.u32()?);
        let start = u64::from(fields.u32()?);
        fields.skip(12);
        let is_code = fields.u32()? & IS_CODE != 0;
        Ok(Self { address, file: ByteRange { start, end: start + file_bytes }, is_code })
    }
}

/// The directories in the optional header that matter here; empty where there are none.
#[derive(Default)]
struct Directories {
    exports: Directory,
    managed: Directory,
}

impl Directories {
    fn read(pieces: &mut PagedImage, optional: ByteRange) -> Result<Self, ParseError> {
        const PE32_PLUS: u16 = 0x20b;
        const MANAGED: usize = 14;
        let header = pieces.read_up_to(optional, OPTIONAL_HEADER_BYTES)?;
        let directories = if ByteCursor::new(&header, 0).u16()? == PE32_PLUS { 112 } else { 96 };
        let count = ByteCursor::new(&header, directories - 4).u32()? as usize;
        if count <= MANAGED {
            return Ok(Self::default());
        }
        Ok(Self {
            exports: Directory::read(&mut ByteCursor::new(&header, directories))?,
            managed: Directory::read(&mut ByteCursor::new(&header, directories + MANAGED * 8))?,
        })
    }
}
