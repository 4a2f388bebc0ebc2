//! The cells of a ReadyToRun image through which its code calls helpers of the runtime, and the names of the helpers.
//!
//! The runtime writes the addresses of its helpers into the cells when it loads the image. In the process, a cell thus
//! tells which native function is the helper with its number. The numbers are part of the file format.
//!
//! Allocations have cells of another kind: at its first use, such a cell gets a stub that passes a type to the allocator.
//!
//! Source: dotnet/runtime, `src/coreclr/inc/readytorun.h`; `docs/design/coreclr/botr/readytorun-format.md`.

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

use crate::pe::{Directory, Pe, precompiled::ReadyToRunHeader};

/// The section type of import sections (`READYTORUN_SECTION_IMPORT_SECTIONS`).
const IMPORT_SECTIONS: u32 = 101;

const IMPORT_SECTION_BYTES: u64 = 20;

/// Import sections per image. Compilers emit seven.
const MAX_IMPORT_SECTIONS: u64 = 64;

/// Cells of all sections that are read. The core library has 10,000.
const MAX_CELLS: u32 = 32 << 10;

/// The flag of a section whose cells the runtime fills when it loads the image (`READYTORUN_IMPORT_SECTION_FLAGS_EAGER`).
const EAGER: u16 = 1;

/// The kind of a signature that consists of the number of a helper (`READYTORUN_FIXUP_Helper`).
const HELPER_FIXUP: u8 = 0x1a;

/// The kinds of signatures of allocations, and their names (`READYTORUN_FIXUP_*`).
const ALLOCATION_FIXUPS: [(u8, &str); 2] =
    [(0x1c, "READYTORUN_FIXUP_NewObject"), (0x1d, "READYTORUN_FIXUP_NewArray")];

const POINTER_BYTES: u8 = 8;

/// A cell that the runtime fills with the address of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperCell {
    /// The address of the cell in the image.
    pub address: ElfAddress,
    /// The helper.
    pub helper: Helper,
}

/// A cell that gets a stub for allocations at its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationCell {
    /// The address of the cell in the image.
    pub address: ElfAddress,
    /// What is allocated: `READYTORUN_FIXUP_NewObject`, `READYTORUN_FIXUP_NewArray`.
    pub name: &'static str,
}

/// The cells of an image with the addresses of helpers and allocators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCells {
    /// The cells that the runtime fills when it loads the image.
    pub helpers: Vec<HelperCell>,
    /// The cells of allocations, sorted by section and address.
    pub allocations: Vec<AllocationCell>,
    /// How many cells of all kinds the image has, as far as they were read.
    pub read: u32,
}

/// A helper of the runtime (`READYTORUN_HELPER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Helper(u32);

impl Helper {
    /// The write barrier, whose code the runtime copies into memory of its own.
    pub const WRITE_BARRIER: Self = Self(0x30);

    /// Its name in the runtime's source; `None` for data, and for numbers that no version defines.
    pub fn name(self) -> Option<&'static str> {
        let index = NAMES.binary_search_by_key(&self.0, |(number, _)| *number).ok()?;
        Some(NAMES[index].1)
    }
}

/// Reads the cells of helpers and allocations; empty for an image without precompiled code.
pub(super) fn read(image: &mut PagedImage, pe: &Pe) -> Result<RuntimeCells, ParseError> {
    let mut cells = RuntimeCells::default();
    if pe.native_header.is_empty() || !pe.is_of_this_machine {
        return Ok(cells);
    }
    let Some(header) = ReadyToRunHeader::read(image, pe.native_header)? else { return Ok(cells) };
    let Some(sections) = header.sections.directory(IMPORT_SECTIONS) else { return Ok(cells) };
    let sections = pe.span(sections)?;
    for index in 0..(sections.len() / IMPORT_SECTION_BYTES).min(MAX_IMPORT_SECTIONS) {
        let record = image.read_array(sections.skip(index * IMPORT_SECTION_BYTES)?)?;
        let section = ImportSection::read(&record)?;
        if section.has_pointers {
            section.read_cells(image, pe, &mut cells)?;
        }
    }
    Ok(cells)
}

struct ImportSection {
    cells: Directory,
    is_eager: bool,
    has_pointers: bool,
    signatures: u32,
}

impl ImportSection {
    fn read(record: &[u8; IMPORT_SECTION_BYTES as usize]) -> Result<Self, ParseError> {
        let mut fields = ByteCursor::new(record, 0);
        let cells = Directory::read(&mut fields)?;
        let (flags, _kind, cell_bytes) = (fields.u16()?, fields.u8()?, fields.u8()?);
        let signatures = fields.u32()?;
        // 0 is the size of a pointer in the first versions.
        let has_pointers = matches!(cell_bytes, 0 | POINTER_BYTES) && signatures != 0;
        Ok(Self { cells, is_eager: flags & EAGER != 0, has_pointers, signatures })
    }

    /// Adds the cells whose signature is a helper or an allocation.
    fn read_cells(
        &self,
        image: &mut PagedImage,
        pe: &Pe,
        found: &mut RuntimeCells,
    ) -> Result<(), ParseError> {
        const SIGNATURE_BYTES: usize = 4;
        let pointer_bytes = u32::from(POINTER_BYTES);
        let count = (self.cells.bytes / pointer_bytes).min(MAX_CELLS - found.read);
        found.read += count;
        let table = pe.rest_from(self.signatures)?.prefix(u64::from(count) * SIGNATURE_BYTES as u64)?;
        let signatures = image.read_uncached(table, table.len())?;
        for (signature, index) in signatures.as_chunks::<SIGNATURE_BYTES>().0.iter().zip(0..) {
            let offset: u32 = index * pointer_bytes;
            let address = self.cells.address.checked_add(offset).ok_or(ParseError::Malformed)?;
            let address = ElfAddress(address.into());
            let signature = pe.rest_from(u32::from_le_bytes(*signature))?;
            let [kind] = image.read_array(signature)?;
            if kind == HELPER_FIXUP && self.is_eager {
                found.helpers.push(HelperCell { address, helper: read_helper(image, signature)? });
            } else if let Some((_, name)) = ALLOCATION_FIXUPS.iter().find(|(known, _)| *known == kind) {
                found.allocations.push(AllocationCell { address, name });
            }
        }
        Ok(())
    }
}

/// Reads the number of a helper behind the kind of the signature.
fn read_helper(image: &mut PagedImage, signature: ByteRange) -> Result<Helper, ParseError> {
    const MAX_NUMBER_BYTES: u64 = 4;
    let number = image.read_up_to(signature.skip(1)?, MAX_NUMBER_BYTES)?;
    ByteCursor::new(&number, 0).compressed().map(Helper)
}

/// The helpers that are functions, by number.
const NAMES: [(u32, &str); 85] = [
    (0x08, "READYTORUN_HELPER_DelayLoad_MethodCall"),
    (0x10, "READYTORUN_HELPER_DelayLoad_Helper"),
    (0x11, "READYTORUN_HELPER_DelayLoad_Helper_Obj"),
    (0x12, "READYTORUN_HELPER_DelayLoad_Helper_ObjObj"),
    (0x20, "READYTORUN_HELPER_Throw"),
    (0x21, "READYTORUN_HELPER_Rethrow"),
    (0x22, "READYTORUN_HELPER_Overflow"),
    (0x23, "READYTORUN_HELPER_RngChkFail"),
    (0x24, "READYTORUN_HELPER_FailFast"),
    (0x25, "READYTORUN_HELPER_ThrowNullRef"),
    (0x26, "READYTORUN_HELPER_ThrowDivZero"),
    (0x30, "READYTORUN_HELPER_WriteBarrier"),
    (0x31, "READYTORUN_HELPER_CheckedWriteBarrier"),
    (0x32, "READYTORUN_HELPER_ByRefWriteBarrier"),
    (0x33, "READYTORUN_HELPER_BulkWriteBarrier"),
    (0x38, "READYTORUN_HELPER_Stelem_Ref"),
    (0x39, "READYTORUN_HELPER_Ldelema_Ref"),
    (0x3e, "READYTORUN_HELPER_MemZero"),
    (0x3f, "READYTORUN_HELPER_MemSet"),
    (0x40, "READYTORUN_HELPER_NativeMemSet"),
    (0x41, "READYTORUN_HELPER_MemCpy"),
    (0x42, "READYTORUN_HELPER_PInvokeBegin"),
    (0x43, "READYTORUN_HELPER_PInvokeEnd"),
    (0x44, "READYTORUN_HELPER_GCPoll"),
    (0x45, "READYTORUN_HELPER_ReversePInvokeEnter"),
    (0x46, "READYTORUN_HELPER_ReversePInvokeExit"),
    (0x50, "READYTORUN_HELPER_GetString"),
    (0x51, "READYTORUN_HELPER_LogMethodEnter"),
    (0x54, "READYTORUN_HELPER_GetRuntimeTypeHandle"),
    (0x55, "READYTORUN_HELPER_GetRuntimeMethodHandle"),
    (0x56, "READYTORUN_HELPER_GetRuntimeFieldHandle"),
    (0x58, "READYTORUN_HELPER_Box"),
    (0x59, "READYTORUN_HELPER_Box_Nullable"),
    (0x5a, "READYTORUN_HELPER_Unbox"),
    (0x5b, "READYTORUN_HELPER_Unbox_Nullable"),
    (0x5c, "READYTORUN_HELPER_NewMultiDimArr"),
    (0x5d, "READYTORUN_HELPER_Unbox_TypeTest"),
    (0x60, "READYTORUN_HELPER_NewObject"),
    (0x61, "READYTORUN_HELPER_NewArray"),
    (0x62, "READYTORUN_HELPER_CheckCastAny"),
    (0x63, "READYTORUN_HELPER_CheckInstanceAny"),
    (0x64, "READYTORUN_HELPER_GenericGcStaticBase"),
    (0x65, "READYTORUN_HELPER_GenericNonGcStaticBase"),
    (0x66, "READYTORUN_HELPER_GenericGcTlsBase"),
    (0x67, "READYTORUN_HELPER_GenericNonGcTlsBase"),
    (0x68, "READYTORUN_HELPER_VirtualFuncPtr"),
    (0x69, "READYTORUN_HELPER_IsInstanceOfException"),
    (0x6a, "READYTORUN_HELPER_NewMaybeFrozenArray"),
    (0x6b, "READYTORUN_HELPER_NewMaybeFrozenObject"),
    (0xc0, "READYTORUN_HELPER_LMul"),
    (0xc1, "READYTORUN_HELPER_LMulOfv"),
    (0xc2, "READYTORUN_HELPER_ULMulOvf"),
    (0xc3, "READYTORUN_HELPER_LDiv"),
    (0xc4, "READYTORUN_HELPER_LMod"),
    (0xc5, "READYTORUN_HELPER_ULDiv"),
    (0xc6, "READYTORUN_HELPER_ULMod"),
    (0xc7, "READYTORUN_HELPER_LLsh"),
    (0xc8, "READYTORUN_HELPER_LRsh"),
    (0xc9, "READYTORUN_HELPER_LRsz"),
    (0xca, "READYTORUN_HELPER_Lng2Dbl"),
    (0xcb, "READYTORUN_HELPER_ULng2Dbl"),
    (0xcc, "READYTORUN_HELPER_Div"),
    (0xcd, "READYTORUN_HELPER_Mod"),
    (0xce, "READYTORUN_HELPER_UDiv"),
    (0xcf, "READYTORUN_HELPER_UMod"),
    (0xd0, "READYTORUN_HELPER_Dbl2Int"),
    (0xd1, "READYTORUN_HELPER_Dbl2IntOvf"),
    (0xd2, "READYTORUN_HELPER_Dbl2Lng"),
    (0xd3, "READYTORUN_HELPER_Dbl2LngOvf"),
    (0xd4, "READYTORUN_HELPER_Dbl2UInt"),
    (0xd5, "READYTORUN_HELPER_Dbl2UIntOvf"),
    (0xd6, "READYTORUN_HELPER_Dbl2ULng"),
    (0xd7, "READYTORUN_HELPER_Dbl2ULngOvf"),
    (0xd8, "READYTORUN_HELPER_Lng2Flt"),
    (0xd9, "READYTORUN_HELPER_ULng2Flt"),
    (0xe0, "READYTORUN_HELPER_DblRem"),
    (0xe1, "READYTORUN_HELPER_FltRem"),
    (0xe2, "READYTORUN_HELPER_DblRound"),
    (0xe3, "READYTORUN_HELPER_FltRound"),
    (0xf0, "READYTORUN_HELPER_PersonalityRoutine"),
    (0xf1, "READYTORUN_HELPER_PersonalityRoutineFilterFunclet"),
    (0xf8, "READYTORUN_HELPER_MonitorEnter"),
    (0xf9, "READYTORUN_HELPER_MonitorExit"),
    (0x111, "READYTORUN_HELPER_StackProbe"),
    (0x112, "READYTORUN_HELPER_GetCurrentManagedThreadId"),
];

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use profiler_binary_reader::Image;

    use super::*;
    use crate::readytorun::{AssemblyLocation, ReadyToRunModule, tests::SMALL};

    /// Where a test puts the import sections into the small image: behind its code.
    const SECTIONS: (usize, u32) = (0x380, 0x1180);

    /// The position of the section table entry that a test replaces, the section of delay load thunks.
    const ENTRY: usize = 0x278;

    fn word(value: u32) -> [u8; 4] {
        value.to_le_bytes()
    }

    /// The small image with these import sections, and these bytes behind them.
    fn image(sections: &[[u32; 5]], behind: &[u8]) -> Vec<u8> {
        let mut bytes = SMALL.to_vec();
        let records: Vec<u8> = sections.iter().flatten().flat_map(|field| word(*field)).collect();
        let length = u32::try_from(records.len()).unwrap();
        let entry = [word(IMPORT_SECTIONS), word(SECTIONS.1), word(length)].concat();
        bytes[ENTRY..ENTRY + entry.len()].copy_from_slice(&entry);
        let content = [&records[..], behind].concat();
        bytes[SECTIONS.0..SECTIONS.0 + content.len()].copy_from_slice(&content);
        bytes
    }

    fn cells(bytes: Vec<u8>) -> Result<Vec<(u64, u32)>, ParseError> {
        let location = AssemblyLocation::from_image_path(Path::new("/app/Test.dll"));
        let module = ReadyToRunModule::open(Image::Memory(bytes), location, &Arc::default());
        let cells = module.map_err(|_| ParseError::Malformed)?.runtime_cells()?;
        let allocations = cells.allocations.iter().map(|cell| (cell.address.0, cell.name.len() as u32));
        Ok(cells.helpers.iter().map(|cell| (cell.address.0, cell.helper.0)).chain(allocations).collect())
    }

    /// Flags, kind and size of cells as a word.
    fn shape(flags: u32, cell_bytes: u32) -> u32 {
        flags | cell_bytes << 24
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cells_with_the_signature_of_a_helper_are_found() {
        // Three cells: a helper with a number of one byte, one of two bytes, and another kind of signature.
        let signatures = SECTIONS.1 + 20;
        let texts = signatures + 12;
        let behind = [word(texts), word(texts + 2), word(texts + 5)].concat();
        let behind =
            [&behind[..], &[HELPER_FIXUP, 0x20, HELPER_FIXUP, 0x81, 0x11, 0x10, 1, 0, 0, 0, 0, 0, 0]]
                .concat();
        let section = |flags, size| [0x2000, 24, shape(flags, size), signatures, 0];
        let expected = vec![(0x2000, 0x20), (0x2008, 0x111)];
        assert_eq!(cells(image(&[section(1, 8)], &behind)), Ok(expected.clone()));
        assert_eq!(cells(image(&[section(1, 0)], &behind)), Ok(expected));
        assert_eq!(cells(image(&[section(4, 8)], &behind)), Ok(Vec::new()), "filled at their first use");
        assert_eq!(cells(image(&[section(1, 4)], &behind)), Ok(Vec::new()), "no pointers");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cells_of_allocations_are_found_in_all_sections() {
        let signatures = SECTIONS.1 + 20;
        let texts = signatures + 12;
        let behind = [word(texts), word(texts + 1), word(texts + 2)].concat();
        let behind = [&behind[..], &[0x1c, 0x1d, 0x1e, 0, 0, 0]].concat();
        let [object, array] = ALLOCATION_FIXUPS.map(|(_, name)| name.len() as u32);
        let expected = vec![(0x2000, object), (0x2008, array)];
        let section = [0x2000, 24, shape(4, 8), signatures, 0];
        assert_eq!(cells(image(&[section], &behind)), Ok(expected));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_cells_of_all_sections_together_are_bounded() {
        const SECTION_BYTES: usize = 0x4_0000;
        const TEXT_SIZES: [usize; 2] = [0x150, 0x158];
        let records = MAX_IMPORT_SECTIONS as u32;
        let signatures = SECTIONS.1 + records * IMPORT_SECTION_BYTES as u32;
        let behind = word(signatures).repeat(MAX_CELLS as usize);
        let sections = vec![[0x2000, u32::MAX, shape(4, 8), signatures + 4, 0]; records as usize];
        let mut bytes = SMALL.to_vec();
        bytes.resize(SECTION_BYTES, 0);
        let content =
            [sections.iter().flatten().flat_map(|field| word(*field)).collect(), word(0x1c).to_vec(), behind]
                .concat();
        let entry =
            [word(IMPORT_SECTIONS), word(SECTIONS.1), word(records * IMPORT_SECTION_BYTES as u32)].concat();
        bytes[SECTIONS.0..SECTIONS.0 + content.len()].copy_from_slice(&content);
        bytes[ENTRY..ENTRY + entry.len()].copy_from_slice(&entry);
        TEXT_SIZES
            .iter()
            .for_each(|at| bytes[*at..at + 4].copy_from_slice(&word(SECTION_BYTES as u32 - 0x200)));
        assert_eq!(cells(bytes).map(|cells| cells.len()), Ok(MAX_CELLS as usize));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn import_sections_outside_of_the_image_are_malformed() {
        for section in [[0x2000, 8, shape(1, 8), 0x9999, 0], [u32::MAX, 16, shape(1, 8), SECTIONS.1, 0]] {
            assert_eq!(cells(image(&[section], &[])), Err(ParseError::Malformed), "{section:x?}");
        }
        assert_eq!(cells(SMALL.to_vec()), Ok(Vec::new()));
    }

    #[test]
    fn helpers_have_the_names_of_their_numbers() {
        assert!(NAMES.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(Helper(0x60).name(), Some("READYTORUN_HELPER_NewObject"));
        assert_eq!(Helper::WRITE_BARRIER.name(), Some("READYTORUN_HELPER_WriteBarrier"));
        for data in [0, 1, 2, 3, 0x1000] {
            assert_eq!(Helper(data).name(), None);
        }
    }
}
