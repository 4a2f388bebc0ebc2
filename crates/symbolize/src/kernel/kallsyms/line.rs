//! Parses a line of `/proc/kallsyms` and classifies its symbol.

use crate::hexadecimal::parse_hexadecimal;

/// Longer names are shortened. The kernel's limit is 512 (`KSYM_NAME_LEN`).
pub(super) const MAX_NAME_BYTES: usize = 512;

/// A line, such as `ffffffffc0201000 t name<TAB>[module]`.
pub(super) struct Line<'a> {
    pub(super) address: u64,
    kind: u8,
    pub(super) name: &'a [u8],
    pub(super) module: &'a [u8],
}

impl<'a> Line<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let (digits, rest) = line.split_at_checked(memchr::memchr(b' ', line)?)?;
        let [b' ', kind, b' ', rest @ ..] = rest else { return None };
        let name_end = memchr::memchr(b'\t', rest).unwrap_or(rest.len());
        let (name, module) = rest.split_at(name_end);
        let module = module.strip_prefix(b"\t[").and_then(|module| module.strip_suffix(b"]"));
        Some(Self {
            address: parse_hexadecimal(digits)?,
            kind: *kind,
            name,
            module: module.unwrap_or_default(),
        })
    }

    /// Whether it is the symbol of a function: the types of nm(1) for code and for weak symbols.
    pub(super) fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W') && !is_marker(self.name)
    }
}

/// The name of the function that a symbol belongs to; `None` for other symbols.
pub(in crate::kernel) fn function_name(symbol: &str) -> Option<&str> {
    let is_function = !is_marker(symbol.as_bytes()) && !is_label(symbol.as_bytes());
    is_function
        .then(|| PADDING_PREFIXES.iter().find_map(|prefix| symbol.strip_prefix(prefix)).unwrap_or(symbol))
}

/// Whether it is a symbol at the start or end of a section.
fn is_marker(name: &[u8]) -> bool {
    match name {
        b"_text" | b"_stext" | b"_etext" | b"_sinittext" | b"_einittext" => true,
        [b'_', b'_', .., b't' | b'd'] => name.ends_with(b"text_start") || name.ends_with(b"text_end"),
        _ => false,
    }
}

/// Whether it is a label inside a function.
pub(super) fn is_label(name: &[u8]) -> bool {
    matches!(name, [] | [b'$', ..] | [b'.', b'L', ..])
}

/// Prefixes of the symbols of padding before the entry of a function. The padding belongs to the function, because
/// mitigations (call depth tracking, kCFI) put code there.
const PADDING_PREFIXES: [&str; 2] = ["__pfx_", "__cfi_"];

/// The name of the function that follows the padding with this symbol.
pub(super) fn padded_function(name: &[u8]) -> Option<&[u8]> {
    PADDING_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix.as_bytes()))
}
