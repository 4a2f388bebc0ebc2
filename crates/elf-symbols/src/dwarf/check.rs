//! Checks DWARF against limits before it is parsed: nesting, number of units, size of abbreviation tables.

use gimli::{AbbreviationsCacheStrategy, Dwarf, Reader as _, Section as _};
use profiler_binary_reader::{ParseError, WorkBudget};

use crate::dwarf::reader::{Reader, parse_error};

/// The bytes of the abbreviation tables. In memory they take thirty times as much; real ones are far smaller.
const MAX_ABBREVIATIONS_BYTES: usize = 8 << 20;

/// The units of a file. A unit takes almost a kilobyte. Browsers have fewer.
const MAX_UNITS: usize = 1 << 17;

/// The attributes of one entry. Attributes without bytes would cost time only.
pub(crate) const MAX_ATTRIBUTES: usize = 256;

/// The work of the check for each byte of DWARF. No byte of valid DWARF is read twice.
const CHECK_WORK_PER_BYTE: u64 = 32;

/// The nesting of entries. They are parsed recursively, and a file of nothing but nested entries would exhaust the stack.
/// Real code stays below a hundred.
const MAX_NESTING: isize = 512;

/// Rejects files that exceed the limits, above all the limit on nesting. Abbreviation tables that several units share are
/// parsed once.
pub(crate) fn check(dwarf: &mut Dwarf<Reader>, budget: &WorkBudget) -> Result<(), ParseError> {
    let abbreviation_bytes = dwarf.debug_abbrev.reader().len();
    if abbreviation_bytes > MAX_ABBREVIATIONS_BYTES {
        return Err(ParseError::TooLarge);
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let bytes = (dwarf.debug_info.reader().len() + abbreviation_bytes) as u64;
    budget.with_separate_quota(bytes * CHECK_WORK_PER_BYTE, || check_units(dwarf))
}

fn check_units(dwarf: &Dwarf<Reader>) -> Result<(), ParseError> {
    let mut units = dwarf.units();
    let mut count = 0;
    while let Some(header) = units.next().map_err(|error| parse_error(&error))? {
        count += 1;
        if count > MAX_UNITS {
            return Err(ParseError::TooLarge);
        }
        // The parser skips the rest of a unit that is malformed, as the check does.
        let abbreviations = match dwarf.abbreviations(&header) {
            Err(gimli::Error::Io) => return Err(ParseError::TooLarge),
            Err(_) => continue,
            Ok(abbreviations) => abbreviations,
        };
        let Ok(mut entries) = header.entries_raw(&abbreviations, None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > MAX_NESTING {
                return Err(ParseError::TooLarge);
            }
            match entries.read_abbreviation() {
                Ok(None) => {}
                Ok(Some(entry)) if entry.attributes().len() > MAX_ATTRIBUTES => {
                    return Err(ParseError::TooLarge);
                }
                Ok(Some(entry)) if entries.skip_attributes(entry.attributes()).is_ok() => {}
                _ => break,
            }
        }
    }
    Ok(())
}
