//! Names native functions of a stripped .NET runtime by the tables through which managed code calls them.
//!
//! A runtime finds its native functions by name at run time, so its file keeps their names:
//!
//! * Entry point tables: `{ const char *name; const void *function }`. They are the QCalls of .NET 7 and later
//!   (dotnet/runtime, `src/coreclr/vm/qcallentrypoints.cpp`) and, in the host of single-file programs, the P/Invoke
//!   functions of the native libraries that are linked into it.
//! * FCall tables: a class with namespace, and a list of its methods with their implementations
//!   (`src/coreclr/vm/ecall.h`: `ECClass`, `ECFunc`). Before .NET 7, they contain the QCalls too.
//!
//! The tables are found by their shape: relocated pointers at equal distances, to identifiers and to starts of
//! functions. No offset of a version is used.

mod entry_points;
mod fcalls;
#[cfg(test)]
mod tests;

use profiler_addresses::ElfAddress;
use profiler_binary_reader::{LoadedImage, ParseError, RelativeRelocation};

/// The number of functions below which a run of records is no table. Strings and functions are next to each other by
/// chance too, but not so often.
const MIN_FUNCTIONS_PER_TABLE: usize = 8;

/// The functions that are named. The host of single-file programs has 1,300.
const MAX_FUNCTIONS: usize = 16 << 10;

/// The longest name of a function, class or namespace. Those of runtimes have at most 100 bytes.
const MAX_NAME_BYTES: usize = 256;

const POINTER_BYTES: u64 = 8;

/// A native function that a call table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// The start of the function.
    pub address: ElfAddress,
    /// The name in the runtime's source, such as `ThreadNative_SpinWait`; for an FCall, the method that it implements,
    /// such as `System.Threading.Monitor.ReliableEnter`.
    pub name: String,
}

/// The file of a runtime, as the tables are read from it.
pub struct RuntimeFile<'a> {
    /// The bytes of the file. The budget bounds the work.
    pub image: LoadedImage,
    /// The words that hold addresses, sorted by place.
    pub relocations: &'a [RelativeRelocation],
    /// Whether a function starts at an address.
    pub is_function_start: &'a dyn Fn(ElfAddress) -> bool,
}

/// Reads all call tables of a runtime. The functions are sorted by address and have one name each: linkers can fold
/// functions with identical code, and the first name is kept.
///
/// # Errors
/// [`ParseError::TimedOut`] when the file cannot be read in time. What is no table is not an error.
pub fn read_call_tables(file: RuntimeFile<'_>) -> Result<Vec<NamedFunction>, ParseError> {
    let RuntimeFile { image, relocations, is_function_start } = file;
    let is_function = relocations.iter().map(|relocation| is_function_start(relocation.target)).collect();
    let mut reader = TableReader { image, relocations, is_function, functions: Vec::new() };
    reader.read_entry_points()?;
    reader.read_fcalls()?;
    let mut functions = reader.functions;
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    Ok(functions)
}

struct TableReader<'a> {
    image: LoadedImage,
    relocations: &'a [RelativeRelocation],
    /// Whether the target of each relocation is the start of a function. Each is looked up once.
    is_function: Vec<bool>,
    functions: Vec<NamedFunction>,
}

/// A relocated pointer.
#[derive(Clone, Copy)]
struct Pointer {
    target: ElfAddress,
    is_function: bool,
}

impl TableReader<'_> {
    /// `N` relocated pointers next to each other, from the one with this index on.
    fn pointers_at<const N: usize>(&self, index: usize) -> Option<[Pointer; N]> {
        let relocations: &[RelativeRelocation; N] = self.relocations.get(index..)?.first_chunk()?;
        let is_function: &[bool; N] = self.is_function.get(index..)?.first_chunk()?;
        let first = relocations.first()?.place.0;
        let places = (0..).map(|position: u64| first.checked_add(position * POINTER_BYTES));
        let are_adjacent = relocations.iter().zip(places).all(|(found, place)| Some(found.place.0) == place);
        are_adjacent.then(|| {
            std::array::from_fn(|position| Pointer {
                target: relocations[position].target,
                is_function: is_function[position],
            })
        })
    }

    /// The relocated pointer at an address.
    fn pointer_at(&self, place: ElfAddress) -> Option<Pointer> {
        let index = self.relocations.binary_search_by_key(&place, |relocation| relocation.place).ok()?;
        self.pointers_at(index).map(|[pointer]| pointer)
    }

    /// Whether the relocations with these indexes have places at this distance.
    fn has_distance(&self, first: usize, second: usize, bytes: u64) -> bool {
        let place = |index: usize| self.relocations.get(index).map(|relocation| relocation.place.0);
        place(first)
            .and_then(|place| place.checked_add(bytes))
            .is_some_and(|next| place(second) == Some(next))
    }

    /// The text at an address if it consists of letters, digits and these characters.
    fn text(&mut self, address: ElfAddress, others: &[u8]) -> Result<Option<String>, ParseError> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || others.contains(byte);
        let text = readable(self.image.read_string(address, MAX_NAME_BYTES))?;
        let text = text.filter(|text| text.iter().all(is_allowed));
        Ok(text.and_then(|text| String::from_utf8(text).ok()))
    }

    /// The text at an address if it is a name.
    fn name(&mut self, address: ElfAddress, others: &[u8]) -> Result<Option<String>, ParseError> {
        Ok(self.text(address, others)?.filter(|name| !name.is_empty()))
    }

    fn word(&mut self, address: ElfAddress) -> Result<Option<u64>, ParseError> {
        readable(self.image.read_u64(address))
    }

    /// Adds the functions of a run of records if it is long enough to be a table.
    fn add_table(&mut self, functions: Vec<NamedFunction>) {
        if functions.len() >= MIN_FUNCTIONS_PER_TABLE {
            let left = MAX_FUNCTIONS - self.functions.len();
            self.functions.extend(functions.into_iter().take(left));
        }
    }
}

/// What was read; `None` when there is nothing of this kind at the address, or the budget is exhausted.
pub(crate) fn readable<T>(read: Result<T, ParseError>) -> Result<Option<T>, ParseError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(ParseError::TimedOut) => Err(ParseError::TimedOut),
        Err(_) => Ok(None),
    }
}
