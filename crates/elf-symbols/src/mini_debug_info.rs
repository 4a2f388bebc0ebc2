//! MiniDebugInfo: the xz-compressed ELF file in `.gnu_debugdata`, with the function symbols that `.dynsym` lacks.

use std::io::Read;

use lzma_rust2::XzReader;

use profiler_binary_reader::{Image, ParseError, WorkBudget};

use crate::{elf::Elf, section::Sections};

/// The largest section. That of a C++ runtime is below a tenth of this.
const MAX_COMPRESSED_BYTES: u64 = 16 << 20;

/// The largest decompressed file. That of a C++ runtime is below a tenth of this.
const MAX_DECOMPRESSED_BYTES: u64 = 64 << 20;

/// The largest xz dictionary: that of the highest preset.
const MAX_DICTIONARY_KIB: u32 = 65 << 10;

impl Elf {
    /// Decompresses and parses `.gnu_debugdata`; `None` when the file has no such section. What is decompressed is
    /// subtracted from the section bytes of the budget, whether it is of use or not.
    ///
    /// # Errors
    /// When the section is damaged or exceeds a limit or the budget.
    pub fn mini_debug_info(
        &self,
        sections: &Sections,
        budget: &WorkBudget,
    ) -> Result<Option<Self>, ParseError> {
        let Some(section) = sections.find(b".gnu_debugdata") else { return Ok(None) };
        let limit = budget.xz_bytes_left().min(MAX_DECOMPRESSED_BYTES);
        if limit == 0 {
            return Err(ParseError::TooLarge);
        }
        let compressed = section.read(self.image(), MAX_COMPRESSED_BYTES)?;
        let mut decompressed = Vec::new();
        let result = decompress(&compressed, limit, &mut decompressed);
        budget.spend_section_bytes(decompressed.len() as u64);
        result?;
        Self::parse(Image::Memory(decompressed)).map(Some)
    }
}

fn decompress(compressed: &[u8], limit: u64, decompressed: &mut Vec<u8>) -> Result<(), ParseError> {
    let reader = XzReader::new_mem_limit(compressed, false, MAX_DICTIONARY_KIB);
    reader.take(limit + 1).read_to_end(decompressed).map_err(|_| ParseError::Malformed)?;
    if decompressed.len() as u64 > limit { Err(ParseError::TooLarge) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};
    use object::elf;

    use profiler_addresses::ElfAddress;

    use super::*;
    use crate::{
        symbol_table::{SymbolTable, TableKind},
        test_file::{TestFile, function},
    };

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn the_symbols_of_the_inner_file_are_found() {
        let inner =
            TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("hidden", 0x1100, 0x10)]).bytes();
        let outer = TestFile::with_code().with(".gnu_debugdata", elf::SHT_PROGBITS, compress(&inner)).bytes();
        let outer = Elf::parse(Image::Memory(outer)).unwrap();
        let inner =
            outer.mini_debug_info(&outer.sections().unwrap(), &WorkBudget::default()).unwrap().unwrap();
        let table =
            SymbolTable::load(&inner, &inner.sections().unwrap(), TableKind::Static, &WorkBudget::default())
                .unwrap()
                .unwrap();
        assert_eq!(table.find(&inner, ElfAddress(0x1108)).unwrap().unwrap().name, b"hidden");
    }

    #[test]
    fn a_file_without_the_section_has_no_mini_debug_info() {
        let elf = Elf::parse(Image::Memory(TestFile::with_code().bytes())).unwrap();
        assert!(elf.mini_debug_info(&elf.sections().unwrap(), &WorkBudget::default()).unwrap().is_none());
    }

    /// The length of the decompressed content.
    fn decompress(compressed: &[u8], limit: u64) -> Result<usize, ParseError> {
        let mut decompressed = Vec::new();
        super::decompress(compressed, limit, &mut decompressed).map(|()| decompressed.len())
    }

    #[test]
    fn content_that_is_of_no_use_is_charged_and_stops_at_the_budget() {
        let content = compress(&[0; 100_000]);
        let file = TestFile::with_code().with(".gnu_debugdata", elf::SHT_PROGBITS, content).bytes();
        let file = Elf::parse(Image::Memory(file)).unwrap();
        let sections = file.sections().unwrap();
        let budget = WorkBudget::default();
        let all = budget.section_bytes_left();
        assert!(file.mini_debug_info(&sections, &budget).is_err(), "it is no ELF file");
        assert_eq!(all - budget.section_bytes_left(), 100_000);
        budget.spend_section_bytes(budget.section_bytes_left() - 10);
        assert_eq!(file.mini_debug_info(&sections, &budget).err(), Some(ParseError::TooLarge));
        assert_eq!(budget.section_bytes_left(), 0);
        assert_eq!(file.mini_debug_info(&sections, &budget).err(), Some(ParseError::TooLarge));
    }

    #[test]
    fn content_beyond_the_limit_is_refused() {
        let compressed = compress(&[0; 100_000]);
        assert_eq!(decompress(&compressed, 100_000), Ok(100_000));
        assert_eq!(decompress(&compressed, 99_999), Err(ParseError::TooLarge));
    }

    #[test]
    fn damaged_content_is_malformed() {
        let compressed = compress(&[7; 5000]);
        for length in 1..compressed.len() {
            assert!(decompress(&compressed[..length], 10_000).is_err(), "{length}");
        }
        for position in 0..compressed.len() {
            let mut damaged = compressed.clone();
            damaged[position] ^= 0x55;
            let _ = decompress(&damaged, 10_000);
        }
    }

    #[test]
    fn a_dictionary_beyond_the_limit_is_refused() {
        let mut options = XzOptions::with_preset(6);
        options.lzma_options.dict_size = (MAX_DICTIONARY_KIB + 1) << 11;
        let mut writer = XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(b"small").unwrap();
        assert_eq!(decompress(&writer.finish().unwrap(), 100), Err(ParseError::Malformed));
    }
}
