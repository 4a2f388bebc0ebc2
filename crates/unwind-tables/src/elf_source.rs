//! What the table of an ELF file is made of.

use std::hash::{Hash, Hasher};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::elf::Machine;

use super::{UnwindTable, architecture::Architecture, eh_frame::Code};
use profiler_binary_reader::ParseError;
use profiler_elf_symbols::{CallFrames, Elf};

/// Call frame information of one file: several times that of the largest libraries.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// Pieces of code of one file, among which each function is looked for. Real files have a few.
const MAX_CODE_SEGMENTS: usize = 32;

/// Everything of an ELF file that its table depends on.
pub(super) struct ElfSource {
    machine: Machine,
    code: Code,
    frames: Option<CallFrames>,
}

impl ElfSource {
    /// Reads it.
    pub(super) fn read(elf: &Elf) -> Result<Self, ParseError> {
        let machine = elf.machine();
        let architecture = Architecture::of_machine(machine).ok_or(ParseError::NotElf)?;
        // Without sections there are segments still.
        let sections = elf.sections().unwrap_or_default();
        let linkage = architecture.linkage_sections.iter();
        let linkage = linkage.filter_map(|(name, rule)| Some((sections.find(name)?.addresses(), *rule)));
        let addresses = elf.code().take(MAX_CODE_SEGMENTS).collect();
        let code = Code { architecture, addresses, linkage_tables: linkage.collect() };
        // What is loaded may be an empty section, where a program's language needs none.
        let loaded = elf.eh_frame(&sections, MAX_SECTION_BYTES)?.filter(describes_functions);
        let frames = match loaded {
            Some(frames) => Some(frames),
            None => elf.debug_frame(&sections, MAX_SECTION_BYTES)?,
        };
        Ok(Self { machine, code, frames })
    }

    /// The table, empty where the file has no call frame information; [`ParseError::TooLarge`] when it may not go on.
    pub(super) fn table(&self, may_go_on: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        self.frames.as_ref().map_or(Ok(UnwindTable::default()), |frames| self.code.table(frames, may_go_on))
    }
}

impl Hash for ElfSource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.machine.0.hash(state);
        self.code.addresses.hash(state);
        self.code.linkage_tables.hash(state);
        let frames = self.frames.as_ref();
        frames.map(|frames| (frames.kind as u8, frames.address.0, &frames.bytes)).hash(state);
    }
}

/// Whether an `.eh_frame` says anything of any function.
fn describes_functions(frames: &CallFrames) -> bool {
    let section = EhFrame::new(&frames.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(frames.address.0);
    let mut entries = section.entries(&bases);
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Fde(_))) => return true,
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(None) | Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{BuildHasher, RandomState},
    };

    use object::elf;

    use super::{
        super::test_frames::{CODE_ADDRESS, TestFrames},
        *,
    };
    use profiler_binary_reader::Image;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use profiler_processes::ProcFs;

    fn of_image(image: Vec<u8>) -> ElfSource {
        ElfSource::read(&Elf::parse(Image::Memory(image)).unwrap()).unwrap()
    }

    /// The code of [`TestFrames`], with a build id that everybody can copy.
    fn file() -> TestFile {
        TestFile::with_code().code_segment(0, CODE_ADDRESS, 0x100).build_id(&[7; 20])
    }

    fn frames(function_bytes: u64) -> Vec<u8> {
        TestFrames::x86_64().function(CODE_ADDRESS, function_bytes, &[]).bytes
    }

    #[test]
    fn files_of_one_build_id_are_told_apart_by_what_their_tables_are_made_of() {
        let hasher = RandomState::new();
        let hash = |file: TestFile| hasher.hash_one(of_image(file.bytes()));
        let with = |name, contents| file().with(name, elf::SHT_PROGBITS, contents);
        let hashes = [
            file(),
            with(".eh_frame", frames(8)),
            with(".eh_frame", frames(9)),
            with(".debug_frame", frames(8)),
            with(".eh_frame", frames(8)).code_segment(0x1000, CODE_ADDRESS + 0x1000, 0x100),
            with(".eh_frame", frames(8)).with(".plt", elf::SHT_PROGBITS, vec![0; 32]),
        ]
        .map(hash);
        let distinct: HashSet<u64> = hashes.into();
        assert_eq!(distinct.len(), hashes.len());
        let stripped = with(".eh_frame", frames(8));
        let not_stripped =
            with(".eh_frame", frames(8)).symbols(elf::SHT_SYMTAB, &[function("main", 0x1000, 9)]);
        assert_eq!(hash(stripped), hash(not_stripped));
    }

    #[test]
    fn the_section_for_debuggers_is_for_want_of_functions_in_the_other() {
        let table = |loaded: Vec<u8>| {
            let file = file().with(".eh_frame", elf::SHT_PROGBITS, loaded);
            let file = file.with(".debug_frame", elf::SHT_PROGBITS, vec![0xff; 3]);
            of_image(file.bytes()).table(&|| true).unwrap().statistics()
        };
        assert_eq!(table(frames(8)).functions, 1);
        for empty in [Vec::new(), vec![0; 4], TestFrames::x86_64().bytes] {
            let statistics = table(empty);
            assert_eq!((statistics.functions, statistics.malformed_functions), (0, 1));
        }
    }

    #[test]
    fn the_vdso_has_a_table_with_and_without_its_section_headers() {
        let image = ProcFs::live().vdso().unwrap();
        let table = |image: Vec<u8>| of_image(image).table(&|| true).unwrap();
        let with_sections = table(image.clone());
        assert!(with_sections.statistics().functions > 0);
        assert_eq!(with_sections.statistics().malformed_functions, 0);

        let mut without_sections = image;
        without_sections[0x28..0x30].fill(0);
        without_sections[0x3c..0x40].fill(0);
        let without_sections = table(without_sections);
        assert!(without_sections.pages().eq(with_sections.pages()));
        assert_eq!(without_sections.rules(), with_sections.rules());
    }
}
