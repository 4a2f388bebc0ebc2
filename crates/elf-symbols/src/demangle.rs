//! Names as people write them: Rust and C++ symbols demangled, everything bounded.

use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// The longest name that is given out; longer ones are cut.
const MAX_NAME_BYTES: usize = 16 << 10;

/// How deep a C++ name may nest. Real templates stay below; a stack of any size bears it.
const MAX_CPP_DEPTH: u32 = 96;

/// The name of a function from its symbol: demangled when it is mangled, without a symbol version, and as
/// text whatever its bytes are.
pub fn demangle(symbol: &[u8]) -> String {
    let symbol = without_version(symbol);
    let text = String::from_utf8_lossy(symbol);
    rust(&text).or_else(|| cpp(symbol)).unwrap_or_else(|| cut(text.into_owned()))
}

/// `memcpy` of `memcpy@@GLIBC_2.14`: the version is the linker's business.
fn without_version(symbol: &[u8]) -> &[u8] {
    match memchr::memchr(b'@', symbol) {
        Some(length) if length > 0 => &symbol[..length],
        _ => symbol,
    }
}

fn rust(symbol: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(symbol).ok()?;
    let mut name = BoundedName::default();
    // The alternate form leaves the hash out.
    write!(name, "{demangled:#}").ok()?;
    Some(name.text)
}

fn cpp(symbol: &[u8]) -> Option<String> {
    if !symbol.starts_with(b"_Z") && !symbol.starts_with(b"_GLOBAL_") || symbol.len() > MAX_NAME_BYTES {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(MAX_CPP_DEPTH);
    let parsed = BorrowedSymbol::new_with_options(symbol, &options).ok()?;
    let mut name = BoundedName::default();
    parsed.structured_demangle(&mut name, &DemangleOptions::new().recursion_limit(MAX_CPP_DEPTH)).ok()?;
    Some(name.text)
}

/// At most as much of a text as a name may have.
pub fn cut(mut text: String) -> String {
    let mut length = MAX_NAME_BYTES.min(text.len());
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    text.truncate(length);
    text
}

/// Takes text up to the limit and then fails: a short mangled name can stand for an endless one.
#[derive(Default)]
struct BoundedName {
    text: String,
}

impl Write for BoundedName {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.text.len() + piece.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_lose_their_hash() {
        assert_eq!(demangle(b"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"), "core::fmt::Formatter::pad");
        assert_eq!(demangle(b"_RNvCskwGfYPst2Cb_3foo16example_function"), "foo::example_function");
    }

    #[test]
    fn cpp_names_keep_their_arguments() {
        assert_eq!(demangle(b"_ZN5space3fooEibc"), "space::foo(int, bool, char)");
        assert_eq!(
            demangle(b"_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)"
        );
        assert_eq!(demangle(b"_ZN3FooD1Ev"), "Foo::~Foo()");
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["main", "_start", "_Zebra", "_ZN", "_R", "Java_com_x", "", "@odd", "_ZN3fooE17h"] {
            assert_eq!(demangle(name.as_bytes()), name);
        }
    }

    #[test]
    fn a_symbol_version_is_no_part_of_the_name() {
        assert_eq!(demangle(b"memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle(b"_ZN5space3fooEi@VERSION"), "space::foo(int)");
    }

    #[test]
    fn names_that_are_no_text_become_text() {
        assert_eq!(demangle(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn names_are_bounded() {
        assert_eq!(demangle(&vec![b'a'; 1 << 20]).len(), MAX_NAME_BYTES);
        assert!(demangle("ä".repeat(MAX_NAME_BYTES).as_bytes()).len() <= MAX_NAME_BYTES);
        assert!(demangle(&[b"_Z".as_slice(), &vec![b'P'; 1 << 16]].concat()).len() <= MAX_NAME_BYTES);
    }

    #[test]
    fn a_name_that_doubles_with_every_level_stays_bounded() {
        // Each level is a pair of the one before: 2 to the power of 60 names in all.
        let mut symbol = b"_Z1f4pairI1AS0_E".to_vec();
        for level in 0..34_u8 {
            let back = char::from_digit(u32::from(level) + 1, 36).unwrap().to_ascii_uppercase();
            symbol.extend(format!("S_IS{back}_S{back}_E").bytes());
        }
        assert!(demangle(&symbol).len() <= MAX_NAME_BYTES);
    }
}
