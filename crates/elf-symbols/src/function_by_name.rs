//! The place of a function in a file, by its name.

use profiler_addresses::{ElfAddress, FileOffset};
use profiler_binary_reader::ParseError;

use crate::elf::Elf;

impl Elf {
    /// Finds a function by the name that the symbol table stores, which can be mangled: in `.symtab`, else in `.dynsym`. An
    /// indirect function (`STT_GNU_IFUNC`) is not found: its symbol has the address of its resolver.
    ///
    /// # Errors
    /// When a symbol table is malformed or larger than 256 MiB.
    pub fn find_function(&self, name: &str) -> Result<Option<ElfAddress>, ParseError> {
        let mut found = None;
        self.for_each_function(|address, symbol| {
            if symbol == name.as_bytes() {
                found.get_or_insert(address);
            }
        })?;
        Ok(found)
    }

    /// The place in the file of an address in a code segment; `None` outside of all of them.
    pub fn code_offset(&self, address: ElfAddress) -> Option<FileOffset> {
        self.segments().iter().filter(|segment| segment.is_code).find_map(|segment| {
            let within = address.0.checked_sub(segment.address.0)?;
            (within < segment.file_bytes).then(|| FileOffset(segment.offset.0.wrapping_add(within)))
        })
    }
}

#[cfg(test)]
mod tests {
    use object::elf;
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, function};

    #[test]
    fn a_function_is_found_by_its_whole_name_in_either_table() {
        let symbols = [function("work_all", 0x1000, 8), function("work", 0x1010, 8)];
        for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let file = TestFile::with_code().symbols(table, &symbols);
            let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
            assert_eq!(elf.find_function("work"), Ok(Some(ElfAddress(0x1010))));
            assert_eq!(elf.find_function("wor"), Ok(None));
        }
    }

    #[test]
    fn the_offset_of_a_function_is_that_of_its_bytes() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(Image::from_file(file).unwrap()).unwrap();
        let main = elf.find_function("main").unwrap().unwrap();
        let offset = elf.code_offset(main).unwrap();
        let mut found = [0; 8];
        elf.image().read_into(offset.0, &mut found).unwrap();
        let range = elf.code_ranges().find(|range| range.contains(&main.0)).unwrap();
        assert!(range.end - main.0 >= 8 && found != [0; 8]);
        assert_eq!(elf.code_offset(ElfAddress(u64::MAX)), None);
    }
}
