//! Relative relocations: the words of a file that hold addresses within the file.
//!
//! The dynamic section locates them, as it does for the dynamic linker. Section headers can be stripped.

use std::sync::Arc;

use object::{
    LittleEndian,
    elf::{self, Dyn64, Rela64},
    pod::{self, Pod},
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{LoadedImage, ParseError, RelativeRelocation, WorkBudget};

use crate::{elf::Elf, header::LE, machine::Machine};

/// The number of relative relocations that are read. The runtime of .NET has 26,000.
const MAX_RELOCATIONS: usize = 128 << 10;

/// The size of the dynamic section. Those of real files have less than a kilobyte.
const MAX_DYNAMIC_BYTES: u64 = 64 << 10;

/// Records of `DT_RELA` that are read at once.
const RECORDS_PER_READ: u64 = 4 << 10;

type Rela = Rela64<LittleEndian>;

/// A table in memory: address and size.
#[derive(Clone, Copy, Default)]
struct Table {
    address: ElfAddress,
    bytes: u64,
}

/// The relocation tables that the dynamic section locates.
#[derive(Default)]
struct RelocationTables {
    /// `DT_RELA`: records with an addend.
    rela: Table,
    /// `DT_RELR`: compressed relative relocations, whose addends are in the places.
    relr: Table,
}

impl Elf {
    /// Reads the relative relocations, sorted by place; empty when the file has no dynamic section. Reads of addends take
    /// work from `budget`.
    ///
    /// # Errors
    /// When the dynamic section or a relocation table is malformed, or there are too many relocations.
    pub fn relative_relocations(
        &self,
        budget: &Arc<WorkBudget>,
    ) -> Result<Vec<RelativeRelocation>, ParseError> {
        let tables = self.relocation_tables()?;
        let mut relocations = Vec::new();
        self.read_rela(tables.rela, &mut relocations)?;
        if tables.relr.bytes > 0 {
            self.read_relr(tables.relr, &mut self.loaded_image(Arc::clone(budget))?, &mut relocations)?;
        }
        relocations.sort_unstable();
        Ok(relocations)
    }

    /// The file as an image that is read by address.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when the file is too large.
    pub fn loaded_image(&self, budget: Arc<WorkBudget>) -> Result<LoadedImage, ParseError> {
        LoadedImage::new(self.image().part(0, self.image().length())?, self.layout(), budget)
    }

    fn relocation_tables(&self) -> Result<RelocationTables, ParseError> {
        let mut tables = RelocationTables::default();
        let Some(dynamic) = self.dynamic_section() else { return Ok(tables) };
        let bytes = self.image().read(dynamic.offset.0, dynamic.file_bytes, MAX_DYNAMIC_BYTES)?;
        for entry in records::<Dyn64<LittleEndian>>(&bytes)? {
            let value = entry.d_val.get(LE);
            match entry.d_tag.get(LE) {
                elf::DT_NULL => break,
                elf::DT_RELA => tables.rela.address = ElfAddress(value),
                elf::DT_RELASZ => tables.rela.bytes = value,
                elf::DT_RELR => tables.relr.address = ElfAddress(value),
                elf::DT_RELRSZ => tables.relr.bytes = value,
                _ => {}
            }
        }
        Ok(tables)
    }

    fn read_rela(&self, table: Table, found: &mut Vec<RelativeRelocation>) -> Result<(), ParseError> {
        const RECORD_BYTES: u64 = size_of::<Rela>() as u64;
        let relative = match self.machine() {
            Machine::X86_64 => elf::R_X86_64_RELATIVE.0,
            Machine::Aarch64 => elf::R_AARCH64_RELATIVE.0,
        };
        if table.bytes > MAX_RELOCATIONS as u64 * RECORD_BYTES {
            return Err(ParseError::TooLarge);
        }
        let mut offset = self.file_offset(table)?;
        let mut left_bytes = table.bytes - table.bytes % RECORD_BYTES;
        while left_bytes > 0 {
            let bytes = left_bytes.min(RECORDS_PER_READ * RECORD_BYTES);
            for record in records::<Rela>(&self.image().read(offset, bytes, bytes)?)? {
                // The symbol index is in the upper half, and 0 for relative relocations.
                if record.r_info.get(LE) == u64::from(relative) {
                    let target = ElfAddress(record.r_addend.get(LE).cast_unsigned());
                    found.push(RelativeRelocation { place: ElfAddress(record.r_offset.get(LE)), target });
                }
            }
            offset += bytes;
            left_bytes -= bytes;
        }
        Ok(())
    }

    /// An even word is the address of a place. The bits of an odd word, but the lowest, are the 63 words behind the
    /// last place (gABI, "Relocation", `SHT_RELR`).
    fn read_relr(
        &self,
        table: Table,
        memory: &mut LoadedImage,
        found: &mut Vec<RelativeRelocation>,
    ) -> Result<(), ParseError> {
        const WORD_BYTES: u64 = 8;
        const PLACES_PER_BITMAP: u64 = 63;
        let limit_bytes = MAX_RELOCATIONS as u64 * WORD_BYTES;
        let bytes = self.image().read(self.file_offset(table)?, table.bytes, limit_bytes)?;
        let mut next = 0_u64;
        for word in bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)) {
            let (base, places) = if word & 1 == 0 { (word, 1) } else { (next, word >> 1) };
            let count = if word & 1 == 0 { 1 } else { PLACES_PER_BITMAP };
            for index in (0..count).filter(|index| places >> index & 1 == 1) {
                if found.len() >= MAX_RELOCATIONS {
                    return Err(ParseError::TooLarge);
                }
                let place = ElfAddress(base.wrapping_add(index * WORD_BYTES));
                found.push(RelativeRelocation { place, target: ElfAddress(memory.read_u64(place)?) });
            }
            next = base.wrapping_add(count * WORD_BYTES);
        }
        Ok(())
    }

    /// The offset of a table in the file. The whole table must be in one segment.
    fn file_offset(&self, table: Table) -> Result<u64, ParseError> {
        if table.bytes == 0 {
            return Ok(0);
        }
        let found = self.segments().iter().find_map(|segment| segment.rest_from(table.address));
        let (offset, rest) = found.ok_or(ParseError::Malformed)?;
        if rest < table.bytes { Err(ParseError::Malformed) } else { Ok(offset.0) }
    }
}

/// The whole records at the start of a table.
fn records<T: Pod>(bytes: &[u8]) -> Result<&[T], ParseError> {
    let (records, _) =
        pod::slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_err(|()| ParseError::Malformed)?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::TestFile;

    /// The address of the segment with the tables and the relocated words.
    const DATA: u64 = 0x2000;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn relative(place: u64, target: u64) -> [u64; 3] {
        let kind = match Machine::HOST {
            Machine::X86_64 => elf::R_X86_64_RELATIVE.0,
            Machine::Aarch64 => elf::R_AARCH64_RELATIVE.0,
        };
        [place, kind.into(), target]
    }

    /// A file with this data at [`DATA`] and a dynamic section with these tags and values.
    fn file(data: Vec<u8>, dynamic: &[(elf::DynamicTag, u64)]) -> Vec<u8> {
        let dynamic: Vec<_> =
            dynamic.iter().flat_map(|(tag, value)| [tag.0.cast_unsigned(), *value]).collect();
        let file = TestFile::with_code().data_at(DATA, data);
        let file = file.with(".dynamic", SHT_PROGBITS, words(&dynamic));
        file.segment_of_section(elf::PT_DYNAMIC).bytes()
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<(u64, u64)>, ParseError> {
        let elf = Elf::parse(Image::Memory(bytes)).unwrap();
        let found = elf.relative_relocations(&Arc::default())?;
        Ok(found.iter().map(|relocation| (relocation.place.0, relocation.target.0)).collect())
    }

    #[test]
    fn relative_relocations_with_addends_are_sorted_by_place() {
        let symbolic = [0x3000, 1 << 32 | 6, 0];
        let records = [relative(0x3010, 0x1000), symbolic, relative(0x3008, 0x1040)].concat();
        let dynamic = [(elf::DT_RELA, DATA), (elf::DT_RELASZ, 72), (elf::DT_NULL, 0), (elf::DT_RELASZ, 24)];
        assert_eq!(read(file(words(&records), &dynamic)), Ok(vec![(0x3008, 0x1040), (0x3010, 0x1000)]));
    }

    #[test]
    fn compressed_relocations_have_their_addends_in_the_places() {
        // The place of the first word, then a bitmap: the first and the third word behind it.
        let table = [DATA + 16, 0b1011];
        let data = words(&[table[0], table[1], 0x1000, 0x1010, 0x1020, 0x1030]);
        let dynamic = [(elf::DT_RELR, DATA), (elf::DT_RELRSZ, 16)];
        let expected = vec![(DATA + 16, 0x1000), (DATA + 24, 0x1010), (DATA + 40, 0x1030)];
        assert_eq!(read(file(data, &dynamic)), Ok(expected));
    }

    #[test]
    fn a_file_without_a_dynamic_section_has_no_relocations() {
        assert_eq!(read(TestFile::typical().bytes()), Ok(Vec::new()));
        assert_eq!(read(file(words(&[0; 3]), &[])), Ok(Vec::new()));
    }

    #[test]
    fn tables_outside_of_the_segments_and_too_many_relocations_are_errors() {
        let data = || words(&[0; 6]);
        for (dynamic, expected) in [
            ([(elf::DT_RELA, DATA + 40), (elf::DT_RELASZ, 24)], ParseError::Malformed),
            ([(elf::DT_RELA, u64::MAX), (elf::DT_RELASZ, 24)], ParseError::Malformed),
            ([(elf::DT_RELA, DATA), (elf::DT_RELASZ, u64::MAX)], ParseError::TooLarge),
            ([(elf::DT_RELR, DATA), (elf::DT_RELRSZ, 1 << 40)], ParseError::Malformed),
        ] {
            assert_eq!(read(file(data(), &dynamic)), Err(expected), "{dynamic:?}");
        }
        let place_outside = words(&[0x10, u64::MAX]);
        let dynamic = [(elf::DT_RELR, DATA), (elf::DT_RELRSZ, 16)];
        assert_eq!(read(file(place_outside, &dynamic)), Err(ParseError::Malformed));
    }

    #[test]
    fn relocations_of_the_running_program_hold_addresses_of_its_segments() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(Image::from_file(file).unwrap()).unwrap();
        let found = elf.relative_relocations(&Arc::default()).unwrap();
        assert!(found.len() > 100, "{}", found.len());
        let layout = elf.layout();
        let is_loaded = |address| layout.rest_from(address).is_some();
        // A pointer to the end of a section, or to memory that is zero at first, is in none of the file's bytes.
        let loaded = found.iter().filter(|relocation| is_loaded(relocation.target)).count();
        assert!(loaded * 10 > found.len() * 9, "{loaded} of {}", found.len());
    }
}
