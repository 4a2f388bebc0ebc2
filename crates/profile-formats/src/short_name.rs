//! Shortens names of functions to a number of columns: module, arguments, type arguments and namespaces are removed in this order,
//! as in the HTML page.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::label;

/// Suffixes that compilers append to a name after a point. They belong to the function.
const SUFFIXES: [&str; 7] = ["cold", "part", "constprop", "isra", "lto_priv", "llvm", "shim"];

/// The form of a name that has the type and the method alone.
pub(super) const TYPE_AND_METHOD: usize = 4;

/// The longest form of a function's name that fits into these columns. If no form fits, the method is truncated.
///
/// ```
/// use profiler_profile_formats::fitting_name;
///
/// let name = "System.Private.CoreLib!System.String.Concat(string, string)";
/// assert_eq!(fitting_name(name, 20), "System.String.Concat");
/// assert_eq!(fitting_name(name, 10), "Concat");
/// ```
#[must_use]
pub fn fitting_name(name: &str, columns: usize) -> String {
    let forms = forms(name);
    let fits = forms.iter().find(|form| form.width() <= columns);
    let [.., shortest] = &forms;
    truncated(fits.unwrap_or(shortest), columns)
}

/// A function with its module where both fit into these columns, and its name does not have the module; else the form of its name that
/// fits.
///
/// ```
/// use profiler_profile_formats::fitting_function;
///
/// assert_eq!(fitting_function("malloc(size_t)", "libc.so.6", 40), "malloc(size_t) (libc.so.6)");
/// assert_eq!(fitting_function("malloc(size_t)", "libc.so.6", 10), "malloc");
/// ```
#[must_use]
pub fn fitting_function(name: &str, module: &str, columns: usize) -> String {
    let whole = label::with_module(name, module);
    if whole.width() <= columns { whole } else { fitting_name(name, columns) }
}

/// Truncates a text to these columns, with a mark at the end.
///
/// ```
/// assert_eq!(profiler_profile_formats::truncated("compute", 5), "com..");
/// ```
#[must_use]
pub fn truncated(text: &str, columns: usize) -> String {
    const MARK: &str = "..";
    if text.width() <= columns {
        return text.to_owned();
    }
    let text_columns = if columns > 2 * MARK.len() { columns - MARK.len() } else { columns };
    let mut width = 0;
    let fits = |c: &char| {
        width += c.width().unwrap_or_default();
        width <= text_columns
    };
    let kept: String = text.chars().take_while(fits).collect();
    if text_columns < columns { kept + MARK } else { kept }
}

/// The forms of a name, from the full name to the shortest one that identifies the function. Where a part is missing, two forms are
/// equal.
pub(super) fn forms(name: &str) -> [Cow<'_, str>; 6] {
    if name.starts_with(['[', '(']) {
        return [(); 6].map(|()| Cow::Borrowed(name));
    }
    let bare = without_module(name);
    let called = without_arguments(bare);
    let plain = without_generics(called);
    let [method_of_type, method] = [2, 1].map(|parts| Cow::Owned(last_parts(&plain, parts).to_owned()));
    let mut forms =
        [Cow::Borrowed(name), Cow::Borrowed(bare), Cow::Borrowed(called), plain, method_of_type, method];
    for index in 1..forms.len() {
        if forms[index].trim().is_empty() {
            forms[index] = forms[index - 1].clone();
        }
    }
    forms
}

/// The name without `module!`.
fn without_module(name: &str) -> &str {
    let end = name.find(['!', '(', '<']).filter(|end| name[*end..].starts_with('!'));
    end.map(|end| &name[end + 1..]).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// The name without the parentheses at its end, and without what follows them after a space.
fn without_arguments(name: &str) -> &str {
    let end = name.find(") ").map_or(name, |at| &name[..=at]);
    if !end.ends_with(')') {
        return name;
    }
    let mut open = 0;
    for (at, c) in end.char_indices().rev() {
        match c {
            ')' => open += 1,
            '(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return if at == 0 { name } else { end[..at].trim_end() };
        }
    }
    name
}

/// The name without angle and square brackets and their content, except for operators such as `operator<`.
fn without_generics(name: &str) -> Cow<'_, str> {
    if name.contains("operator") {
        return Cow::Borrowed(name);
    }
    let (mut plain, mut open) = (String::with_capacity(name.len()), 0_i32);
    for c in name.chars() {
        match c {
            '<' | '[' => open += 1,
            '>' | ']' => open -= 1,
            c if open == 0 => plain.push(c),
            _ => {}
        }
    }
    if open != 0 {
        return Cow::Borrowed(name);
    }
    let plain = plain.replace("(anonymous namespace)::", "");
    let mut plain = plain.strip_prefix("::").unwrap_or(&plain).to_owned();
    // A part that was a type alone leaves its separator.
    while plain.contains("::::") {
        plain = plain.replace("::::", "::");
    }
    Cow::Owned(plain)
}

/// The last parts of a name: namespaces, types and function. A name with spaces or slashes has no parts.
fn last_parts(name: &str, parts: usize) -> &str {
    let starts = if name.contains([' ', '\t', '/']) { Vec::new() } else { part_starts(name) };
    let start = starts.len().checked_sub(parts).and_then(|index| starts.get(index)).copied();
    &name[start.unwrap_or(0)..]
}

/// The offsets after separators.
fn part_starts(name: &str) -> Vec<usize> {
    let after_colons = name.match_indices("::").map(|(at, colons)| at + colons.len());
    let after_points =
        name.match_indices('.').map(|(at, _)| at + 1).filter(|start| !is_suffix(&name[*start..]));
    let mut starts: Vec<_> = after_colons.chain(after_points).filter(|start| *start < name.len()).collect();
    starts.sort_unstable();
    starts
}

fn is_suffix(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_ascii_digit()) || SUFFIXES.iter().any(|suffix| rest.starts_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_arguments_generics_and_namespaces_are_removed_in_this_order() {
        let name = "System.Private.CoreLib!System.Collections.Generic.List`1[System.__Canon].Add(!0)";
        let expected = [
            name,
            "System.Collections.Generic.List`1[System.__Canon].Add(!0)",
            "System.Collections.Generic.List`1[System.__Canon].Add",
            "System.Collections.Generic.List`1.Add",
            "List`1.Add",
            "Add",
        ];
        assert_eq!(forms(name), expected);
        for form in expected {
            assert_eq!(fitting_name(name, form.len()), form);
        }
        assert_eq!(fitting_name("core::fmt::write", 12), "fmt::write");
        assert_eq!(fitting_name("app::<impl app::Symbolizer>::poll", 12), "app::poll");
    }

    /// The names of `tests/page/names.test.mjs`.
    #[test]
    fn the_shortest_form_is_that_of_the_page() {
        for (name, shortest) in [
            ("std::vector<int, std::allocator<int>>::push_back(int&&)", "push_back"),
            ("<alloc::vec::Vec<T> as core::iter::Extend>::extend", "extend"),
            ("ns::(anonymous namespace)::foo(int) const", "foo"),
            ("app::<impl app::Symbolizer>::poll", "poll"),
            ("foo.part.0", "foo.part.0"),
            ("main.(*T).method", "method"),
            ("operator<<(int)", "operator<<"),
            ("[libfoo.so+0x12]", "[libfoo.so+0x12]"),
            ("LazyCompile:~fib /tmp/a.js:3:13", "LazyCompile:~fib /tmp/a.js:3:13"),
            ("work (a.rs:12)", "work"),
            ("((((", "(((("),
            ("a<b", "a<b"),
            ("", ""),
            ("   ", "   "),
            ("::", "::"),
        ] {
            assert_eq!(forms(name)[5], shortest, "{name}");
        }
    }

    #[test]
    fn the_method_survives() {
        let name = "System.Text.Json!System.Text.Json.Serialization.JsonConverter`1[System.__Canon].TryWrite(\
                    System.Text.Json.Utf8JsonWriter,!0&,System.Text.Json.JsonSerializerOptions,ref WriteStack)";
        assert_eq!(fitting_name(name, 60), "System.Text.Json.Serialization.JsonConverter`1.TryWrite");
        assert_eq!(fitting_name(name, 30), "JsonConverter`1.TryWrite");
        assert_eq!(fitting_name(name, 7), "TryWr..");
    }

    #[test]
    fn names_without_parts_are_truncated() {
        assert_eq!(fitting_name("[libcoreclr.so+0x2a0e70]", 12), "[libcorecl..");
        assert_eq!(fitting_name("do_syscall.part.0", 14), "do_syscall.p..");
        assert_eq!(fitting_name("/usr/lib/a.so", 10), "/usr/lib..");
        assert_eq!(fitting_name("operator()", 9), "operator");
        assert_eq!(fitting_name("compute", 3), "com");
    }

    #[test]
    fn widths_are_columns_of_a_terminal() {
        assert_eq!(fitting_name("\u{6f22}\u{5b57}\u{6f22}\u{5b57}", 7), "\u{6f22}\u{5b57}..");
        assert_eq!(fitting_name("\u{6f22}\u{5b57}", 3), "\u{6f22}");
        for name in [
            "a::b<c>::(d)e",
            "((",
            "))",
            "a(b",
            "<.>",
            ".",
            "::",
            "",
            "!",
            "\u{301}x",
            "a!b!c",
            ") x",
            "a(b) \u{e9}",
        ] {
            for columns in 0..12 {
                assert!(fitting_name(name, columns).width() <= columns, "{name}");
            }
        }
    }
}
