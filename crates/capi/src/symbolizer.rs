//! Functions at addresses, without a session.

use std::{
    ffi::{CString, c_char},
    ptr,
};

use crate::{
    Error,
    error::give_result,
    pointer::{c_string, give, path_of, take, values},
};

/// Finds the functions at addresses. It keeps what it has read.
#[derive(Debug)]
pub struct Symbolizer(profiler::Symbolizer);

/// An address to symbolize.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The address, or the offset in a file.
    pub value: u64,
    /// Whether it is a return address, which is behind its call instruction: that of any frame of a stack but the innermost.
    pub is_return: bool,
}

/// The symbols of some addresses, in their order. Each has functions, innermost first: each but the last is inlined into its
/// successor.
#[derive(Debug)]
pub struct Symbols(Vec<Symbol>);

#[derive(Debug)]
struct Symbol {
    functions: Vec<Function>,
    module: Option<CString>,
}

#[derive(Debug)]
struct Function {
    name: CString,
    location: Option<(CString, u32)>,
}

impl Symbolizer {
    pub(crate) fn new(symbolizer: profiler::Symbolizer) -> Self {
        Self(symbolizer)
    }
}

impl Address {
    fn to_looked_up(self) -> profiler::Address {
        match self.is_return {
            true => profiler::Address::Return(self.value),
            false => profiler::Address::Instruction(self.value),
        }
    }
}

impl Symbols {
    fn new(symbols: &[profiler::Symbol]) -> Self {
        Self(symbols.iter().map(Symbol::new).collect())
    }

    fn function(&self, symbol: usize, function: usize) -> Option<&Function> {
        self.0.get(symbol)?.functions.get(function)
    }
}

impl Symbol {
    /// Without a symbol, its function has the address in brackets as its name.
    fn new(symbol: &profiler::Symbol) -> Self {
        let named = symbol.functions.iter().map(|function| Function {
            name: c_string(&function.name),
            location: function.location.as_ref().map(|(file, line)| (c_string(file), *line)),
        });
        let mut functions: Vec<_> = named.collect();
        if functions.is_empty() {
            functions.push(Function { name: c_string(symbol.name()), location: None });
        }
        Self { functions, module: symbol.module.as_deref().map(c_string) }
    }
}

/// # Safety
/// See [`values`].
unsafe fn looked_up(addresses: *const Address, count: usize) -> Vec<profiler::Address> {
    // SAFETY: by the condition of this function.
    let addresses = unsafe { values(addresses, count) };
    addresses.iter().map(|address| address.to_looked_up()).collect()
}

/// The symbols at addresses of a process; null after an error.
/// There are `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_symbolizer_symbolize_process(
    symbolizer: &mut Symbolizer,
    pid: u32,
    addresses: *const Address,
    count: usize,
    error: *mut *mut Error,
) -> *mut Symbols {
    // SAFETY: see the crate.
    let addresses = unsafe { looked_up(addresses, count) };
    let symbols = symbolizer.0.symbolize(pid, &addresses).map(|symbols| Symbols::new(&symbols));
    // SAFETY: see the crate.
    unsafe { give_result(symbols, error) }
}

/// The symbols at offsets in a file; null after an error.
/// `path` ends with a null byte, and there are `count` offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_symbolizer_symbolize_file(
    symbolizer: &mut Symbolizer,
    path: *const c_char,
    offsets: *const Address,
    count: usize,
    error: *mut *mut Error,
) -> *mut Symbols {
    // SAFETY: see the crate.
    let path = unsafe { path_of(path) };
    // SAFETY: see the crate.
    let offsets = unsafe { looked_up(offsets, count) };
    let symbols = symbolizer.0.symbolize_file(path, &offsets).map(|symbols| Symbols::new(&symbols));
    // SAFETY: see the crate.
    unsafe { give_result(symbols, error) }
}

/// The symbols at addresses of the running kernel.
/// There are `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_symbolizer_symbolize_kernel(
    symbolizer: &mut Symbolizer,
    addresses: *const Address,
    count: usize,
) -> *mut Symbols {
    // SAFETY: see the crate.
    let addresses = unsafe { looked_up(addresses, count) };
    give(Symbols::new(&symbolizer.0.symbolize_kernel(&addresses)))
}

/// Frees a symbolizer, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_symbolizer_free(symbolizer: *mut Symbolizer) {
    // SAFETY: see the crate.
    drop(unsafe { take(symbolizer) });
}

/// The number of symbols, one for each address.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_count(symbols: &Symbols) -> usize {
    symbols.0.len()
}

/// The number of functions at an address: at least 1, and more where there are inlined ones. 0 for an index that does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_functions(symbols: &Symbols, symbol: usize) -> usize {
    symbols.0.get(symbol).map_or(0, |symbol| symbol.functions.len())
}

/// The name of a function, innermost first; the address in brackets where there is no symbol. It lives as long as the symbols. Null
/// for an index that does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_name(symbols: &Symbols, symbol: usize, function: usize) -> *const c_char {
    symbols.function(symbol, function).map_or(ptr::null(), |function| function.name.as_ptr())
}

/// The source file of a function; null if it is not known. It lives as long as the symbols.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_file(symbols: &Symbols, symbol: usize, function: usize) -> *const c_char {
    let location = symbols.function(symbol, function).and_then(|function| function.location.as_ref());
    location.map_or(ptr::null(), |(file, _)| file.as_ptr())
}

/// The line in the source file of a function; 0 if it is not known.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_line(symbols: &Symbols, symbol: usize, function: usize) -> u32 {
    let location = symbols.function(symbol, function).and_then(|function| function.location.as_ref());
    location.map_or(0, |(_, line)| *line)
}

/// The path of the file that the code is from; null for JIT code and unmapped addresses. It lives as long as the symbols.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_symbols_module(symbols: &Symbols, symbol: usize) -> *const c_char {
    let module = symbols.0.get(symbol).and_then(|symbol| symbol.module.as_ref());
    module.map_or(ptr::null(), |module| module.as_ptr())
}

/// Frees symbols, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_symbols_free(symbols: *mut Symbols) {
    // SAFETY: see the crate.
    drop(unsafe { take(symbols) });
}
