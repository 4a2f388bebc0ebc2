//! Function boundaries of stripped files, from the FDEs of `.eh_frame`.

use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;

use crate::{call_frames::CallFrames, elf::Elf, section::Sections};

/// The largest `.eh_frame`: several times that of the largest libraries.
const MAX_SECTION_BYTES: u64 = 32 << 20;

/// The number of CIEs. Most linkers merge them to a handful; some keep one for each object file.
const MAX_CIES_PER_SECTION: usize = 16 << 10;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Cie<'a> = CommonInformationEntry<Bytes<'a>>;

/// The address ranges of the functions of one file, sorted.
#[derive(Debug, Default)]
pub struct FunctionRanges(Vec<Range<u64>>);

impl FunctionRanges {
    /// Reads the FDEs; empty when the file has no `.eh_frame`. `left` is the number of functions that may still be read of
    /// all files.
    ///
    /// # Errors
    /// When `.eh_frame` cannot be read or a limit is exceeded.
    pub fn read(elf: &Elf, left: &mut u64) -> Result<Self, ParseError> {
        // Without section headers, the program headers locate `.eh_frame`.
        let sections = elf.sections().unwrap_or_else(|_| Sections::default());
        match elf.eh_frame(&sections, MAX_SECTION_BYTES)? {
            Some(frames) => Self::from_call_frames(&frames, left),
            None => Ok(Self::default()),
        }
    }

    /// Stops at the first entry with a malformed header: the start of the next entry is unknown.
    fn from_call_frames(frames: &CallFrames, left: &mut u64) -> Result<Self, ParseError> {
        let bytes = frames.read()?;
        let section = EhFrame::new(&bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(frames.address.0);
        let mut cies: Vec<(usize, Cie<'_>)> = Vec::new();
        let mut ranges = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            match entry {
                CieOrFde::Cie(cie) if cies.len() < MAX_CIES_PER_SECTION => {
                    cies.push((cie.offset(), cie));
                }
                CieOrFde::Cie(_) => return Err(ParseError::TooLarge),
                CieOrFde::Fde(entry) => {
                    let parsed = entry.parse(|_, _, offset| find_cie(&cies, offset.0));
                    let Ok(function) = parsed else { continue };
                    *left = left.checked_sub(1).ok_or(ParseError::TooLarge)?;
                    let start = function.initial_address();
                    // A linker that discards a function can keep its FDE, with address 0.
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

    /// The start of the function that contains `address`.
    pub fn find_start(&self, address: ElfAddress) -> Option<ElfAddress> {
        let until = self.0.partition_point(|range| range.start <= address.0);
        let nearest = self.0.get(until.checked_sub(1)?)?;
        (address.0 < nearest.end).then_some(ElfAddress(nearest.start))
    }

    /// Whether a function starts at `address`.
    pub fn is_start(&self, address: ElfAddress) -> bool {
        self.0.binary_search_by_key(&address.0, |range| range.start).is_ok()
    }
}

/// Looks up a parsed CIE. Each is parsed once for all FDEs: a hostile one can be as long as the section.
fn find_cie<'a>(cies: &[(usize, Cie<'a>)], offset: usize) -> gimli::Result<Cie<'a>> {
    let index = cies.binary_search_by_key(&offset, |(offset, _)| *offset);
    let found = index.ok().and_then(|index| cies.get(index));
    found.map(|(_, cie)| cie.clone()).ok_or(gimli::Error::NotCiePointer(offset as u64))
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;

    use profiler_addresses::{FileMapping, RuntimeAddress};
    use profiler_binary_reader::Image;

    use super::*;
    use crate::test_file::{TestFile, eh_frame, mapping_at};

    fn read(section: Vec<u8>, left: &mut u64) -> Result<FunctionRanges, ParseError> {
        let file = TestFile::with_code().with(".eh_frame", SHT_PROGBITS, section);
        FunctionRanges::read(&Elf::parse(Image::Memory(file.bytes())).unwrap(), left)
    }

    fn find_start(functions: &[(u32, u32)], address: u64) -> Option<u64> {
        let ranges = read(eh_frame(functions), &mut 100).unwrap();
        ranges.find_start(ElfAddress(address)).map(|start| start.0)
    }

    #[test]
    fn an_address_belongs_to_the_function_that_contains_it() {
        let functions = [(0x1040, 0x10), (0x1000, 0x20)];
        assert_eq!(find_start(&functions, 0x1000), Some(0x1000));
        assert_eq!(find_start(&functions, 0x101f), Some(0x1000));
        assert_eq!(find_start(&functions, 0x1020), None);
        assert_eq!(find_start(&functions, 0x1041), Some(0x1040));
        assert_eq!(find_start(&functions, 0xfff), None);
        assert_eq!(find_start(&functions, u64::MAX), None);
    }

    #[test]
    fn functions_have_a_start() {
        let ranges = read(eh_frame(&[(0x1040, 0x10), (0x1000, 0x20)]), &mut 100).unwrap();
        assert!(ranges.is_start(ElfAddress(0x1000)) && ranges.is_start(ElfAddress(0x1040)));
        assert!(!ranges.is_start(ElfAddress(0x1001)) && !ranges.is_start(ElfAddress(0x1020)));
    }

    #[test]
    fn an_fde_of_a_discarded_function_is_ignored() {
        assert_eq!(find_start(&[(0, 0x2000)], 0x1000), None);
    }

    #[test]
    fn a_truncated_or_changed_section_does_not_panic() {
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
    fn functions_are_read_until_the_limit() {
        let mut left = 3;
        assert!(read(eh_frame(&[(0x1000, 1), (0x1001, 1)]), &mut left).is_ok());
        assert_eq!(left, 1);
        assert_eq!(read(eh_frame(&[(0x1000, 1), (0x1001, 1)]), &mut left).unwrap_err(), ParseError::TooLarge);
    }

    #[test]
    fn functions_of_the_running_program_are_found() {
        let elf = Image::from_file(std::fs::File::open("/proc/self/exe").unwrap());
        let elf = Elf::parse(elf.unwrap()).unwrap();
        let ranges = FunctionRanges::read(&elf, &mut { u64::MAX }).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let entry = eh_frame as fn(&[(u32, u32)]) -> Vec<u8> as usize as u64;
        let (start, offset) = mapping_at(&maps, entry).unwrap();
        let address = |address| elf.address(FileMapping { start, offset }, RuntimeAddress(address)).unwrap();
        assert_eq!(ranges.find_start(address(entry + 8)), Some(address(entry)));
    }
}
