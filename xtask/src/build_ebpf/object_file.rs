//! Strips DWARF and BTF from the BPF object, and lists the size of each program in instructions.

use std::collections::BTreeMap;

use anyhow::Result;
use object::{
    Object as _, ObjectSymbol as _, SymbolKind,
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// The kernel's unit of program size.
const INSTRUCTION_BYTES: u64 = 8;

/// The sections of debug information, with their relocations.
///
/// The loader gives the kernel a BTF type for all functions, and reads neither DWARF nor the compiler's BTF, which names every source file
/// and would be more than half of the object.
const DEBUG_SECTIONS: [&[u8]; 4] = [b".debug_", b".rel.debug_", b".BTF", b".rel.BTF"];

/// Removes debug information, and keeps all that a loader reads.
pub(super) fn strip_debug_info(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object)?;
    for section in &mut builder.sections {
        section.delete = DEBUG_SECTIONS.iter().any(|prefix| section.name.starts_with(prefix));
    }
    builder.delete_orphans();
    // LLVM lets section and symbol names share one table; the builder writes two.
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

/// Each function's size in instructions.
pub(super) fn instructions(object: &[u8]) -> Result<BTreeMap<String, u64>> {
    let file = object::File::parse(object)?;
    let mut counts = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        counts.insert(symbol.name()?.to_owned(), symbol.size() / INSTRUCTION_BYTES);
    }
    Ok(counts)
}
