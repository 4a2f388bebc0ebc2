//! Fits titles and call paths into a number of terminal columns.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

use crate::short_name::{TYPE_AND_METHOD, fitting_name, forms};

/// Replaces omitted text.
const GAP: &str = "...";

/// The separator of the frames of a path.
const ARROW: &str = " > ";

/// Fits a title into `width` columns by cutting its middle.
pub(super) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(GAP.len());
    let (head, tail) = (kept / 2, kept - kept / 2);
    let text: String =
        text.chars().take(head).chain(GAP.chars()).chain(text.chars().skip(length - tail)).collect();
    Cow::Owned(text.chars().take(width).collect())
}

/// Fits a call path, the name of a process and functions from the root on, into `width` columns: with the longest forms of all names with
/// which it fits, else the process and as many functions next to the leaf as fit.
pub(super) fn fit_path(path: &[String], width: usize) -> String {
    let mut whole = (0..=TYPE_AND_METHOD).map(|form| in_form(path, form).join(ARROW));
    whole.find(|whole| whole.width() <= width).unwrap_or_else(|| ends(path, width))
}

/// The process, and the functions in a form of their names.
fn in_form(path: &[String], form: usize) -> Vec<Cow<'_, str>> {
    let process = path.iter().take(1).map(|name| Cow::Borrowed(&**name));
    process.chain(path.iter().skip(1).map(|name| forms(name)[form].clone())).collect()
}

/// The process of a path that does not fit, and as many functions next to the leaf as fit.
fn ends(path: &[String], width: usize) -> String {
    let short = in_form(path, TYPE_AND_METHOD);
    let (Some(leaf), Some((_, callers))) = (path.last(), short.split_last()) else { return String::new() };
    let mut shown = match short.last() {
        Some(leaf) if leaf.width() <= width => leaf.clone().into_owned(),
        _ => fitting_name(leaf, width),
    };
    let Some((process, callers)) = callers.split_first() else { return shown };
    let beginning = format!("{process}{ARROW}{GAP}{ARROW}");
    let has_process = shown.width() + beginning.width() <= width;
    let columns = width.saturating_sub(if has_process { beginning.width() } else { 0 });
    for caller in callers.iter().rev() {
        if caller.width() + ARROW.len() + shown.width() > columns {
            break;
        }
        shown.insert_str(0, ARROW);
        shown.insert_str(0, caller);
    }
    if has_process { format!("{beginning}{shown}") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_loses_its_middle() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefghij", 7), "ab...ij");
        assert_eq!(fit("h\u{e9}h\u{e9}h\u{e9}h\u{e9}", 6), "h...h\u{e9}");
        assert_eq!(fit("abcdef", 2), "..");
        assert_eq!(fit("abcdef", 0), "");
    }

    #[test]
    fn a_path_keeps_its_root_and_leaf() {
        let path = ["app", "main", "run", "parse", "read"].map(String::from);
        assert_eq!(fit_path(&path, 80), "app > main > run > parse > read");
        assert_eq!(fit_path(&path, 31), "app > main > run > parse > read");
        assert_eq!(fit_path(&path, 30), "app > ... > run > parse > read");
        assert_eq!(fit_path(&path, 24), "app > ... > parse > read");
        assert_eq!(fit_path(&path, 20), "app > ... > read");
        assert_eq!(fit_path(&path, 14), "parse > read");
        assert_eq!(fit_path(&path, 3), "rea");
        assert_eq!(fit_path(&path[..1], 10), "app");
        assert_eq!(fit_path(&[], 10), "");
    }

    #[test]
    fn a_path_that_does_not_fit_has_shorter_forms_of_all_names_first() {
        let path =
            ["app", "App!Shop.Web.Main()", "App!Shop.Cart`1[System.__Canon].Get(int, int)"].map(String::from);
        assert_eq!(fit_path(&path, 80), path.join(ARROW));
        assert_eq!(fit_path(&path, 60), "app > Shop.Web.Main > Shop.Cart`1[System.__Canon].Get");
        assert_eq!(fit_path(&path, 40), "app > Shop.Web.Main > Shop.Cart`1.Get");
        assert_eq!(fit_path(&path, 30), "app > Web.Main > Cart`1.Get");
        assert_eq!(fit_path(&path, 24), "app > ... > Cart`1.Get");
        assert_eq!(fit_path(&path, 7), "Get");
    }

    #[test]
    fn no_line_exceeds_the_width() {
        let path =
            ["a process", "main", "h\u{e9}llo w\u{f6}rld", "x", "leaf of some length"].map(String::from);
        for width in 0..70 {
            assert!(fit_path(&path, width).width() <= width);
            assert!(fit(&path[4], width).chars().count() <= width);
        }
    }
}
