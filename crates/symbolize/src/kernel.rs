//! Names of kernel code: `/proc/kallsyms`, read as a stream and kept small.

use std::io::{self, Read};

use super::{
    hexadecimal::parse_hexadecimal,
    names::{Name, Names},
};
use profiler_addresses::RuntimeAddress;
use profiler_profile::Reason;

/// How much is read at a time; also the longest line that is understood.
const CHUNK_BYTES: usize = 64 << 10;

/// Lines that are looked at. A kernel with all its modules and data symbols has 300,000.
const MAX_LINES: usize = 4 << 20;

/// Names are cut here: the kernel's own limit (`KSYM_NAME_LEN`) is 512.
const MAX_NAME_BYTES: usize = 512;

/// How far the last function of the kernel or of a module may reach: `/proc/kallsyms` says where functions
/// begin, not where they end.
const MAX_LAST_BYTES: u64 = 16 << 10;

/// The functions of the kernel and its modules.
#[derive(Debug)]
pub struct KernelSymbols {
    /// By address, each address once.
    symbols: Vec<Symbol>,
    names: Names,
    /// The first stands for the kernel itself.
    modules: Vec<Box<str>>,
}

/// Where a function begins, or, without a name, where the one before it ends.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    name_offset: u32,
    name_length: u16,
    module: u16,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    pub name: &'a str,
    /// Without brackets; `None` for the kernel itself.
    pub module: Option<&'a str>,
}

impl KernelSymbols {
    /// Reads the text of `/proc/kallsyms`.
    ///
    /// # Errors
    /// `KernelSymbolsNotReadable`, or `KernelAddressesHidden` where all addresses are zero.
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
            parser.take_lines(&buffer[..lines]);
            buffer.copy_within(lines..filled, 0);
            filled -= lines;
            if filled == buffer.len() || parser.lines >= MAX_LINES {
                break;
            }
        }
        parser.take_lines(&buffer[..filled]);
        parser.finish()
    }

    /// The function that `address` belongs to.
    pub fn lookup(&self, address: RuntimeAddress) -> Option<KernelFunction<'_>> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address.0);
        let symbol = self.symbols.get(behind.checked_sub(1)?)?;
        let is_last = self.symbols.get(behind).is_none_or(|next| next.module != symbol.module);
        if symbol.is_end() || (is_last && address.0 - symbol.address >= MAX_LAST_BYTES) {
            return None;
        }
        let name = self.names.get(symbol.name());
        let module = if symbol.module == 0 { None } else { self.modules.get(usize::from(symbol.module)) };
        Some(KernelFunction { name, module: module.map(|name| &**name) })
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

/// One line: `ffffffffc0201000 t name<TAB>[module]`.
struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a [u8],
    module: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (digits, rest) = line.split_at_checked(memchr::memchr(b' ', line)?)?;
        let [b' ', kind, b' ', rest @ ..] = rest else { return None };
        let name_end = memchr::memchr(b'\t', rest).unwrap_or(rest.len());
        let (name, module) = rest.split_at(name_end);
        let module = module.strip_prefix(b"\t[").and_then(|module| module.strip_suffix(b"]"));
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        Some(Self {
            address: parse_hexadecimal(digits)?,
            kind: *kind,
            name,
            module: module.unwrap_or_default(),
        })
    }

    /// Whether a function begins here: nm(1)'s types for code, and for weak symbols.
    fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W') && !is_marker(self.name)
    }
}

/// The function that the code behind a symbol belongs to; `None` when the symbol is none of a function.
pub(super) fn function_name(symbol: &str) -> Option<&str> {
    let is_function = !is_marker(symbol.as_bytes()) && !is_label(symbol.as_bytes());
    is_function.then(|| PADDINGS.iter().find_map(|prefix| symbol.strip_prefix(prefix)).unwrap_or(symbol))
}

/// Whether it only names the start or end of a range of code.
fn is_marker(name: &[u8]) -> bool {
    match name {
        b"_text" | b"_stext" | b"_etext" | b"_sinittext" | b"_einittext" => true,
        [b'_', b'_', .., b't' | b'd'] => name.ends_with(b"text_start") || name.ends_with(b"text_end"),
        _ => false,
    }
}

/// Whether it is a label inside a function.
fn is_label(name: &[u8]) -> bool {
    matches!(name, [] | [b'$', ..] | [b'.', b'L', ..])
}

/// What the symbol of the bytes before a function's entry begins with. They count as the function's own: some
/// mitigations run code in them.
const PADDINGS: [&str; 2] = ["__pfx_", "__cfi_"];

/// The function whose entry a symbol pads.
fn padded_function(name: &[u8]) -> Option<&[u8]> {
    PADDINGS.iter().find_map(|prefix| name.strip_prefix(prefix.as_bytes()))
}

/// Collects symbols line by line.
struct Parser {
    symbols: Vec<Symbol>,
    names: Names,
    modules: Vec<Box<str>>,
    /// Index of the module of the line before: lines of a module stand together.
    module: u16,
    lines: usize,
    /// The name of the symbol before, when that is the padding in front of a function.
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
    fn take_lines(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let end = memchr::memchr(b'\n', text).unwrap_or(text.len());
            let (line, rest) = text.split_at(end);
            self.take_line(line);
            text = rest.get(1..).unwrap_or_default();
        }
    }

    fn take_line(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(line) = Line::parse(line) else { return };
        // Below lie offsets of per-CPU variables, and zeros where addresses are hidden.
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
        let Some(Name { offset, length }) = self.names.push(name) else { return };
        let Ok(name_length) = u16::try_from(length) else { return };
        self.symbols.push(Symbol { address: line.address, name_offset: offset, name_length, module });
    }

    /// Data ends the function before it. Of data in a row the first is enough, where addresses ascend as
    /// they do in the kernel itself.
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
        let is_it = |module: &str| module.as_bytes() == name;
        if !self.modules.get(usize::from(self.module)).is_some_and(|module| is_it(module)) {
            let index = self.modules.iter().position(|module| is_it(module)).unwrap_or_else(|| {
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
        // Stable: of several names of one address the kernel lists the one it would print itself first.
        self.symbols.sort_by_key(|symbol| (symbol.address, symbol.is_end()));
        self.symbols.dedup_by_key(|symbol| symbol.address);
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
        Ok(KernelSymbols { symbols: self.symbols, names: self.names, modules: self.modules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _stext\n\
        ffffffff81000000 T startup\n\
        ffffffff81000000 T _text\n\
        ffffffff81000100 t __pfx_do_work\n\
        ffffffff81000110 t do_work\n\
        ffffffff81000118 t .Llabel\n\
        ffffffff8100011c t $x\n\
        ffffffff81000200 W weak\n\
        ffffffff81000200 t alias\n\
        ffffffff81000300 T __sched_text_start\n\
        ffffffff81000300 T schedule\n\
        ffffffff81000400 T __sched_text_end\n\
        ffffffff81001000 T _etext\n\
        ffffffff82000000 D data\n\
        ffffffff83000000 T init\n\
        ffffffffc0300000 d module_data\t[xfs]\n\
        ffffffffc0201000 t xfs_write\t[xfs]\n\
        ffffffffc0200000 t xfs_read\t[xfs]\n\
        ffffffffc0400000 t bpf_prog_6deef7357e7b4530_f\t[bpf]\n";

    fn name(symbols: &KernelSymbols, address: u64) -> Option<&str> {
        symbols.lookup(RuntimeAddress(address)).map(|function| function.name)
    }

    #[test]
    fn an_address_belongs_to_the_function_that_begins_before_it() {
        let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0000), Some("startup"));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_01ff), Some("do_work"));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0200), Some("weak"));
        assert_eq!(name(&symbols, 0xffff_ffff_80ff_ffff), None);
        assert_eq!(name(&symbols, 0), None);
    }

    #[test]
    fn the_padding_before_a_function_is_its_own() {
        let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
        for address in 0xffff_ffff_8100_0100..0xffff_ffff_8100_0200 {
            assert_eq!(name(&symbols, address), Some("do_work"));
        }
    }

    #[test]
    fn functions_end_where_their_section_or_code_ends() {
        let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
        assert_eq!(name(&symbols, 0xffff_ffff_8100_03ff), Some("schedule"));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0400), None);
        assert_eq!(name(&symbols, 0xffff_ffff_8100_1000), None);
        assert_eq!(name(&symbols, 0xffff_ffff_8200_0000), None);
        assert_eq!(name(&symbols, 0xffff_ffff_8300_0000 + MAX_LAST_BYTES - 1), Some("init"));
        assert_eq!(name(&symbols, 0xffff_ffff_8300_0000 + MAX_LAST_BYTES), None);
        assert_eq!(name(&symbols, u64::MAX), None);
    }

    #[test]
    fn functions_of_modules_and_bpf_programs_name_their_module() {
        let symbols = KernelSymbols::read(TEXT.as_bytes()).unwrap();
        let found = |address| symbols.lookup(RuntimeAddress(address));
        let xfs = |name| Some(KernelFunction { name, module: Some("xfs") });
        assert_eq!(found(0xffff_ffff_c020_0fff), xfs("xfs_read"));
        assert_eq!(found(0xffff_ffff_c020_1000), xfs("xfs_write"));
        assert_eq!(found(0xffff_ffff_c030_0000), None);
        assert_eq!(found(0xffff_ffff_c040_0010).unwrap().module, Some("bpf"));
        assert_eq!(found(0xffff_ffff_8100_0110).unwrap().module, None);
    }

    #[test]
    fn hidden_addresses_are_not_mistaken_for_symbols() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t do_work\n0000000000000000 t x\t[xfs]\n";
        for text in [hidden, "          (null) T _stext\n", "no symbols at all\n"] {
            assert_eq!(KernelSymbols::read(text.as_bytes()).unwrap_err(), Reason::KernelAddressesHidden);
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::PermissionDenied.into())
            }
        }
        assert_eq!(KernelSymbols::read(Fails).unwrap_err(), Reason::KernelSymbolsNotReadable);
        assert_eq!(KernelSymbols::read(io::empty()).unwrap_err(), Reason::KernelSymbolsNotReadable);
    }

    /// Hands out a few bytes at a time, as `/proc` does with a page.
    struct Portions<'a>(&'a [u8], usize);

    impl Read for Portions<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (portion, rest) = self.0.split_at(count);
            buffer[..count].copy_from_slice(portion);
            self.0 = rest;
            Ok(count)
        }
    }

    #[test]
    fn portions_of_any_size_give_the_same_symbols() {
        let whole = KernelSymbols::read(TEXT.as_bytes()).unwrap();
        for size in 1..TEXT.len() {
            let parts = KernelSymbols::read(Portions(TEXT.as_bytes(), size)).unwrap();
            assert_eq!(format!("{parts:?}"), format!("{whole:?}"));
        }
    }

    #[test]
    fn damaged_text_never_panics() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..5_000 {
            let mut text = TEXT.as_bytes().to_vec();
            for _ in 0..random.u64(0..20) {
                let at = random.u64(0..text.len() as u64) as usize;
                text[at] = random.u64(0..256) as u8;
            }
            if let Ok(symbols) = KernelSymbols::read(&text[..]) {
                symbols.lookup(RuntimeAddress(0xffff_ffff_8100_0000 + random.u64(0..0x4000)));
            }
        }
    }

    #[test]
    fn a_line_longer_than_a_chunk_ends_the_reading() {
        let text = format!("{TEXT}ffffffffc0500000 t {}\n", "x".repeat(3 * CHUNK_BYTES));
        let symbols = KernelSymbols::read(text.as_bytes()).unwrap();
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0110), Some("do_work"));
        assert_eq!(name(&symbols, 0xffff_ffff_c050_0000).map(str::len), Some(MAX_NAME_BYTES));
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let file = std::fs::File::open("/proc/kallsyms").unwrap();
        match KernelSymbols::read(file) {
            Ok(symbols) => assert!(symbols.symbols.len() > 1_000),
            Err(reason) => assert_eq!(reason, Reason::KernelAddressesHidden),
        }
    }
}
