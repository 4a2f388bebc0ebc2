//! FCall tables: classes, each with a list of methods that native functions implement (dotnet/runtime,
//! `src/coreclr/vm/ecall.h`).
//!
//! ```text
//! ECClass  class name | namespace | list ──┐        40 of them in .NET 9
//! ECFunc   flags | implementation | method name | signature, if the flags say so
//!          ...
//!          flags with the bit of the end
//! ```

use profiler_addresses::ElfAddress;
use profiler_binary_reader::ParseError;

use super::{MAX_FUNCTIONS, NamedFunction, POINTER_BYTES, TableReader};

/// Pointers per class.
const POINTERS_PER_CLASS: usize = 3;

/// Methods per class. `System.StubHelpers.StubHelpers` has 40.
const MAX_METHODS_PER_CLASS: usize = 1024;

/// The flag behind the last method of a list (`FCFuncFlag_EndOfArray`).
const END_OF_LIST: u64 = 1;

/// The flag of a method with a signature (`FCFuncFlag_HasSignature`).
const HAS_SIGNATURE: u64 = 2;

/// The bits below the identifiers of intrinsic and dynamic functions that no version defines.
const UNDEFINED_FLAGS: u64 = 0xfff0;

impl TableReader<'_> {
    pub(super) fn read_fcalls(&mut self) -> Result<(), ParseError> {
        let mut index = 0;
        while index < self.relocations.len() {
            let (functions, classes) = self.classes_from(index)?;
            index += (classes * POINTERS_PER_CLASS).max(1);
            self.add_table(functions);
        }
        Ok(())
    }

    /// The functions and the number of the classes from an index of a relocation on, each right behind the one before.
    fn classes_from(&mut self, first: usize) -> Result<(Vec<NamedFunction>, usize), ParseError> {
        let (mut functions, mut classes) = (Vec::new(), 0);
        let mut index = first;
        while let Some(methods) = self.class(index)? {
            functions.extend(methods);
            classes += 1;
            index += POINTERS_PER_CLASS;
            let record_bytes = POINTERS_PER_CLASS as u64 * POINTER_BYTES;
            if functions.len() > MAX_FUNCTIONS
                || !self.has_distance(index - POINTERS_PER_CLASS, index, record_bytes)
            {
                break;
            }
        }
        Ok((functions, classes))
    }

    /// The methods of a class; `None` is no class.
    fn class(&mut self, index: usize) -> Result<Option<Vec<NamedFunction>>, ParseError> {
        let Some(pointers @ [class, namespace, list]) = self.pointers_at(index) else { return Ok(None) };
        if pointers.iter().any(|pointer| pointer.is_function) || list.target.0 % POINTER_BYTES != 0 {
            return Ok(None);
        }
        // The names are read last: most pointers next to each other have another meaning.
        let Some(methods) = self.methods(list.target)? else { return Ok(None) };
        let Some(class) = self.name(class.target, b"_`")? else { return Ok(None) };
        let Some(namespace) = self.text(namespace.target, b"_.")? else { return Ok(None) };
        let prefix = if namespace.is_empty() { class } else { format!("{namespace}.{class}") };
        let named = |(address, method)| NamedFunction { address, name: format!("{prefix}.{method}") };
        Ok(Some(methods.into_iter().map(named).collect()))
    }

    /// The implementations and names in a list of methods; `None` is no such list.
    fn methods(&mut self, list: ElfAddress) -> Result<Option<Vec<(ElfAddress, String)>>, ParseError> {
        let mut methods = Vec::new();
        let mut record = list;
        for _ in 0..MAX_METHODS_PER_CLASS {
            let flags = if self.pointer_at(record).is_some() { None } else { self.word(record)? };
            match flags.filter(|flags| flags & UNDEFINED_FLAGS == 0) {
                None => return Ok(None),
                Some(flags) if flags & END_OF_LIST != 0 => return Ok(Some(methods)),
                Some(flags) => {
                    let has_signature = flags & HAS_SIGNATURE != 0;
                    let Some(method) = self.method(record, has_signature)? else { return Ok(None) };
                    methods.extend(method.implementation.map(|address| (address, method.name)));
                    record = field(record, 3 + u64::from(has_signature));
                }
            }
        }
        Ok(None)
    }

    /// The method in a record; `None` is no such record.
    fn method(&mut self, record: ElfAddress, has_signature: bool) -> Result<Option<Method>, ParseError> {
        let implementation = self.pointer_at(field(record, 1));
        let is_valid = match implementation {
            Some(pointer) => pointer.is_function,
            // The runtime assigns an implementation when it starts.
            None => self.word(field(record, 1))? == Some(0),
        };
        let Some(name) = self.pointer_at(field(record, 2)).filter(|_| is_valid) else { return Ok(None) };
        if has_signature && self.pointer_at(field(record, 3)).is_none() {
            return Ok(None);
        }
        let name = self.name(name.target, b"_.`")?;
        let implementation = implementation.map(|pointer| pointer.target);
        Ok(name.map(|name| Method { implementation, name }))
    }
}

/// A method of a class.
struct Method {
    implementation: Option<ElfAddress>,
    name: String,
}

/// The address of a field of a record.
fn field(record: ElfAddress, index: u64) -> ElfAddress {
    ElfAddress(record.0.saturating_add(index * POINTER_BYTES))
}
