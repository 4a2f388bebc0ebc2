//! Names of functions that never return.

/// Functions of C and C++ libraries that the C standard (7.22.4, `_Noreturn`), POSIX, the Itanium C++ ABI (2.4.3, 2.5) or
/// the headers of glibc and musl (`__attribute__((noreturn))`) declare not to return.
const NAMES: &[&[u8]] = &[
    b"_Exit",
    b"_Unwind_Resume",
    b"_Unwind_Resume_or_Rethrow",
    b"_ZSt10unexpectedv",
    b"_ZSt9terminatev",
    b"__assert",
    b"__assert_fail",
    b"__assert_perror_fail",
    b"__chk_fail",
    b"__clang_call_terminate",
    b"__cxa_bad_cast",
    b"__cxa_bad_typeid",
    b"__cxa_call_terminate",
    b"__cxa_call_unexpected",
    b"__cxa_deleted_virtual",
    b"__cxa_pure_virtual",
    b"__cxa_rethrow",
    b"__cxa_throw",
    b"__cxa_throw_bad_array_new_length",
    b"__fortify_fail",
    b"__libc_fatal",
    b"__libc_start_main",
    b"__longjmp_chk",
    b"__stack_chk_fail",
    b"_exit",
    b"_longjmp",
    b"abort",
    b"err",
    b"errx",
    b"exit",
    b"longjmp",
    b"pthread_exit",
    b"quick_exit",
    b"siglongjmp",
    b"thrd_exit",
    b"verr",
    b"verrx",
];

/// Parts of the mangled names of functions of type `!` in Rust's `core`, `alloc` and `std`: the panic entry points.
const RUST_PARTS: &[&[u8]] = &[
    b"4core9panicking5panic17h",
    b"4core9panicking9panic_fmt17h",
    b"4core9panicking18panic_bounds_check17h",
    b"4core9panicking14panic_nounwind17h",
    b"4core9panicking19panic_cannot_unwind17h",
    b"4core9panicking16panic_in_cleanup17h",
    b"4core9panicking19assert_failed_inner17h",
    b"4core9panicking13assert_failed17h",
    b"4core6option13unwrap_failed17h",
    b"4core6option13expect_failed17h",
    b"4core6result13unwrap_failed17h",
    b"4core4cell22panic_already_borrowed17h",
    b"4core4cell30panic_already_mutably_borrowed17h",
    b"5alloc5alloc18handle_alloc_error17h",
    b"5alloc7raw_vec12handle_error17h",
    b"5alloc7raw_vec17capacity_overflow17h",
    b"3std9panicking20rust_panic_with_hook17h",
    b"3std9panicking11begin_panic17h",
    b"3std9panicking15begin_panic_handler",
];

/// Whether functions of this (mangled) name never return. The names are those of C, C++ and Rust libraries.
pub fn never_returns(name: &[u8]) -> bool {
    NAMES.binary_search(&name).is_ok()
        // std::__throw_logic_error(char const*) and its siblings of libstdc++ (bits/functexcept.h).
        || (name.starts_with(b"_ZSt") && contains(name, b"__throw_"))
        || (name.starts_with(b"_ZN") && RUST_PARTS.iter().any(|part| contains(name, part)))
}

fn contains(name: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(name, part).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_binary_search() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn functions_with_similar_names_return() {
        for name in [
            "abort",
            "exit",
            "__stack_chk_fail",
            "_ZSt20__throw_length_errorPKc",
            "_ZN4core9panicking5panic17h0123456789abcdefE",
        ] {
            assert!(never_returns(name.as_bytes()), "{name}");
        }
        for name in ["atexit", "exit_group", "_ZN3std9panicking3try17h0123456789abcdefE", ""] {
            assert!(!never_returns(name.as_bytes()), "{name}");
        }
    }
}
