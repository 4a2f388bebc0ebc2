//! Where functions begin and end: a stripped file still says so in its call frame information.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};

use super::{CallFrames, Elf, ParseError, Sections};
use profiler_addresses::ElfAddress;

/// Several times the `.eh_frame` of the largest libraries.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// Descriptions that functions share. Linkers leave a handful, but some merge none: one for each object file.
const MAX_SHARED_DESCRIPTIONS: usize = 16 << 10;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type SharedDescription<'a> = CommonInformationEntry<Bytes<'a>>;

/// The functions of one file, by where they begin.
#[derive(Debug, Default)]
pub struct FunctionRanges(Vec<Range<u64>>);

impl FunctionRanges {
    /// Reads them; empty where the file has no `.eh_frame`. Of the functions that all files together may have there
    /// are `left`.
    pub fn read(elf: &Elf, left: &mut u64) -> Result<Self, ParseError> {
        // Without sections there are segments still.
        let sections = elf.sections().unwrap_or_else(|_| Sections::default());
        match elf.eh_frame(&sections, MAX_SECTION_BYTES)? {
            Some(frames) => Self::of(&frames, left),
            None => Ok(Self::default()),
        }
    }

    /// What follows a malformed entry is left out: where it would begin is not known.
    fn of(frames: &CallFrames, left: &mut u64) -> Result<Self, ParseError> {
        let section = EhFrame::new(&frames.bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(frames.address.0);
        let mut shared: Vec<(usize, SharedDescription<'_>)> = Vec::new();
        let mut ranges = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            match entry {
                CieOrFde::Cie(cie) if shared.len() < MAX_SHARED_DESCRIPTIONS => {
                    shared.push((cie.offset(), cie));
                }
                CieOrFde::Cie(_) => return Err(ParseError::TooLarge),
                CieOrFde::Fde(entry) => {
                    let parsed = entry.parse(|_, _, offset| find_shared(&shared, offset.0));
                    let Ok(function) = parsed else { continue };
                    *left = left.checked_sub(1).ok_or(ParseError::TooLarge)?;
                    let start = function.initial_address();
                    // A linker that drops a function leaves its description, at address 0.
                    if start > 0 && function.len() > 0 {
                        ranges.push(start..start.saturating_add(function.len()));
                    }
                }
            }
        }
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        ranges.shrink_to_fit();
        Ok(Self(ranges))
    }

    /// Where the function begins that the code at `address` belongs to.
    pub fn start_at(&self, address: ElfAddress) -> Option<ElfAddress> {
        let until = self.0.partition_point(|range| range.start <= address.0);
        let nearest = self.0.get(until.checked_sub(1)?)?;
        (address.0 < nearest.end).then_some(ElfAddress(nearest.start))
    }
}

/// Parsed once, however many functions refer to it: a file that lies could make it as long as the section.
fn find_shared<'a>(
    shared: &[(usize, SharedDescription<'a>)],
    offset: usize,
) -> gimli::Result<SharedDescription<'a>> {
    let index = shared.binary_search_by_key(&offset, |(offset, _)| *offset);
    let found = index.ok().and_then(|index| shared.get(index));
    found.map(|(_, description)| description.clone()).ok_or(gimli::Error::NotCiePointer(offset as u64))
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;

    use super::{
        super::{
            Image,
            test_file::{TestFile, eh_frame, mapping_at},
        },
        *,
    };

    fn read(section: Vec<u8>, left: &mut u64) -> Result<FunctionRanges, ParseError> {
        let file = TestFile::with_code().with(".eh_frame", SHT_PROGBITS, section);
        FunctionRanges::read(&Elf::parse(Image::Memory(file.bytes())).unwrap(), left)
    }

    fn start_at(functions: &[(u32, u32)], address: u64) -> Option<u64> {
        let ranges = read(eh_frame(functions), &mut 100).unwrap();
        ranges.start_at(ElfAddress(address)).map(|start| start.0)
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it_and_to_no_neighbour() {
        let functions = [(0x1040, 0x10), (0x1000, 0x20)];
        assert_eq!(start_at(&functions, 0x1000), Some(0x1000));
        assert_eq!(start_at(&functions, 0x101f), Some(0x1000));
        assert_eq!(start_at(&functions, 0x1020), None);
        assert_eq!(start_at(&functions, 0x1041), Some(0x1040));
        assert_eq!(start_at(&functions, 0xfff), None);
        assert_eq!(start_at(&functions, u64::MAX), None);
    }

    #[test]
    fn a_function_that_the_linker_dropped_is_nowhere() {
        assert_eq!(start_at(&[(0, 0x2000)], 0x1000), None);
    }

    #[test]
    fn a_section_that_ends_anywhere_or_lies_is_an_answer_and_no_panic() {
        let whole = eh_frame(&[(0x1000, 0x20), (0x1040, 0x10)]);
        for length in 0..whole.len() {
            let _ = read(whole[..length].to_vec(), &mut 100);
        }
        for position in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[position] = value;
                let _ = read(changed, &mut 100);
            }
        }
    }

    #[test]
    fn functions_are_read_until_there_were_too_many() {
        let mut left = 3;
        assert!(read(eh_frame(&[(0x1000, 1), (0x1001, 1)]), &mut left).is_ok());
        assert_eq!(left, 1);
        assert_eq!(read(eh_frame(&[(0x1000, 1), (0x1001, 1)]), &mut left).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn functions_of_the_running_program_are_found() {
        let elf = Image::of_file(std::fs::File::open("/proc/self/exe").unwrap());
        let elf = Elf::parse(elf.unwrap()).unwrap();
        let ranges = FunctionRanges::read(&elf, &mut { u64::MAX }).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let entry = eh_frame as fn(&[(u32, u32)]) -> Vec<u8> as usize as u64;
        let (start, offset) = mapping_at(&maps, entry).unwrap();
        let address =
            |address| elf.address(start, offset, profiler_addresses::RuntimeAddress(address)).unwrap();
        assert_eq!(ranges.start_at(address(entry + 8)), Some(address(entry)));
    }
}
