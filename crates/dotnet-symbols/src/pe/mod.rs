//! Parses the headers of PE files with managed code: sections, managed header, exports of composite images.
//!
//! Source: Microsoft, "PE Format"; ECMA-335 II.25.

pub mod precompiled;

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::{ByteCursor, ByteRange, Image, PagedImage, ParseError, SegmentLayout};

/// Sections per file: the limit of the Windows loader.
const MAX_SECTIONS: u64 = 96;

const SECTION_BYTES: u64 = 40;
const COFF_HEADER_BYTES: u64 = 24;
/// The optional header up to the data directory of the managed header.
const OPTIONAL_HEADER_BYTES: u64 = 112 + 15 * 8;
const CLI_HEADER_BYTES: usize = 72;
const EXPORTS_HEADER_BYTES: usize = 40;

/// The exported name of the ReadyToRun header of a composite image, which has no managed header.
const COMPOSITE_HEADER: &[u8] = b"RTR_HEADER";

/// Exported names that are read. Compilers emit one or two.
const MAX_EXPORTS: u32 = 64;

/// The machine type of a ReadyToRun image for Linux: x86-64 or AArch64, combined by XOR with the number of the
/// operating system.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 0xaa64 } else { 0x8664 } ^ 0x7b79;

/// A section: a range of the file, and the address where it is loaded.
#[derive(Clone, Copy, Debug)]
struct Section {
    /// Relative to the start of the image (RVA).
    address: u32,
    file: ByteRange,
    is_code: bool,
}

/// Where the bytes of sections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// At their offsets in the file.
    File,
    /// At their addresses.
    Loaded,
}

/// A range of the memory of an image (`IMAGE_DATA_DIRECTORY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Relative to the start of the image (RVA).
    pub address: u32,
    /// Its size.
    pub bytes: u32,
}

/// The headers of a PE file with managed code.
#[derive(Debug)]
pub struct Pe {
    sections: Vec<Section>,
    /// Whether its machine code is for the architecture of this build, on Linux.
    pub is_of_this_machine: bool,
    /// The metadata; empty in a composite image.
    pub metadata: Directory,
    /// The ReadyToRun header; empty in an image without precompiled code.
    pub native_header: ByteRange,
    /// Whether the image has the code of several assemblies (composite).
    pub is_composite: bool,
}

/// Whether a file begins with the magic number of PE files.
pub fn is_pe(image: &Image) -> bool {
    let mut magic = [0; 2];
    image.read_into(0, &mut magic).is_ok_and(|()| &magic == b"MZ")
}

impl Pe {
    /// Parses the headers.
    ///
    /// # Errors
    /// [`ParseError`] when the file is no PE file or contradicts itself.
    pub fn read(image: &mut PagedImage) -> Result<Self, ParseError> {
        Self::read_in_layout(image, Layout::File)
    }

    /// Parses the headers in the memory of a process, where a loader has put each section at its address. All ranges are
    /// those of the memory then.
    ///
    /// # Errors
    /// [`ParseError`] when the image is no PE file or contradicts itself.
    pub fn read_loaded(image: &mut PagedImage) -> Result<Self, ParseError> {
        Self::read_in_layout(image, Layout::Loaded)
    }

    fn read_in_layout(image: &mut PagedImage, layout: Layout) -> Result<Self, ParseError> {
        let all = image.full_range();
        let at = u32::from_le_bytes(image.read_array(all.skip(0x3c)?)?);
        let header = all.skip(at.into())?;
        let coff: [u8; COFF_HEADER_BYTES as usize] = image.read_array(header)?;
        let mut fields = ByteCursor::new(&coff, 0);
        if fields.array()? != *b"PE\0\0" {
            return Err(ParseError::Malformed);
        }
        let machine = fields.u16()?;
        let sections = u64::from(fields.u16()?);
        fields.skip(12);
        let optional_bytes = u64::from(fields.u16()?);
        let optional = header.skip(COFF_HEADER_BYTES)?;
        let sections = read_sections(image, optional.skip(optional_bytes)?, sections, layout)?;
        let mut pe = Self {
            sections,
            is_of_this_machine: machine == MACHINE,
            metadata: Directory::default(),
            native_header: ByteRange::default(),
            is_composite: false,
        };
        let Directories { exports, managed } = Directories::read(image, optional.prefix(optional_bytes)?)?;
        if managed != Directory::default() {
            let header: [u8; CLI_HEADER_BYTES] = image.read_array(pe.span(managed)?)?;
            pe.metadata = Directory::read(&mut ByteCursor::new(&header, 8))?;
            let native_header = Directory::read(&mut ByteCursor::new(&header, 64))?;
            if native_header != Directory::default() {
                pe.native_header = pe.span(native_header)?;
            }
        }
        if let Some(address) = pe.composite_header(image, exports)? {
            pe.native_header = pe.rest_from(address)?;
            pe.is_composite = true;
        }
        Ok(pe)
    }

    /// The bytes of the file that hold a directory.
    pub fn span(&self, directory: Directory) -> Result<ByteRange, ParseError> {
        self.rest_from(directory.address)?.prefix(directory.bytes.into())
    }

    /// The bytes of the file that hold the metadata of a managed header.
    pub(crate) fn metadata_range(
        &self,
        image: &mut PagedImage,
        managed: Directory,
    ) -> Result<ByteRange, ParseError> {
        let header: [u8; CLI_HEADER_BYTES] = image.read_array(self.span(managed)?)?;
        self.span(Directory::read(&mut ByteCursor::new(&header, 8))?)
    }

    /// The bytes of the file from an address to the end of its section.
    pub fn rest_from(&self, address: u32) -> Result<ByteRange, ParseError> {
        let span = self.sections.iter().find_map(|section| {
            let offset = address.checked_sub(section.address)?;
            section.file.skip(offset.into()).ok().filter(|rest| !rest.is_empty())
        });
        span.ok_or(ParseError::Malformed)
    }

    /// The load addresses of its sections.
    pub fn layout(&self) -> SegmentLayout {
        SegmentLayout::from_sections(self.sections.iter().map(|section| {
            let Section { address, file, is_code } = *section;
            (FileOffset(file.start), ElfAddress(address.into()), file.len(), is_code)
        }))
    }

    /// The address of the ReadyToRun header that a composite image exports.
    fn composite_header(
        &self,
        image: &mut PagedImage,
        exports: Directory,
    ) -> Result<Option<u32>, ParseError> {
        if exports == Directory::default() {
            return Ok(None);
        }
        let header: [u8; EXPORTS_HEADER_BYTES] = image.read_array(self.span(exports)?)?;
        let mut fields = ByteCursor::new(&header, 24);
        let (count, functions) = (fields.u32()?.min(MAX_EXPORTS), fields.u32()?);
        let (names, ordinals) = (fields.u32()?, fields.u32()?);
        for index in 0..count {
            let name =
                u32::from_le_bytes(image.read_array(self.rest_from(names)?.skip(u64::from(index) * 4)?)?);
            if image.read_up_to(self.rest_from(name)?, COMPOSITE_HEADER.len() as u64)? == COMPOSITE_HEADER {
                let ordinal = self.rest_from(ordinals)?.skip(u64::from(index) * 2)?;
                let ordinal = u64::from(u16::from_le_bytes(image.read_array(ordinal)?));
                let function = image.read_array(self.rest_from(functions)?.skip(ordinal * 4)?)?;
                return Ok(Some(u32::from_le_bytes(function)));
            }
        }
        Ok(None)
    }

    /// Converts the runtime address of code in a mapping of the file to an address of the image (RVA).
    ///
    /// The runtime maps each section on its own, or the whole file, so the address is derived from the file offset. `None`
    /// is an address outside of the code sections: the pages at the ends of a mapping also show bytes of adjacent sections.
    pub(crate) fn address(&self, mapping: FileMapping, address: RuntimeAddress) -> Option<u32> {
        let FileOffset(offset) = mapping.file_offset(address)?;
        let section = self
            .sections
            .iter()
            .find(|section| section.is_code && (section.file.start..section.file.end).contains(&offset))?;
        section.address.checked_add(u32::try_from(offset - section.file.start).ok()?)
    }
}

impl Directory {
    /// Reads the address and the size.
    pub(crate) fn read(fields: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        Ok(Self { address: fields.u32()?, bytes: fields.u32()? })
    }

    pub(crate) fn contains(self, address: u32) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes)
    }
}

fn read_sections(
    image: &mut PagedImage,
    table: ByteRange,
    count: u64,
    layout: Layout,
) -> Result<Vec<Section>, ParseError> {
    if count > MAX_SECTIONS {
        return Err(ParseError::TooLarge);
    }
    let mut sections = Vec::new();
    for index in 0..count {
        let header: [u8; SECTION_BYTES as usize] = image.read_array(table.skip(index * SECTION_BYTES)?)?;
        sections.push(Section::read(&header, layout)?);
    }
    Ok(sections)
}

impl Section {
    fn read(header: &[u8], layout: Layout) -> Result<Self, ParseError> {
        const IS_CODE: u32 = 0x20;
        let mut fields = ByteCursor::new(header, 8);
        let memory_bytes = u64::from(fields.u32()?);
        let address = fields.u32()?;
        let file_bytes = u64::from(fields.u32()?);
        let file_start = u64::from(fields.u32()?);
        let (start, bytes) = match layout {
            Layout::File => (file_start, file_bytes),
            Layout::Loaded => (u64::from(address), memory_bytes),
        };
        fields.skip(12);
        let is_code = fields.u32()? & IS_CODE != 0;
        Ok(Self { address, file: ByteRange { start, end: start + bytes }, is_code })
    }
}

/// The data directories of exports and of the managed header; empty where the file has none.
#[derive(Default)]
struct Directories {
    exports: Directory,
    managed: Directory,
}

impl Directories {
    fn read(image: &mut PagedImage, optional: ByteRange) -> Result<Self, ParseError> {
        const PE32_PLUS: u16 = 0x20b;
        const MANAGED: usize = 14;
        let header = image.read_up_to(optional, OPTIONAL_HEADER_BYTES)?;
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
