//! Fits names and call paths into a number of terminal columns.

use std::borrow::Cow;

/// Replaces omitted text.
const GAP: &str = "...";

/// The separator of the frames of a path.
const ARROW: &str = " > ";

/// Fits a text into `width` columns by cutting its middle, because both ends of a name identify it.
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

/// Fits a call path, root first, into `width` columns: its root and as many frames next to the leaf as fit.
pub(super) fn fit_path(path: &[String], width: usize) -> String {
    let Some((leaf, callers)) = path.split_last() else { return String::new() };
    let length = |text: &str| text.chars().count();
    let mut shown = fit(leaf, width).into_owned();
    let Some((root, callers)) = callers.split_first() else { return shown };
    let beginning = format!("{root}{ARROW}");
    let with_gap = length(&beginning) + length(GAP) + length(ARROW);
    let whole = length(&beginning) + callers.iter().map(|frame| length(frame) + length(ARROW)).sum::<usize>();
    if length(&shown) + whole <= width {
        return format!(
            "{}{leaf}",
            path[..path.len() - 1].iter().map(|frame| format!("{frame}{ARROW}")).collect::<String>()
        );
    }
    let has_root = length(&shown) + with_gap <= width;
    let room = width.saturating_sub(if has_root { with_gap } else { 0 });
    for frame in callers.iter().rev() {
        if length(frame) + length(ARROW) + length(&shown) > room {
            break;
        }
        shown.insert_str(0, ARROW);
        shown.insert_str(0, frame);
    }
    if has_root { format!("{beginning}{GAP}{ARROW}{shown}") } else { shown }
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
        assert_eq!(fit_path(&path, 3), "...");
        assert_eq!(fit_path(&path[..1], 10), "app");
        assert_eq!(fit_path(&[], 10), "");
    }

    #[test]
    fn no_line_exceeds_the_width() {
        let path =
            ["a process", "main", "h\u{e9}llo w\u{f6}rld", "x", "leaf of some length"].map(String::from);
        for width in 0..70 {
            assert!(fit_path(&path, width).chars().count() <= width);
            assert!(fit(&path[4], width).chars().count() <= width);
        }
    }
}
