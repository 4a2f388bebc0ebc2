//! The symbol table of the kernel and its modules, from `/proc/kallsyms`.

mod line;

use std::io::{self, Read};

use profiler_addresses::RuntimeAddress;
use profiler_profile::Reason;

pub(super) use self::line::function_name;
use self::line::{Line, MAX_NAME_BYTES, is_label, padded_function};
use super::KernelFunction;
use profiler_binary_reader::{Name, Names, shortened};

/// Bytes per read; also the maximum length of a line.
const CHUNK_BYTES: usize = 64 << 10;

/// Lines that are read. A kernel with many modules and data symbols has 300,000.
const MAX_LINES: usize = 4 << 20;

/// Assumed maximum size of the last function of the kernel or of a module: `/proc/kallsyms` contains start addresses but
/// no sizes.
const MAX_LAST_FUNCTION_BYTES: u64 = 16 << 10;

/// The functions of the kernel and its modules.
#[derive(Debug)]
pub struct KernelSymbols {
    /// Sorted by address, without duplicates.
    symbols: Vec<Symbol>,
    names: Names,
    /// Names of the modules. Index 0 is the kernel itself.
    modules: Vec<Box<str>>,
}

/// The start of a function. An empty name marks the end of the previous function.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    name_offset: u32,
    name_length: u16,
    module: u16,
}

impl KernelSymbols {
    /// Parses the text of `/proc/kallsyms`.
    ///
    /// # Errors
    /// `KernelSymbolsNotReadable` when it cannot be read, `KernelAddressesHidden` when all addresses are zero.
    pub fn read(mut reader: impl Read) -> Result<Self, Reason> {
        let mut parser = Parser::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut filled = 0;
        loop {
            let read = match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Reason::KernelSymbolsNotReadable),
            };
            filled += read;
            let lines = memchr::memrchr(b'\n', &buffer[..filled]).map_or(0, |end| end + 1);
            parser.parse_lines(&buffer[..lines]);
            buffer.copy_within(lines..filled, 0);
            filled -= lines;
            if filled == buffer.len() || parser.lines >= MAX_LINES {
                break;
            }
        }
        parser.parse_lines(&buffer[..filled]);
        parser.finish()
    }

    /// The function that contains `address`.
    pub fn lookup(&self, address: RuntimeAddress) -> Option<KernelFunction> {
        let next = self.symbols.partition_point(|symbol| symbol.address <= address.0);
        let symbol = self.symbols.get(next.checked_sub(1)?)?;
        let is_last = self.symbols.get(next).is_none_or(|next| next.module != symbol.module);
        if symbol.is_end() || (is_last && address.0 - symbol.address >= MAX_LAST_FUNCTION_BYTES) {
            return None;
        }
        let name = self.names.get(symbol.name());
        let module = if symbol.module == 0 { None } else { self.modules.get(usize::from(symbol.module)) };
        Some(KernelFunction {
            name: name.to_owned(),
            module: module.map(|name| name.to_string()),
            offset: address.0 - symbol.address,
        })
    }
}

impl Symbol {
    fn is_end(self) -> bool {
        self.name_length == 0
    }

    fn name(self) -> Name {
        Name { offset: self.name_offset, length: u32::from(self.name_length) }
    }
}

/// Parses lines into symbols.
struct Parser {
    symbols: Vec<Symbol>,
    names: Names,
    modules: Vec<Box<str>>,
    /// Module index of the previous line. The lines of a module are adjacent.
    module: u16,
    lines: usize,
    /// The function name in the previous symbol, when that is the symbol of padding.
    padding: Vec<u8>,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            symbols: Vec::new(),
            names: Names::default(),
            modules: vec![Box::default()],
            module: 0,
            lines: 0,
            padding: Vec::new(),
        }
    }
}

impl Parser {
    fn parse_lines(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
            let (line, rest) = text.split_at(end);
            self.parse_line(line);
            text = rest.get(1..).unwrap_or_default();
        }
    }

    fn parse_line(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(line) = Line::parse(line) else { return };
        // Lower addresses are offsets of per-CPU variables, or zeros when addresses are hidden.
        if line.address < RuntimeAddress::KERNEL_START.0 || is_label(line.name) {
            return;
        }
        let Some(module) = self.module_index(line.module) else { return };
        if line.is_function() {
            self.push_function(&line, module);
        } else {
            self.push_end(line.address, module);
        }
    }

    fn push_function(&mut self, line: &Line<'_>, module: u16) {
        let is_padded = !self.padding.is_empty() && self.padding == line.name;
        self.padding.clear();
        if is_padded {
            return;
        }
        let padded = padded_function(line.name);
        self.padding.extend_from_slice(padded.unwrap_or_default());
        let name = padded.unwrap_or(line.name);
        let Some(Name { offset, length }) = self.names.push(&shortened(name, MAX_NAME_BYTES)) else { return };
        let Ok(name_length) = u16::try_from(length) else { return };
        self.symbols.push(Symbol { address: line.address, name_offset: offset, name_length, module });
    }

    /// Adds a symbol that ends the previous function, such as one of data. The first of consecutive ones is sufficient in
    /// the kernel itself, where addresses ascend.
    fn push_end(&mut self, address: u64, module: u16) {
        let follows_end = |last: &Symbol| last.is_end() && last.module == module && last.address <= address;
        if module != 0 || !self.symbols.last().is_some_and(follows_end) {
            self.symbols.push(Symbol { address, name_offset: 0, name_length: 0, module });
        }
    }

    fn module_index(&mut self, name: &[u8]) -> Option<u16> {
        if name.is_empty() {
            return Some(0);
        }
        let matches = |module: &str| module.as_bytes() == name;
        if !self.modules.get(usize::from(self.module)).is_some_and(|module| matches(module)) {
            let index = self.modules.iter().position(|module| matches(module)).unwrap_or_else(|| {
                self.modules.push(String::from_utf8_lossy(name).into());
                self.modules.len() - 1
            });
            self.module = u16::try_from(index).ok()?;
        }
        Some(self.module)
    }

    fn finish(mut self) -> Result<KernelSymbols, Reason> {
        if self.lines == 0 {
            return Err(Reason::KernelSymbolsNotReadable);
        }
        if self.symbols.iter().all(|symbol| symbol.is_end()) {
            return Err(Reason::KernelAddressesHidden);
        }
        // The sort is stable: of several symbols at an address, the kernel lists the one that it prints itself first.
        self.symbols.sort_by_key(|symbol| (symbol.address, symbol.is_end()));
        self.symbols.dedup_by_key(|symbol| symbol.address);
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
        Ok(KernelSymbols { symbols: self.symbols, names: self.names, modules: self.modules })
    }
}

#[cfg(test)]
mod tests;
