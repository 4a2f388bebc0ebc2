//! Exported symbol names (`.dynsym`), to identify a library by what it exports.

use object::{
    LittleEndian,
    elf::{self, Sym64},
    pod,
};

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
        let sections = self.sections()?;
        let Some(table) = sections.find_type(elf::SHT_DYNSYM).filter(|section| section.is_stored()) else {
            return Ok(Vec::new());
        };
        let mut wanted = wanted.to_vec();
        if let Some(hashes) = GnuHashTable::read(self.image(), &sections)? {
            // Most files export none of them. The tables of a large library have megabytes.
            wanted.retain(|name| hashes.contains_hash_of(name).unwrap_or(true));
            if wanted.is_empty() {
                return Ok(wanted);
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
        let names: Vec<_> =
            defined.filter_map(|symbol| strings.get(symbol.st_name.get(LE) as usize..)).collect();
        let is_name = |tail: &[u8], name: &str| {
            tail.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        let is_exported = |name: &&str| names.iter().any(|tail| is_name(tail, name));
        wanted.retain(is_exported);
        Ok(wanted)
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
        assert_eq!(find_exports(file, &wanted), Ok(vec!["other", "runtime_start"]));
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
