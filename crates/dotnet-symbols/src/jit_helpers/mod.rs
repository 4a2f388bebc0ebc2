//! Names the helpers that JIT code calls in a stripped .NET runtime, by a table in the JIT compiler and two in the runtime.
//!
//! JIT code calls helpers of the runtime by number (`CorInfoHelpFunc` of the interface between both). Release builds have
//! the names and the functions, and no table with both:
//!
//! * The JIT compiler has the names of all helpers by number, for its disassembly (`DOTNET_JitDisasm`).
//! * The runtime has the function of each helper by number (dotnet/runtime, `src/coreclr/vm/jitinterface.cpp`,
//!   `hlpFuncTable`). For some helpers, it has a number instead: 1, 2, 3 ... in this order. They are the positions, from 1
//!   on, in a second table, whose functions it replaces when it starts (`hlpDynamicFuncTable`).
//!
//! All tables are found by their shape. No number and no offset of a version is used: the tables have the same length, the
//! numbers of the second table are in order, and helpers that no runtime implements have no function. Both files are of one
//! build, as the runtime refuses a JIT compiler with another interface.

mod tables;
#[cfg(test)]
mod tests;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{LoadedImage, ParseError, RelativeRelocation};

pub use self::tables::find_jit_helpers;
use crate::call_tables::{NamedFunction, readable};

/// The name of the helper with the number 0, which is no helper.
const UNDEFINED: &str = "CORINFO_HELP_UNDEF";

const PREFIX: &[u8] = b"CORINFO_HELP_";

/// The longest name of a helper. Those of .NET 10 have 73 bytes.
const MAX_NAME_BYTES: usize = 128;

/// The number of names below which a run of them is no table, and the number of names that are read. Versions have about 200.
const MIN_NAMES: usize = 100;
const MAX_NAMES: usize = 1024;

const POINTER_BYTES: u64 = 8;

/// The helpers of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitHelpers {
    /// The helpers whose function is in the file, by number.
    pub functions: Vec<NamedFunction>,
    /// The helpers whose function is in the memory of a process.
    pub pointers: Vec<HelperPointer>,
}

/// A pointer to the function of a helper, in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperPointer {
    /// The address of the pointer in the file of the runtime. The file has the function that the runtime starts with.
    pub address: ElfAddress,
    /// The name of the helper, such as `CORINFO_HELP_NEWSFAST`.
    pub name: String,
}

/// Reads the names of helpers, by number, from the file of a JIT compiler, or of a runtime into which it is linked. Empty
/// when the file has no such table.
///
/// # Errors
/// [`ParseError::TimedOut`] when the file cannot be read in time. What is no table is not an error.
pub fn read_helper_names(
    mut image: LoadedImage,
    relocations: &[RelativeRelocation],
) -> Result<Vec<String>, ParseError> {
    for (index, pointers) in relocations.windows(MIN_NAMES).enumerate() {
        let [first, .., last] = pointers else { continue };
        // Few pointers have so many right behind them.
        let distance = last.place.0.wrapping_sub(first.place.0);
        if distance != (MIN_NAMES as u64 - 1) * POINTER_BYTES
            || helper_name(&mut image, first.target)?.as_deref() != Some(UNDEFINED)
        {
            continue;
        }
        let names = names_from(&mut image, relocations.get(index..).unwrap_or_default())?;
        if names.len() >= MIN_NAMES {
            return Ok(names);
        }
    }
    Ok(Vec::new())
}

/// The names to which the first relocations point, as long as each is right behind the one before.
fn names_from(
    image: &mut LoadedImage,
    relocations: &[RelativeRelocation],
) -> Result<Vec<String>, ParseError> {
    let Some(first) = relocations.first() else { return Ok(Vec::new()) };
    let places = (0..).map(|index: u64| first.place.0.checked_add(index * POINTER_BYTES));
    let mut names = Vec::new();
    for (relocation, place) in relocations.iter().zip(places).take(MAX_NAMES) {
        match helper_name(image, relocation.target)? {
            Some(name) if Some(relocation.place.0) == place => names.push(name),
            _ => break,
        }
    }
    Ok(names)
}

/// The name of a helper at an address.
fn helper_name(image: &mut LoadedImage, address: ElfAddress) -> Result<Option<String>, ParseError> {
    // Most addresses are those of other data.
    let beginning = readable(image.read_u64(address))?;
    if !beginning.is_some_and(|beginning| PREFIX.starts_with(&beginning.to_le_bytes())) {
        return Ok(None);
    }
    let is_allowed = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let text = readable(image.read_string(address, MAX_NAME_BYTES))?;
    let text = text.filter(|text| text.starts_with(PREFIX) && text.iter().all(is_allowed));
    Ok(text.and_then(|text| String::from_utf8(text).ok()))
}
