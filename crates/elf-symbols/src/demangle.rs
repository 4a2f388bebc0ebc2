//! Demangling of Rust and C++ symbol names, with limits on length and nesting.

use std::fmt::{self, Write};

#[cfg(feature = "cpp-demangle")]
use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

use profiler_binary_reader::text_of;

/// The longest name that is returned. Longer ones are truncated.
const MAX_NAME_BYTES: usize = 16 << 10;

/// The maximum nesting of a C++ name. Real templates nest less, and any stack size suffices for it.
#[cfg(feature = "cpp-demangle")]
const MAX_CPP_DEPTH: u32 = 96;

/// The maximum nesting of a C++ name with more local names (`Z`) than [`MAX_DEEP_LOCAL_NAMES`].
#[cfg(feature = "cpp-demangle")]
const MAX_CPP_DEPTH_OF_LOCAL_NAMES: u32 = 64;

/// cpp_demangle parses a local name again for each local name around it when the rest of the name is invalid: each level
/// doubles the time.
#[cfg(feature = "cpp-demangle")]
const MAX_DEEP_LOCAL_NAMES: usize = 8;

/// Converts a symbol to a function name: demangled, without the symbol version, and with invalid UTF-8 escaped. C++
/// names need the feature `cpp-demangle`.
pub fn demangle(symbol: &[u8]) -> String {
    let symbol = without_version(symbol);
    let text = text_of(symbol);
    demangle_rust(&text).or_else(|| demangle_cpp(symbol)).unwrap_or_else(|| truncate_name(text.into_owned()))
}

/// `memcpy` for `memcpy@@GLIBC_2.14`.
fn without_version(symbol: &[u8]) -> &[u8] {
    match memchr::memchr(b'@', symbol) {
        Some(length) if length > 0 => &symbol[..length],
        _ => symbol,
    }
}

fn demangle_rust(symbol: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(symbol).ok()?;
    let mut name = BoundedName::default();
    // The alternate form omits the hash.
    write!(name, "{demangled:#}").ok()?;
    Some(name.text)
}

/// Without the feature `cpp-demangle`, C++ names stay as they are.
#[cfg(not(feature = "cpp-demangle"))]
fn demangle_cpp(_: &[u8]) -> Option<String> {
    None
}

#[cfg(feature = "cpp-demangle")]
fn demangle_cpp(symbol: &[u8]) -> Option<String> {
    if !symbol.starts_with(b"_Z") && !symbol.starts_with(b"_GLOBAL_") || symbol.len() > MAX_NAME_BYTES {
        return None;
    }
    let local_names = memchr::memchr_iter(b'Z', symbol).count();
    let max_depth =
        if local_names > MAX_DEEP_LOCAL_NAMES { MAX_CPP_DEPTH_OF_LOCAL_NAMES } else { MAX_CPP_DEPTH };
    let options = ParseOptions::default().recursion_limit(max_depth);
    let parsed = BorrowedSymbol::new_with_options(symbol, &options).ok()?;
    let mut name = BoundedName::default();
    parsed.structured_demangle(&mut name, &DemangleOptions::new().recursion_limit(MAX_CPP_DEPTH)).ok()?;
    Some(name.text)
}

/// Truncates a name to the maximum length. A checksum of the whole name distinguishes those with the same start.
pub(crate) fn truncate_name(mut text: String) -> String {
    if text.len() <= MAX_NAME_BYTES {
        return text;
    }
    let end = format!("...{:08x}", crc32fast::hash(text.as_bytes()));
    let mut length = MAX_NAME_BYTES - end.len();
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    text.truncate(length);
    text + &end
}

/// Accepts text up to the limit and then fails: a short mangled name can expand to a name of exponential length.
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
    fn other_names_are_unchanged() {
        for name in ["main", "_start", "_Zebra", "_ZN", "_R", "Java_com_x", "", "@odd", "_ZN3fooE17h"] {
            assert_eq!(demangle(name.as_bytes()), name);
        }
    }

    #[test]
    fn a_symbol_version_is_not_part_of_the_name() {
        assert_eq!(demangle(b"memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle(b"_ZN5space3fooEi@VERSION"), "space::foo(int)");
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        assert_eq!(demangle(b"a\xffb"), "a\\x{ff}b");
    }

    #[test]
    fn long_names_are_truncated() {
        assert_eq!(demangle(&vec![b'a'; 1 << 20]).len(), MAX_NAME_BYTES);
        let [one, other] = [b"b", b"c"].map(|end| demangle(&[&[b'a'; MAX_NAME_BYTES][..], end].concat()));
        assert_ne!(one, other, "names with the same start");
        assert!(demangle("ä".repeat(MAX_NAME_BYTES).as_bytes()).len() <= MAX_NAME_BYTES);
        assert!(demangle(&[b"_Z".as_slice(), &vec![b'P'; 1 << 16]].concat()).len() <= MAX_NAME_BYTES);
    }

    #[test]
    fn lambdas_in_lambdas_keep_their_names() {
        let symbol = b"_ZZZZZ4mainENKUlvE_clEvENKUlvE_clEvENKUlvE_clEvENKUlvE_clEv";
        assert!(
            demangle(symbol).starts_with("main::{lambda()#1}::operator()() const::"),
            "{}",
            demangle(symbol)
        );
    }

    #[test]
    fn a_name_that_doubles_with_every_level_stays_within_the_limit() {
        // Each level is a pair of the previous level, so that the size doubles.
        let mut symbol = b"_Z1f4pairI1AS0_E".to_vec();
        for level in 0..34_u8 {
            let reference = char::from_digit(u32::from(level) + 1, 36).unwrap().to_ascii_uppercase();
            symbol.extend(format!("S_IS{reference}_S{reference}_E").bytes());
        }
        assert!(demangle(&symbol).len() <= MAX_NAME_BYTES);
    }

    #[cfg(feature = "cpp-demangle")]
    mod measured {
        use std::time::Duration;

        use rustix::time::{ClockId, clock_gettime};

        use super::*;

        fn cpu_time() -> Duration {
            Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
        }

        /// The shortest CPU time of an invalid name of so many nested local names.
        fn time_of(levels: usize) -> Duration {
            let symbol = format!("_{}", "ZNStStIiSa3vecSa6vect".repeat(levels));
            let time = || {
                let begin = cpu_time();
                assert_eq!(demangle(symbol.as_bytes()), symbol);
                cpu_time() - begin
            };
            (0..5).map(|_| time()).min().unwrap()
        }

        /// Without a limit on local names, each level doubles the time up to the greatest nesting of a name: that of 15 levels
        /// is two hundred times that of 7, and with it that of 10 levels is eight times as long.
        #[test]
        fn an_invalid_name_of_nested_local_names_is_rejected_soon() {
            let reference = time_of(7);
            for levels in 8..27 {
                let time = time_of(levels);
                println!("{levels} levels: {time:?}, 7 levels: {reference:?}");
                assert!(time < 32 * reference, "{levels} levels: {time:?}, 7 levels: {reference:?}");
            }
        }
    }
}
