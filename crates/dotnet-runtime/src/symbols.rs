//! Finds the symbols of a runtime that describe it: in `libcoreclr.so`, or in a single-file program.

use profiler_addresses::{ElfAddress, FileMapping, RuntimeAddress};
use profiler_binary_reader::ParseError;
use profiler_elf_symbols::Elf;

use crate::runtime::RuntimeSymbols;

const DESCRIPTOR: &str = "DotNetRuntimeContractDescriptor";
const DAC_TABLE: &str = "g_dacTable";

/// Finds the symbols of the runtime in a file of a process; `None` when it exports no descriptor: it is no runtime, or one
/// before .NET 9.
///
/// `mappings` are the mappings of the file in the process, each with its size in bytes. A single-file program also has mappings
/// of the assemblies in it, which show no segment of the ELF file.
///
/// # Errors
/// [`ParseError`] when the dynamic symbol table is malformed.
pub fn find_symbols(
    elf: &Elf,
    mappings: impl IntoIterator<Item = (FileMapping, u64)>,
) -> Result<Option<RuntimeSymbols>, ParseError> {
    let [descriptor, dac_table] = elf.find_exported_addresses([DESCRIPTOR, DAC_TABLE])?;
    let Some(descriptor) = descriptor else { return Ok(None) };
    let layout = elf.layout();
    let load_bias = mappings.into_iter().find_map(|(mapping, bytes)| layout.load_bias(mapping, bytes));
    let Some(load_bias) = load_bias else { return Ok(None) };
    let loaded = |address: ElfAddress| RuntimeAddress(address.0.wrapping_add(load_bias));
    Ok(Some(RuntimeSymbols { descriptor: loaded(descriptor), dac_table: dac_table.map(loaded) }))
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_DYNSYM;
    use profiler_addresses::FileOffset;
    use profiler_binary_reader::Image;
    use profiler_elf_symbols::test_file::{TestFile, function};

    use super::*;

    fn file(symbols: &[&'static str]) -> Elf {
        let symbols: Vec<_> = symbols.iter().map(|name| function(name, 0x1000, 8)).collect();
        let file = TestFile::with_code().code_segment(0, 0x1000, 0x1000).symbols(SHT_DYNSYM, &symbols);
        Elf::parse(Image::Memory(file.bytes())).unwrap()
    }

    fn mapping(start: u64, offset: u64) -> (FileMapping, u64) {
        (FileMapping { start: RuntimeAddress(start), offset: FileOffset(offset) }, 0x1000)
    }

    #[test]
    fn symbols_are_where_a_segment_of_the_file_is_loaded() {
        let elf = file(&["DotNetRuntimeContractDescriptor", "g_dacTable"]);
        let bias = elf.layout().load_bias(mapping(0x7000_0000, 0).0, 0x1000).unwrap();
        let descriptor = RuntimeAddress(0x1000_u64.wrapping_add(bias));
        let expected = RuntimeSymbols { descriptor, dac_table: Some(descriptor) };
        let mappings = [mapping(0x6000_0000, 1 << 30), mapping(0x7000_0000, 0)];
        assert_eq!(find_symbols(&elf, mappings), Ok(Some(expected)));
        assert_eq!(find_symbols(&elf, [mapping(0x6000_0000, 1 << 30)]), Ok(None), "no segment is mapped");
    }

    #[test]
    fn a_file_without_a_descriptor_is_no_runtime() {
        assert_eq!(find_symbols(&file(&["g_dacTable"]), [mapping(0x7000_0000, 0)]), Ok(None));
        let found = find_symbols(&file(&["DotNetRuntimeContractDescriptor"]), [mapping(0x7000_0000, 0)]);
        assert!(found.unwrap().is_some_and(|symbols| symbols.dac_table.is_none()));
    }
}
