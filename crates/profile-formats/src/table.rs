//! Fits headings and call paths into a number of terminal columns.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

use crate::short_name::{TYPE_AND_METHOD, fitting_name, forms, truncated};

/// Replaces omitted callers.
const GAP: &str = "...";

/// Separates the parts of a heading.
const COMMA: &str = ", ";

/// The separator of the frames of a path.
const ARROW: &str = " > ";

/// Divides a heading between its parts into lines of at most `width` columns. A part that is longer is truncated.
pub(super) fn wrapped(heading: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::<String>::new();
    for part in heading.split_inclusive(COMMA) {
        match lines.last_mut() {
            Some(line) if format!("{line}{part}").trim_end().width() <= width => line.push_str(part),
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| truncated(line.trim_end(), width)).collect()
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
    fn a_heading_is_divided_between_its_parts() {
        let heading = "wall at 49 Hz, 10.0 s, 151443 samples";
        assert_eq!(wrapped(heading, 80), [heading]);
        assert_eq!(wrapped(heading, 25), ["wall at 49 Hz, 10.0 s,", "151443 samples"]);
        assert_eq!(wrapped(heading, 8), ["wall a..", "10.0 s,", "151443.."]);
        assert!(wrapped("", 8).is_empty());
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
            assert!(wrapped(&path.join(COMMA), width).iter().all(|line| line.width() <= width));
        }
    }
}
