//! `.gnu_debugdata`: an ELF file inside the file, packed with xz, that holds the symbols `.dynsym` lacks.

use std::io::Read;

use lzma_rust2::XzReader;

use super::{Elf, Image, ParseError, Sections};

/// The packed file of a whole C++ runtime is below a tenth of this.
const MAX_PACKED_BYTES: u64 = 16 << 20;

/// The unpacked file, likewise.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;

/// What unpacking may use for its dictionary: xz's greatest preset needs as much.
const MAX_DICTIONARY_KIB: u32 = 65 << 10;

impl Elf {
    /// The file inside the file, if there is one.
    pub fn mini_debug_info(&self, sections: &Sections) -> Result<Option<Self>, ParseError> {
        let Some(section) = sections.find(b".gnu_debugdata") else { return Ok(None) };
        let unpacked = unpack(&section.raw(self.image(), MAX_PACKED_BYTES)?, MAX_UNPACKED_BYTES)?;
        Self::parse(Image::Memory(unpacked)).map(Some)
    }
}

fn unpack(packed: &[u8], limit: u64) -> Result<Vec<u8>, ParseError> {
    let mut unpacked = Vec::new();
    let reader = XzReader::new_mem_limit(packed, false, MAX_DICTIONARY_KIB);
    reader.take(limit + 1).read_to_end(&mut unpacked).map_err(|_| ParseError::Malformed)?;
    if unpacked.len() as u64 > limit { Err(ParseError::TooLarge) } else { Ok(unpacked) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};
    use object::elf;

    use super::{
        super::{
            SymbolTable, TableKind,
            test_file::{TestFile, function},
        },
        *,
    };
    use profiler_addresses::ElfAddress;

    fn pack(bytes: &[u8]) -> Vec<u8> {
        let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn the_symbols_of_the_packed_file_are_found() {
        let inner =
            TestFile::with_code().symbols(elf::SHT_SYMTAB, &[function("hidden", 0x1100, 0x10)]).bytes();
        let outer = TestFile::with_code().with(".gnu_debugdata", elf::SHT_PROGBITS, pack(&inner)).bytes();
        let outer = Elf::parse(Image::Memory(outer)).unwrap();
        let inner = outer.mini_debug_info(&outer.sections().unwrap()).unwrap().unwrap();
        let table =
            SymbolTable::load(&inner, &inner.sections().unwrap(), TableKind::Static, &mut { u64::MAX })
                .unwrap()
                .unwrap();
        assert_eq!(table.find(&inner, ElfAddress(0x1108)).unwrap().unwrap().name, b"hidden");
    }

    #[test]
    fn a_file_without_the_section_has_none() {
        let elf = Elf::parse(Image::Memory(TestFile::with_code().bytes())).unwrap();
        assert!(elf.mini_debug_info(&elf.sections().unwrap()).unwrap().is_none());
    }

    #[test]
    fn what_unpacks_to_more_than_the_limit_is_refused() {
        let packed = pack(&[0; 100_000]);
        assert_eq!(unpack(&packed, 100_000).unwrap().len(), 100_000);
        assert_eq!(unpack(&packed, 99_999), Err(ParseError::TooLarge));
    }

    #[test]
    fn damaged_packing_is_malformed() {
        let packed = pack(&[7; 5000]);
        for length in 1..packed.len() {
            assert!(unpack(&packed[..length], 10_000).is_err(), "{length}");
        }
        for position in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[position] ^= 0x55;
            let _ = unpack(&damaged, 10_000);
        }
    }

    #[test]
    fn a_dictionary_beyond_the_limit_is_refused() {
        let mut options = XzOptions::with_preset(6);
        options.lzma_options.dict_size = (MAX_DICTIONARY_KIB + 1) << 11;
        let mut writer = XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(b"small").unwrap();
        assert_eq!(unpack(&writer.finish().unwrap(), 100), Err(ParseError::Malformed));
    }
}
