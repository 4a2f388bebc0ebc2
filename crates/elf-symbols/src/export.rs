//! Exported symbol names (`.dynsym`), to identify a library by what it exports.

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;

use crate::{elf::Elf, gnu_hash::GnuHashTable, header::LE};

/// The largest symbol or string table that is read. Those of the largest libraries have a megabyte.
const MAX_TABLE_BYTES: u64 = 16 << 20;

impl Elf {
    /// Returns the names among `wanted` that the file exports.
    ///
    /// # Errors
    /// When the dynamic symbol table is malformed.
    pub fn find_exports<'n>(&self, wanted: &[&'n str]) -> Result<Vec<&'n str>, ParseError> {
        let mut wanted = wanted.to_vec();
        let addresses = self.exported_addresses(&wanted)?;
        let mut is_exported = addresses.iter().map(Option::is_some);
        wanted.retain(|_| is_exported.next().unwrap_or(false));
        Ok(wanted)
    }

    /// Returns the address of each exported symbol of these names; `None` where the file does not export it.
    ///
    /// # Errors
    /// When the dynamic symbol table is malformed.
    pub fn find_exported_addresses<const N: usize>(
        &self,
        wanted: [&str; N],
    ) -> Result<[Option<ElfAddress>; N], ParseError> {
        let found = self.exported_addresses(&wanted)?;
        Ok(std::array::from_fn(|index| found.get(index).copied().flatten()))
    }

    fn exported_addresses(&self, wanted: &[&str]) -> Result<Vec<Option<ElfAddress>>, ParseError> {
        let mut found = vec![None; wanted.len()];
        let sections = self.sections()?;
        let Some(table) = sections.find_type(elf::SHT_DYNSYM).filter(|section| section.is_stored()) else {
            return Ok(found);
        };
        if let Some(hashes) = GnuHashTable::read(self.image(), &sections)? {
            // Most files export none of them. The tables of a large library have megabytes.
            if !wanted.iter().any(|name| hashes.contains_hash_of(name).unwrap_or(true)) {
                return Ok(found);
            }
        }
        let strings = sections.get(table.header().sh_link.get(LE)).ok_or(ParseError::Malformed)?;
        let strings = strings.read(self.image(), MAX_TABLE_BYTES)?;
        let symbols = table.read(self.image(), MAX_TABLE_BYTES)?;
        let (symbols, _) = pod::slice_from_bytes::<Sym64<LittleEndian>>(
            &symbols,
            symbols.len() / size_of::<Sym64<LittleEndian>>(),
        )
        .map_err(|()| ParseError::Malformed)?;
        let defined = symbols.iter().filter(|symbol| symbol.st_shndx.get(LE) != elf::SHN_UNDEF);
        let is_name = |tail: &[u8], name: &str| {
            tail.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        for symbol in defined {
            let Some(tail) = strings.get(symbol.st_name.get(LE) as usize..) else { continue };
            if let Some(index) = wanted.iter().position(|name| is_name(tail, name)) {
                found[index].get_or_insert(ElfAddress(symbol.st_value.get(LE)));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, function};

    fn find_exports<'n>(file: TestFile, wanted: &[&'n str]) -> Result<Vec<&'n str>, ParseError> {
        Elf::parse(Image::Memory(file.bytes())).unwrap().find_exports(wanted)
    }

    #[test]
    fn only_whole_names_in_the_dynamic_table_are_exports() {
        let symbols = [function("runtime_start", 0x1000, 8), function("other", 0x1010, 8)];
        let file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &symbols);
        let wanted = ["other", "runtime", "runtime_start", "runtime_started"];
        assert_eq!(find_exports(file.clone(), &wanted), Ok(vec!["other", "runtime_start"]));
        let elf = Elf::parse(Image::Memory(file.bytes())).unwrap();
        let addresses = elf.find_exported_addresses(["other", "runtime", "runtime_start"]);
        assert_eq!(addresses, Ok([Some(ElfAddress(0x1010)), None, Some(ElfAddress(0x1000))]));
        let own = TestFile::with_code().symbols(elf::SHT_SYMTAB, &symbols);
        assert_eq!(find_exports(own, &wanted), Ok(Vec::new()));
    }

    #[test]
    fn a_table_with_a_wrong_size_is_malformed() {
        let symbols = [function("runtime_start", 0x1000, 8)];
        let mut file = TestFile::with_code().symbols(elf::SHT_DYNSYM, &symbols);
        file.set_section_size(3, 1 << 20);
        assert_eq!(find_exports(file, &["runtime_start"]), Err(ParseError::Malformed));
    }
}
