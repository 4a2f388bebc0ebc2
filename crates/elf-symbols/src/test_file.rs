//! A builder of ELF files in memory, valid and invalid, for tests.

use std::{io::Write, sync::Arc};

use object::{
    LittleEndian, U16, U32, U64,
    elf::{
        self, FileHeader64, Ident, ProgramHeader64, ProgramType, SectionFlags, SectionHeader64, SectionType,
        Sym64, SymbolInfo,
    },
    pod::bytes_of,
};

use profiler_addresses::{FileOffset, RuntimeAddress};

use crate::{header::LE, machine::Machine};

/// The address of `.text`.
pub const TEXT_ADDRESS: u64 = 0x1000;
const TEXT_BYTES: u64 = 0x1000;

const FUNCTION: SymbolInfo = SymbolInfo(elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0);

/// A builder of an ELF file.
#[derive(Clone, Default)]
pub struct TestFile {
    sections: Vec<(SectionHeader64<LittleEndian>, Vec<u8>)>,
    segments: Vec<ProgramHeader64<LittleEndian>>,
    section_names: Vec<u8>,
    /// Indexes of sections, and the sizes that their headers state instead of the real ones.
    stated_sizes: Vec<(usize, u64)>,
    /// The types of segments that contain a section, the indexes of the segments, the indexes of the sections.
    section_segments: Vec<(ProgramType, usize, usize)>,
    /// How the section with the names of sections is compressed.
    compress_names: Option<(elf::CompressionType, Compress)>,
}

type Compress = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// A symbol: name, address, size, type and binding.
pub struct TestSymbol(pub &'static str, pub u64, pub u64, pub SymbolInfo);

/// A global function.
pub fn function(name: &'static str, address: u64, size: u64) -> TestSymbol {
    TestSymbol(name, address, size, FUNCTION)
}

impl TestFile {
    /// A file with one code section and nothing else.
    pub fn with_code() -> Self {
        let mut file = Self::default();
        file.section("", elf::SHT_NULL, Vec::new());
        file.section(".text", elf::SHT_NOBITS, Vec::new());
        let text = &mut file.sections[1].0;
        text.sh_flags = U64::new(LE, elf::SHF_ALLOC | elf::SHF_EXECINSTR);
        text.sh_addr = U64::new(LE, TEXT_ADDRESS);
        text.sh_size = U64::new(LE, TEXT_BYTES);
        file
    }

    /// A file with a segment, a build id, both symbol tables and debug links.
    pub fn typical() -> Self {
        let mut link = b"typical.dbg\0".to_vec();
        link.extend([1, 2, 3, 4]);
        let mut alternate = b"../common.debug\0".to_vec();
        alternate.extend([9; 20]);
        Self::with_code()
            .code_segment(0, 0x1000, 0x1000)
            .build_id(&[0xab; 20])
            .symbols(elf::SHT_SYMTAB, &[function("main", 0x1000, 0x20), function("__main", 0x1000, 0x20)])
            .symbols(elf::SHT_DYNSYM, &[function("exported", 0x1040, 0x10)])
            .with(".gnu_debuglink", elf::SHT_PROGBITS, link)
            .with(".gnu_debugaltlink", elf::SHT_PROGBITS, alternate)
            .with(".gnu_debugdata", elf::SHT_PROGBITS, b"no xz".to_vec())
    }

    /// Adds a section.
    pub fn with(mut self, name: &str, kind: SectionType, contents: Vec<u8>) -> Self {
        self.section(name, kind, contents);
        self
    }

    /// Adds a compressed section (`SHF_COMPRESSED`).
    pub fn compressed(mut self, name: &str, kind: elf::CompressionType, size: u64, data: &[u8]) -> Self {
        self.section(name, elf::SHT_PROGBITS, compressed(kind, size, data));
        if let Some((header, _)) = self.sections.last_mut() {
            header.sh_flags = U64::new(LE, elf::SHF_COMPRESSED);
        }
        self
    }

    /// Compresses a section (`SHF_COMPRESSED`).
    pub fn compress(
        mut self,
        index: usize,
        kind: elf::CompressionType,
        compress: impl Fn(&[u8]) -> Vec<u8>,
    ) -> Self {
        let (header, contents) = &mut self.sections[index];
        *contents = compressed(kind, contents.len() as u64, &compress(contents));
        header.sh_size = U64::new(LE, contents.len() as u64);
        header.sh_flags = U64::new(LE, elf::SHF_COMPRESSED);
        self
    }

    /// Compresses the section with the names of sections.
    pub fn compress_names(
        mut self,
        kind: elf::CompressionType,
        compress: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.compress_names = Some((kind, Arc::new(compress)));
        self
    }

    /// Changes the flags of a section.
    pub fn section_flags(mut self, index: usize, flags: SectionFlags) -> Self {
        self.sections[index].0.sh_flags = U64::new(LE, flags);
        self
    }

    /// Adds a code segment.
    pub fn code_segment(mut self, offset: u64, address: u64, bytes: u64) -> Self {
        self.segments.push(ProgramHeader64 {
            p_type: U32::new(LE, elf::PT_LOAD),
            p_flags: U32::new(LE, elf::PF_R | elf::PF_X),
            p_offset: U64::new(LE, offset),
            p_vaddr: U64::new(LE, address),
            p_paddr: U64::new(LE, address),
            p_filesz: U64::new(LE, bytes),
            p_memsz: U64::new(LE, bytes),
            p_align: U64::new(LE, 0x1000),
        });
        self
    }

    /// Adds a note section with a build id.
    pub fn build_id(self, id: &[u8]) -> Self {
        self.with(".note.gnu.build-id", elf::SHT_NOTE, note(b"GNU\0", elf::NT_GNU_BUILD_ID.0, id))
    }

    /// Adds a note segment that contains the last section.
    pub fn note_segment(self) -> Self {
        self.segment_of_section(elf::PT_NOTE)
    }

    /// Adds a segment that contains the last section.
    pub fn segment_of_section(self, kind: ProgramType) -> Self {
        let section = self.sections.len() - 1;
        let mut file = self.code_segment(0, 0, 0);
        file.section_segments.push((kind, file.segments.len() - 1, section));
        file
    }

    /// Adds a writable segment with this content.
    pub fn variables(self, contents: Vec<u8>) -> Self {
        self.data_at(0, contents)
    }

    /// Adds a writable segment with this address and content.
    pub fn data_at(self, address: u64, contents: Vec<u8>) -> Self {
        let mut file = self.with(".data", elf::SHT_PROGBITS, contents).segment_of_section(elf::PT_LOAD);
        if let Some(segment) = file.segments.last_mut() {
            segment.p_flags = U32::new(LE, elf::PF_R | elf::PF_W);
            segment.p_vaddr = U64::new(LE, address);
        }
        file
    }

    /// Adds a section of code with this address and content, and a segment that contains it.
    pub fn code_at(self, name: &str, address: u64, contents: Vec<u8>) -> Self {
        let bytes = U64::new(LE, contents.len() as u64);
        let mut file = self.with(name, elf::SHT_PROGBITS, contents).section_address(address);
        if let Some((header, _)) = file.sections.last_mut() {
            header.sh_flags = U64::new(LE, elf::SHF_ALLOC | elf::SHF_EXECINSTR);
        }
        file = file.segment_of_section(elf::PT_LOAD);
        if let Some(segment) = file.segments.last_mut() {
            (segment.p_vaddr, segment.p_memsz) = (U64::new(LE, address), bytes);
        }
        file
    }

    /// Changes the type of a section.
    pub fn section_type(mut self, index: usize, kind: SectionType) -> Self {
        self.sections[index].0.sh_type = U32::new(LE, kind);
        self
    }

    /// Changes the address of the last section.
    pub fn section_address(mut self, address: u64) -> Self {
        if let Some((header, _)) = self.sections.last_mut() {
            header.sh_addr = U64::new(LE, address);
        }
        self
    }

    /// Adds a symbol table and its string table.
    pub fn symbols(mut self, kind: SectionType, symbols: &[TestSymbol]) -> Self {
        let mut names = vec![0];
        let mut table = vec![0; size_of::<Sym64<LittleEndian>>()];
        for TestSymbol(name, address, size, info) in symbols {
            let symbol = Sym64 {
                st_name: U32::new(LE, u32::try_from(names.len()).unwrap()),
                st_info: *info,
                st_other: elf::SymbolOther(0),
                st_shndx: U16::new(LE, elf::SymbolSection(1)),
                st_value: U64::new(LE, *address),
                st_size: U64::new(LE, *size),
            };
            table.extend(bytes_of(&symbol));
            names.extend(name.as_bytes());
            names.push(0);
        }
        self.section(".names", elf::SHT_STRTAB, names);
        let link = u32::try_from(self.sections.len() - 1).unwrap();
        self.section(".symbols", kind, table);
        if let Some((header, _)) = self.sections.last_mut() {
            header.sh_link = U32::new(LE, link);
            header.sh_entsize = U64::new(LE, size_of::<Sym64<LittleEndian>>() as u64);
        }
        self
    }

    /// Makes the header of a section state another size.
    pub fn set_section_size(&mut self, index: usize, bytes: u64) {
        self.stated_sizes.push((index, bytes));
    }

    fn section(&mut self, name: &str, kind: SectionType, contents: Vec<u8>) {
        let header = SectionHeader64 {
            sh_name: U32::new(LE, u32::try_from(self.section_names.len()).unwrap()),
            sh_type: U32::new(LE, kind),
            sh_flags: U64::new(LE, SectionFlags(0)),
            sh_addr: U64::new(LE, 0),
            sh_offset: U64::new(LE, 0),
            sh_size: U64::new(LE, contents.len() as u64),
            sh_link: U32::new(LE, 0),
            sh_info: U32::new(LE, 0),
            sh_addralign: U64::new(LE, 4),
            sh_entsize: U64::new(LE, 0),
        };
        self.section_names.extend(name.as_bytes());
        self.section_names.push(0);
        self.sections.push((header, contents));
    }

    /// Builds the file: file header, program headers, section headers, contents.
    pub fn bytes(mut self) -> Vec<u8> {
        self.section(".shstrtab", elf::SHT_STRTAB, Vec::new());
        let names = std::mem::take(&mut self.section_names);
        if let Some((header, contents)) = self.sections.last_mut() {
            header.sh_size = U64::new(LE, names.len() as u64);
            *contents = names;
        }
        if let Some((kind, compress)) = self.compress_names.take() {
            let index = self.sections.len() - 1;
            self = self.compress(index, kind, move |bytes| compress(bytes));
        }
        let program_offset = size_of::<FileHeader64<LittleEndian>>();
        let section_offset =
            program_offset + self.segments.len() * size_of::<ProgramHeader64<LittleEndian>>();
        let mut offset = section_offset + self.sections.len() * size_of::<SectionHeader64<LittleEndian>>();
        for (header, contents) in &mut self.sections {
            header.sh_offset = U64::new(LE, offset as u64);
            offset += contents.len();
        }
        for (index, bytes) in std::mem::take(&mut self.stated_sizes) {
            self.sections[index].0.sh_size = U64::new(LE, bytes);
        }
        for &(kind, segment, section) in &self.section_segments {
            let (segment, section) = (&mut self.segments[segment], &self.sections[section].0);
            segment.p_type = U32::new(LE, kind);
            segment.p_offset = section.sh_offset;
            segment.p_filesz = section.sh_size;
            segment.p_align = U64::new(LE, 4);
        }
        let mut bytes = bytes_of(&self.header(program_offset as u64, section_offset as u64)).to_vec();
        bytes.extend(self.segments.iter().flat_map(bytes_of));
        bytes.extend(self.sections.iter().flat_map(|(header, _)| bytes_of(header)));
        bytes.extend(self.sections.iter().flat_map(|(_, contents)| contents));
        bytes
    }

    fn header(&self, program_offset: u64, section_offset: u64) -> FileHeader64<LittleEndian> {
        let count = |count: usize| U16::new(LE, u16::try_from(count).unwrap());
        FileHeader64 {
            e_ident: Ident {
                magic: elf::ELFMAG,
                class: elf::ELFCLASS64,
                data: elf::ELFDATA2LSB,
                version: elf::EV_CURRENT,
                os_abi: elf::ELFOSABI_NONE,
                abi_version: 0,
                padding: [0; 7],
            },
            e_type: U16::new(LE, elf::ET_DYN),
            e_machine: U16::new(LE, Machine::HOST.elf_value()),
            e_version: U32::new(LE, elf::EV_CURRENT.0.into()),
            e_entry: U64::new(LE, 0),
            e_phoff: U64::new(LE, program_offset),
            e_shoff: U64::new(LE, section_offset),
            e_flags: U32::new(LE, elf::FileFlags(0)),
            e_ehsize: count(size_of::<FileHeader64<LittleEndian>>()),
            e_phentsize: count(size_of::<ProgramHeader64<LittleEndian>>()),
            e_phnum: count(self.segments.len()),
            e_shentsize: count(size_of::<SectionHeader64<LittleEndian>>()),
            e_shnum: count(self.sections.len()),
            e_shstrndx: U16::new(LE, elf::SymbolSection(u16::try_from(self.sections.len() - 1).unwrap())),
        }
    }
}

/// Bytes behind the header of a compressed section that states their format and decompressed size.
fn compressed(kind: elf::CompressionType, size: u64, data: &[u8]) -> Vec<u8> {
    let header = elf::CompressionHeader64 {
        ch_type: U32::new(LE, kind),
        ch_reserved: U32::new(LE, 0),
        ch_size: U64::new(LE, size),
        ch_addralign: U64::new(LE, 1),
    };
    [bytes_of(&header), data].concat()
}

/// Bytes compressed by zlib.
pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes as one frame of zstd with raw blocks (RFC 8878, section 3.1.1).
pub fn zstandard(bytes: &[u8]) -> Vec<u8> {
    const MAX_BLOCK_BYTES: usize = 1 << 16;
    // A frame header with eight bytes of content size, and no window.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    frame.extend((bytes.len() as u64).to_le_bytes());
    let blocks = bytes.chunks(MAX_BLOCK_BYTES);
    let last = blocks.len() - 1;
    for (index, block) in blocks.enumerate() {
        let header = (block.len() as u32) << 3 | u32::from(index == last);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

/// The note of a static probe: the addresses of the probe, of `.stapsdt.base` and of the semaphore; provider, name and arguments,
/// each ended by a zero byte.
pub fn static_probe_note(addresses: [u64; 3], texts: &[u8]) -> Vec<u8> {
    const STATIC_PROBE: u32 = 3;
    note(b"stapsdt\0", STATIC_PROBE, &[addresses.map(u64::to_le_bytes).as_flattened(), texts].concat())
}

fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    note.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
    note.extend(u32::try_from(description.len()).unwrap().to_le_bytes());
    note.extend(kind.to_le_bytes());
    note.extend(name);
    note.extend(description);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// An `.eh_frame` with an FDE for each function, given by address and length.
pub fn eh_frame(functions: &[(u32, u32)]) -> Vec<u8> {
    // Version 1, augmentation `zR`, code alignment 1, data alignment -8, return address register 16, pointers
    // DW_EH_PE_udata4.
    let cie = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x03, 0, 0, 0];
    let mut section = eh_frame_entry(0, &cie);
    for (start, bytes) in functions {
        let cie_pointer = u32::try_from(section.len() + 4).unwrap();
        let function = [start.to_le_bytes(), bytes.to_le_bytes(), [0; 4]].concat();
        section.extend(eh_frame_entry(cie_pointer, &function));
    }
    section
}

fn eh_frame_entry(cie_pointer: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_le_bytes()[..], &cie_pointer.to_le_bytes(), body].concat()
}

/// The start and the file offset of the mapping that contains an address, from the text of `/proc/PID/maps`.
pub fn mapping_at(maps: &str, address: u64) -> Option<(RuntimeAddress, FileOffset)> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let range = hex(start)?..hex(end)?;
        range.contains(&address).then_some((RuntimeAddress(range.start), FileOffset(hex(offset)?)))
    })
}
