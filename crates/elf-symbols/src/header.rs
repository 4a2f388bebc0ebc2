//! The ELF file header, and the program and section headers.

use object::{
    LittleEndian,
    elf::{self, FileHeader64, ProgramHeader64, SectionHeader64},
    pod::{self, Pod},
};

use profiler_binary_reader::{Image, ParseError};

use crate::machine::Machine;

pub(crate) type ProgramHeader = ProgramHeader64<LittleEndian>;
pub(crate) type SectionHeader = SectionHeader64<LittleEndian>;

pub(crate) const LE: LittleEndian = LittleEndian;

/// More program headers than any linker writes.
const MAX_PROGRAM_HEADERS: u64 = 1024;

/// More section headers than any linker writes into a program or a shared object.
const MAX_SECTION_HEADERS: u64 = 1 << 16;

/// The fields of the file header that locate the other headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) machine: Machine,
    /// Whether the file can be loaded at any address (`ET_DYN`).
    pub(crate) is_position_independent: bool,
    /// The address of the entry point, 0 without one.
    pub(crate) entry: u64,
    program_offset: u64,
    program_count: u64,
    section_offset: u64,
    section_count: u64,
    /// The index of the section with the section names.
    pub(crate) section_names: u32,
}

impl Header {
    pub(crate) fn read(image: &Image) -> Result<Self, ParseError> {
        let header: FileHeader64<LittleEndian> = read_record(image, 0).map_err(|_| ParseError::NotElf)?;
        let ident = &header.e_ident;
        let machine = Machine::HOST;
        let is_supported = ident.magic == elf::ELFMAG
            && ident.class == elf::ELFCLASS64
            && ident.data == elf::ELFDATA2LSB
            && header.e_machine.get(LE) == machine.elf_value();
        if !is_supported {
            return Err(ParseError::NotElf);
        }
        let mut found = Self {
            machine,
            is_position_independent: header.e_type.get(LE) == elf::ET_DYN,
            entry: header.e_entry.get(LE),
            program_offset: header.e_phoff.get(LE),
            program_count: header.e_phnum.get(LE).into(),
            section_offset: header.e_shoff.get(LE),
            section_count: header.e_shnum.get(LE).into(),
            section_names: header.e_shstrndx.get(LE).0.into(),
        };
        if found.section_offset == 0 {
            found.section_count = 0;
        } else {
            found.apply_extensions(image)?;
        }
        found.check_entry_sizes(header.e_phentsize.get(LE).into(), header.e_shentsize.get(LE).into())
    }

    /// Replaces counts that do not fit into their fields by those in the first section header (System V gABI, chapters
    /// "ELF Header" and "Sections").
    fn apply_extensions(&mut self, image: &Image) -> Result<(), ParseError> {
        let overflows = self.section_count == 0
            || self.section_names == u32::from(elf::SHN_XINDEX.0)
            || self.program_count == u64::from(elf::PN_XNUM);
        if !overflows {
            return Ok(());
        }
        let first: SectionHeader = read_record(image, self.section_offset)?;
        if self.section_count == 0 {
            self.section_count = first.sh_size.get(LE);
        }
        if self.section_names == u32::from(elf::SHN_XINDEX.0) {
            self.section_names = first.sh_link.get(LE);
        }
        if self.program_count == u64::from(elf::PN_XNUM) {
            self.program_count = first.sh_info.get(LE).into();
        }
        Ok(())
    }

    fn check_entry_sizes(self, program: usize, section: usize) -> Result<Self, ParseError> {
        let is_program_size_valid = self.program_count == 0 || program == size_of::<ProgramHeader>();
        let is_section_size_valid = self.section_count == 0 || section == size_of::<SectionHeader>();
        if is_program_size_valid && is_section_size_valid { Ok(self) } else { Err(ParseError::Malformed) }
    }

    pub(crate) fn program_headers(&self, image: &Image) -> Result<Vec<ProgramHeader>, ParseError> {
        read_table(image, self.program_offset, self.program_count, MAX_PROGRAM_HEADERS)
    }

    pub(crate) fn section_headers(&self, image: &Image) -> Result<Vec<SectionHeader>, ParseError> {
        read_table(image, self.section_offset, self.section_count, MAX_SECTION_HEADERS)
    }
}

fn read_table<T: Pod>(image: &Image, offset: u64, count: u64, limit: u64) -> Result<Vec<T>, ParseError> {
    if count > limit {
        return Err(ParseError::TooLarge);
    }
    let bytes = image.read(offset, count * size_of::<T>() as u64, u64::MAX)?;
    pod::slice_from_all_bytes(&bytes).map(<[T]>::to_vec).map_err(|()| ParseError::Malformed)
}

/// Reads a record of fixed layout.
fn read_record<T: Pod>(image: &Image, offset: u64) -> Result<T, ParseError> {
    let bytes = image.read(offset, size_of::<T>() as u64, u64::MAX)?;
    pod::from_bytes::<T>(&bytes).map(|(record, _)| *record).map_err(|_| ParseError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    fn read(bytes: Vec<u8>) -> Result<Header, ParseError> {
        Header::read(&Image::Memory(bytes))
    }

    #[test]
    fn only_files_of_this_machine_are_accepted() {
        let bytes = TestFile::typical().bytes();
        assert!(read(bytes.clone()).is_ok());
        for (offset, field) in [(0, "magic"), (4, "class"), (5, "byte order"), (18, "machine")] {
            let mut changed = bytes.clone();
            changed[offset] ^= 3;
            assert_eq!(read(changed).unwrap_err(), ParseError::NotElf, "{field}");
        }
        assert_eq!(read(Vec::new()).unwrap_err(), ParseError::NotElf);
        assert_eq!(read(b"#!/bin/sh".to_vec()).unwrap_err(), ParseError::NotElf);
    }

    #[test]
    fn a_table_of_four_billion_sections_allocates_nothing() {
        let mut bytes = TestFile::typical().bytes();
        let sections = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap());
        bytes[0x3c..0x3e].fill(0);
        let size = usize::try_from(sections).unwrap() + 0x20;
        bytes[size..size + 8].copy_from_slice(&(1_u64 << 32).to_le_bytes());
        let image = Image::Memory(bytes);
        let header = Header::read(&image).unwrap();
        assert_eq!(header.section_headers(&image).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn header_tables_beyond_the_end_of_the_file_are_malformed() {
        let mut bytes = TestFile::typical().bytes();
        bytes[0x20..0x28].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
        let image = Image::Memory(bytes);
        assert_eq!(Header::read(&image).unwrap().program_headers(&image).unwrap_err(), ParseError::Malformed);
    }
}
