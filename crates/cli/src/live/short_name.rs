//! Shortens function names to a number of columns: first module, arguments and namespaces are removed, as in the HTML page.

use unicode_width::UnicodeWidthStr;

/// Suffixes that compilers append to a name after a point.
const SUFFIXES: [&str; 7] = ["cold", "part", "constprop", "isra", "lto_priv", "llvm", "shim"];

/// The longest form of a name that fits the columns. If no form fits, the shortest form is truncated.
pub(super) fn fitting(name: &str, columns: usize) -> String {
    let forms = forms(name);
    let fits = forms.iter().find(|form| form.width() <= columns);
    fits.or(forms.last()).map(|form| truncate(form, columns)).unwrap_or_default()
}

/// Truncates a text to the columns, with a mark at the end.
pub(super) fn truncate(text: &str, columns: usize) -> String {
    const MARK: &str = "..";
    if text.width() <= columns {
        return text.to_owned();
    }
    let text_columns = if columns > 2 * MARK.len() { columns - MARK.len() } else { columns };
    let mut kept = String::new();
    let mut width = 0;
    for c in text.chars() {
        let mut bytes = [0; 4];
        width += c.encode_utf8(&mut bytes).width();
        if width > text_columns {
            break;
        }
        kept.push(c);
    }
    if text_columns < columns {
        kept.push_str(MARK);
    }
    kept
}

/// The forms of a name, from the longest to the shortest.
fn forms(name: &str) -> Vec<&str> {
    let mut forms = vec![name];
    if name.starts_with(['[', '(']) {
        return forms;
    }
    let bare = without_module(name);
    let called = without_arguments(bare);
    forms.extend([bare, called]);
    if !called.contains([' ', '/']) {
        let starts = part_starts(called);
        let last = |back: usize| starts.len().checked_sub(back).and_then(|index| starts.get(index));
        forms.extend([2, 1].into_iter().filter_map(last).map(|start| &called[*start..]));
    }
    forms.dedup();
    forms.retain(|form| !form.trim().is_empty());
    forms
}

/// The name without `module!`.
fn without_module(name: &str) -> &str {
    let end = name.find(['!', '(', '<']).filter(|end| name[*end..].starts_with('!'));
    end.map(|end| &name[end + 1..]).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// The name without the parameter list at its end and the qualifiers after it.
fn without_arguments(name: &str) -> &str {
    let Some(end) = name.rfind(')') else { return name };
    if !name[end + 1..].is_empty() && !name[end + 1..].starts_with(' ') {
        return name;
    }
    let mut open = 0;
    for (at, c) in name[..=end].char_indices().rev() {
        match c {
            ')' => open += 1,
            '(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return if at == 0 { name } else { name[..at].trim_end() };
        }
    }
    name
}

/// The offsets after separators outside of brackets.
fn part_starts(name: &str) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut open = 0_i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' | '[' | '(' => open += 1,
            '>' | ']' | ')' => open -= 1,
            ':' if open == 0 && name[..at].ends_with(':') => starts.push(at + 1),
            '.' if open == 0 && !is_suffix(&name[at + 1..]) => starts.push(at + 1),
            _ => {}
        }
    }
    starts.retain(|start| *start < name.len());
    starts
}

fn is_suffix(rest: &str) -> bool {
    rest.is_empty()
        || rest.starts_with(|c: char| c.is_ascii_digit())
        || SUFFIXES.iter().any(|suffix| rest.starts_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_arguments_and_namespaces_are_removed_first() {
        let name = "System.Private.CoreLib!System.String.Concat(string, string)";
        for (columns, expected) in [
            (80, name),
            (40, "System.String.Concat(string, string)"),
            (30, "System.String.Concat"),
            (15, "String.Concat"),
            (8, "Concat"),
            (5, "Con.."),
            (3, "Con"),
            (0, ""),
        ] {
            assert_eq!(fitting(name, columns), expected);
        }
        assert_eq!(fitting("tree::walk<std::list<int>>(Node*) const", 20), "walk<std::list<int>>");
        assert_eq!(fitting("core::fmt::write", 12), "fmt::write");
    }

    #[test]
    fn names_without_parts_are_truncated() {
        assert_eq!(fitting("[libcoreclr.so+0x2a0e70]", 12), "[libcorecl..");
        assert_eq!(fitting("do_syscall.part.0", 14), "do_syscall.p..");
        assert_eq!(fitting("/usr/lib/a.so", 10), "/usr/lib..");
        assert_eq!(fitting("operator()", 9), "operator");
    }

    #[test]
    fn widths_are_columns_of_a_terminal() {
        assert_eq!(fitting("\u{6f22}\u{5b57}\u{6f22}\u{5b57}", 7), "\u{6f22}\u{5b57}..");
        assert_eq!(fitting("\u{6f22}\u{5b57}", 3), "\u{6f22}");
        for name in
            ["a::b<c>::(d)e", "((", "))", "a(b", "<.>", ".", "::", "", "!", "\u{301}x", "a!b!c", ") x"]
        {
            for columns in 0..12 {
                assert!(fitting(name, columns).width() <= columns, "{name}");
            }
        }
    }
}
