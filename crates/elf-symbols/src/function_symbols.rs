//! The functions of the symbol tables, with their names as they are stored.

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;

use crate::{elf::Elf, header::LE};

/// The largest symbol table, and the largest table of names.
const MAX_TABLE_BYTES: u64 = 256 << 20;

impl Elf {
    /// Calls `found` with the address and the stored name of each function that `.symtab`, and then `.dynsym`, define.
    ///
    /// # Errors
    /// When a symbol table is malformed or larger than 256 MiB.
    pub fn for_each_function(&self, mut found: impl FnMut(ElfAddress, &[u8])) -> Result<(), ParseError> {
        let sections = self.sections()?;
        for table_type in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Some(table) = sections.find_type(table_type).filter(|section| section.is_stored()) else {
                continue;
            };
            let strings = sections.get(table.header().sh_link.get(LE)).ok_or(ParseError::Malformed)?;
            let strings = strings.read(self.image(), MAX_TABLE_BYTES)?;
            let symbols = table.read(self.image(), MAX_TABLE_BYTES)?;
            let count = symbols.len() / size_of::<Sym64<LittleEndian>>();
            let (symbols, _) = pod::slice_from_bytes::<Sym64<LittleEndian>>(&symbols, count)
                .map_err(|()| ParseError::Malformed)?;
            let functions = symbols.iter().filter(|symbol| {
                symbol.st_type() == elf::STT_FUNC && symbol.st_shndx.get(LE) != elf::SHN_UNDEF
            });
            for symbol in functions {
                let name = strings.get(symbol.st_name.get(LE) as usize..).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                found(ElfAddress(symbol.st_value.get(LE)), name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, function};

    #[test]
    fn functions_of_both_symbol_tables_have_their_names() {
        let file = TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("main", 0x1000, 9)]);
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        let mut found = Vec::new();
        elf.for_each_function(|address, name| found.push((address.0, name.to_vec()))).unwrap();
        assert_eq!(found, [(0x1000, b"main".to_vec())]);
    }
}
