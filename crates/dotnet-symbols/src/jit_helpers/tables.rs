//! Finds the tables with the functions of helpers in the file of a runtime.

use std::collections::HashSet;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{LoadedImage, ParseError, RelativeRelocation};

use super::{HelperPointer, JitHelpers, MIN_NAMES, POINTER_BYTES, UNDEFINED};
use crate::call_tables::{NamedFunction, RuntimeFile, readable};

/// Parts of the names of helpers that no runtime on x86-64 implements: those for ahead-of-time compilers alone, and write
/// barriers for registers of 32 bits.
const UNUSED: [&str; 7] = ["_READYTORUN_", "_EAX", "_EBX", "_ECX", "_ESI", "_EDI", "_EBP"];

/// Unused helpers, at least: with fewer, the position of a table is not certain. Versions have 22 to 26.
const MIN_UNUSED: usize = 16;

/// Numbers in a table of functions, at least. .NET Core 3.1 has 20, .NET 10 has 101.
const MIN_POINTERS: usize = 16;

/// Words without a relocation between two that have one, among which the first number of a table is searched.
const MAX_GAP_WORDS: u64 = 64;

/// Words that are searched in a file. Runtimes have 20,000.
const MAX_SEARCHED_WORDS: u64 = 256 << 10;

/// Places that are compared with a table. Runtimes have 100.
const MAX_PLACES: usize = 1024;

/// Helpers in groups that have one function when the runtime starts: the probes of profilers, allocators that the runtime
/// replaces by faster ones, write barriers. Each group has another function. The first group is next to each other.
const GROUPS: [&[&str]; 6] = [
    &["CORINFO_HELP_PROF_FCN_ENTER", "CORINFO_HELP_PROF_FCN_LEAVE", "CORINFO_HELP_PROF_FCN_TAILCALL"],
    &["CORINFO_HELP_NEWSFAST", "CORINFO_HELP_NEWSFAST_ALIGN8"],
    &["CORINFO_HELP_NEWARR_1_VC", "CORINFO_HELP_NEWARR_1_ALIGN8"],
    &["CORINFO_HELP_ASSIGN_REF"],
    &["CORINFO_HELP_CHECKED_ASSIGN_REF"],
    &["CORINFO_HELP_ASSIGN_BYREF"],
];

/// Finds the functions of helpers with these names, by number, in the file of a runtime. Empty when it has no such tables,
/// or when more than one place has the shape of one.
///
/// # Errors
/// [`ParseError::TimedOut`] when the file cannot be read in time. What is no table is not an error.
pub fn find_jit_helpers(file: RuntimeFile<'_>, names: &[String]) -> Result<JitHelpers, ParseError> {
    let RuntimeFile { image, relocations, is_function_start } = file;
    let mut words = Words { image, relocations, is_function_start };
    let Some(entries) = words.find_table(names)? else { return Ok(JitHelpers::default()) };
    let entries = || names.iter().zip(&entries);
    let functions = entries().filter_map(|(name, entry)| match entry {
        Entry::Function(address) => Some(NamedFunction { address: *address, name: name.clone() }),
        Entry::Empty | Entry::Number => None,
    });
    let functions = functions.collect();
    let numbered = entries().filter(|(_, entry)| **entry == Entry::Number).map(|(name, _)| name.as_str());
    let numbered: Vec<_> = numbered.collect();
    let pointers = match words.find_pointers(&numbered)? {
        Some(start) => pointers_from(start, &numbered),
        None => Vec::new(),
    };
    Ok(JitHelpers { functions, pointers })
}

fn pointers_from(start: ElfAddress, names: &[&str]) -> Vec<HelperPointer> {
    let addresses = (0..).map(|index| ElfAddress(start.0.saturating_add(index * POINTER_BYTES)));
    let pointer = |(name, address): (&&str, _)| HelperPointer { address, name: (*name).to_owned() };
    names.iter().zip(addresses).map(pointer).collect()
}

/// A word of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// No function.
    Empty,
    /// The start of a function.
    Function(ElfAddress),
    /// The next number.
    Number,
}

struct Words<'a> {
    image: LoadedImage,
    relocations: &'a [RelativeRelocation],
    is_function_start: &'a dyn Fn(ElfAddress) -> bool,
}

impl Words<'_> {
    /// The table of functions by number, if one place alone has its shape.
    fn find_table(&mut self, names: &[String]) -> Result<Option<Vec<Entry>>, ParseError> {
        let is_unused = |name: &String| name == UNDEFINED || UNUSED.iter().any(|part| name.contains(part));
        let unused: Vec<_> = names.iter().map(is_unused).collect();
        if names.len() < MIN_NAMES || unused.iter().filter(|unused| **unused).count() < MIN_UNUSED {
            return Ok(None);
        }
        let mut tables = Vec::new();
        for place in self.find_first_numbers()? {
            tables.extend(self.tables_around(place, &unused)?);
        }
        Ok(tables.pop().filter(|_| tables.is_empty()))
    }

    /// The words with the number 1 between pointers.
    fn find_first_numbers(&mut self) -> Result<Vec<ElfAddress>, ParseError> {
        let mut places = Vec::new();
        let mut searched = 0;
        for pair in self.relocations.windows(2) {
            let [one, other] = pair else { continue };
            let words = (other.place.0.wrapping_sub(one.place.0) / POINTER_BYTES).clamp(1, MAX_GAP_WORDS);
            for index in 1..words {
                let place = ElfAddress(one.place.0.saturating_add(index * POINTER_BYTES));
                if readable(self.image.read_u64(place))? == Some(1) {
                    places.push(place);
                }
            }
            searched += words - 1;
            if searched > MAX_SEARCHED_WORDS || places.len() >= MAX_PLACES {
                break;
            }
        }
        Ok(places)
    }

    /// The tables whose first number is at a place.
    fn tables_around(
        &mut self,
        first_number: ElfAddress,
        unused: &[bool],
    ) -> Result<Vec<Vec<Entry>>, ParseError> {
        let from = self.entries_from(first_number, unused.len())?;
        let count = |entries: &[Entry]| entries.iter().filter(|entry| **entry == Entry::Number).count();
        let numbers = count(&from);
        if numbers < MIN_POINTERS {
            return Ok(Vec::new());
        }
        let mut entries = self.entries_before(first_number, unused.len())?;
        entries.extend(from);
        let is_table = |entries: &&[Entry]| {
            let are_empty =
                entries.iter().zip(unused).all(|(entry, unused)| !unused || *entry == Entry::Empty);
            are_empty && count(entries) == numbers
        };
        Ok(entries.windows(unused.len()).filter(is_table).map(<[Entry]>::to_vec).collect())
    }

    /// The entries from the first number on, `limit` at most.
    fn entries_from(&mut self, first_number: ElfAddress, limit: usize) -> Result<Vec<Entry>, ParseError> {
        let (mut entries, mut number) = (Vec::new(), 0);
        for index in 0..limit as u64 {
            let Some(place) = first_number.0.checked_add(index * POINTER_BYTES) else { break };
            let Some(entry) = self.entry(ElfAddress(place), number + 1)? else { break };
            number += u64::from(entry == Entry::Number);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The entries in front of the first number, `limit` at most.
    fn entries_before(&mut self, first_number: ElfAddress, limit: usize) -> Result<Vec<Entry>, ParseError> {
        let mut entries = Vec::new();
        for index in 1..limit as u64 {
            let Some(place) = first_number.0.checked_sub(index * POINTER_BYTES) else { break };
            let Some(entry) = self.entry(ElfAddress(place), 0)? else { break };
            entries.push(entry);
        }
        entries.reverse();
        Ok(entries)
    }

    /// The entry at a place; `None` for a word that is no entry. `next_number` is the number that can be there, besides 0.
    fn entry(&mut self, place: ElfAddress, next_number: u64) -> Result<Option<Entry>, ParseError> {
        if let Some(target) = self.pointer_at(place) {
            return Ok((self.is_function_start)(target).then_some(Entry::Function(target)));
        }
        Ok(match readable(self.image.read_u64(place))? {
            Some(0) => Some(Entry::Empty),
            Some(number) if number == next_number => Some(Entry::Number),
            _ => None,
        })
    }

    /// The table of the functions of the helpers that have a number, if one place alone has its shape.
    fn find_pointers(&mut self, names: &[&str]) -> Result<Option<ElfAddress>, ParseError> {
        let Some(groups) = positions_of_groups(names) else { return Ok(None) };
        let Some((probes, first_probe)) = groups.first().and_then(|probes| Some((probes, probes.first()?)))
        else {
            return Ok(None);
        };
        let starts = (0..self.relocations.len()).filter(|index| self.is_run_of_equals(*index, probes.len()));
        let starts = starts.filter_map(|index| {
            let probe = self.relocations.get(index)?.place;
            probe.0.checked_sub(*first_probe as u64 * POINTER_BYTES).map(ElfAddress)
        });
        let starts = starts.filter(|start| self.has_groups(*start, &groups));
        let starts: Vec<_> = starts.take(MAX_PLACES).collect();
        let mut found = None;
        for start in starts {
            let entries = self.entries_before(at(start, names.len()), names.len() + 1)?;
            if entries.len() == names.len() && found.replace(start).is_some() {
                return Ok(None);
            }
        }
        Ok(found)
    }

    /// Whether `count` pointers from this index on, and not one more, are next to each other and equal.
    fn is_run_of_equals(&self, index: usize, count: usize) -> bool {
        let is_pair =
            |first: usize| match self.relocations.get(first..).and_then(|rest| rest.first_chunk::<2>()) {
                Some([one, other]) => {
                    one.target == other.target
                        && one.place.0.checked_add(POINTER_BYTES) == Some(other.place.0)
                }
                None => false,
            };
        let has_equal_before = index.checked_sub(1).is_some_and(is_pair);
        let last = index + count - 1;
        !has_equal_before && (index..last).all(is_pair) && !is_pair(last)
    }

    /// Whether the pointers of each group are equal, and differ from those of the other groups.
    fn has_groups(&self, start: ElfAddress, groups: &[Vec<usize>]) -> bool {
        let function = |group: &Vec<usize>| {
            let mut functions = group.iter().map(|position| self.pointer_at(at(start, *position)));
            let first = functions.next().flatten();
            first.filter(|_| functions.all(|other| other == first))
        };
        let functions: HashSet<_> = groups.iter().filter_map(function).collect();
        functions.len() == groups.len()
    }

    fn pointer_at(&self, place: ElfAddress) -> Option<ElfAddress> {
        let index = self.relocations.binary_search_by_key(&place, |relocation| relocation.place).ok()?;
        Some(self.relocations.get(index)?.target)
    }
}

/// The place of a word of a table.
fn at(start: ElfAddress, position: usize) -> ElfAddress {
    ElfAddress(start.0.saturating_add(position as u64 * POINTER_BYTES))
}

/// The positions of the helpers in [`GROUPS`] among these names; `None` if one is missing.
fn positions_of_groups(names: &[&str]) -> Option<Vec<Vec<usize>>> {
    let position = |name: &&str| names.iter().position(|known| known == name);
    GROUPS.iter().map(|group| group.iter().map(position).collect::<Option<Vec<_>>>()).collect()
}
