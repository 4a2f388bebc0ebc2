//! Names that fit: what tells functions apart stays; module, arguments and namespaces go first. As on the page.

use unicode_width::UnicodeWidthStr;

/// What compilers put behind a name, after a point: no part of it.
const SUFFIXES: [&str; 7] = ["cold", "part", "constprop", "isra", "lto_priv", "llvm", "shim"];

/// The longest form of a name that fits so many columns, the end of the shortest cut where none does.
pub(super) fn fitting(name: &str, columns: usize) -> String {
    let forms = shorter(name);
    let fits = forms.iter().find(|form| form.width() <= columns);
    fits.or(forms.last()).map(|form| cut(form, columns)).unwrap_or_default()
}

/// The beginning of a text that fits, with a mark when something is missing.
pub(super) fn cut(text: &str, columns: usize) -> String {
    const MARK: &str = "..";
    if text.width() <= columns {
        return text.to_owned();
    }
    let room = if columns > 2 * MARK.len() { columns - MARK.len() } else { columns };
    let mut kept = String::new();
    let mut width = 0;
    for c in text.chars() {
        let mut bytes = [0; 4];
        width += c.encode_utf8(&mut bytes).width();
        if width > room {
            break;
        }
        kept.push(c);
    }
    if room < columns {
        kept.push_str(MARK);
    }
    kept
}

/// From the whole name to the shortest that still says something.
fn shorter(name: &str) -> Vec<&str> {
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

/// Without `module!`.
fn without_module(name: &str) -> &str {
    let end = name.find(['!', '(', '<']).filter(|end| name[*end..].starts_with('!'));
    end.map(|end| &name[end + 1..]).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Without the parentheses at its end, and what stands behind them.
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

/// Where the parts of a name begin that a separator stands before, outside of what is in brackets.
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
    fn module_arguments_and_namespaces_go_first() {
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
    fn what_has_no_parts_loses_its_end() {
        assert_eq!(fitting("[libcoreclr.so+0x2a0e70]", 12), "[libcorecl..");
        assert_eq!(fitting("do_syscall.part.0", 14), "do_syscall.p..");
        assert_eq!(fitting("/usr/lib/a.so", 10), "/usr/lib..");
        assert_eq!(fitting("operator()", 9), "operator");
    }

    #[test]
    fn width_is_that_of_a_terminal() {
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
