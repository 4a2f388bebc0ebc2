//! Replaces the generated part of a document, which is between two markers.

#![cfg(feature = "commands")]

use anyhow::{Context as _, Result};
use fs_err as fs;

use crate::project;

/// Writes `content` between the markers `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a file of the project.
pub(crate) fn write(file: &str, name: &str, content: &str) -> Result<()> {
    let path = project::root().join(file);
    let text = fs::read_to_string(&path)?;
    let written = replaced(&text, name, content)
        .with_context(|| format!("{file} has no `{name}:begin` and `{name}:end`"))?;
    Ok(fs::write(path, written)?)
}

fn replaced(text: &str, name: &str, content: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{content}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_content_replaces_the_previous_content() {
        let text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let once = replaced(text, "x", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert_eq!(replaced(&once, "x", "new\n").unwrap(), once);
        assert_eq!(replaced("no markers", "x", "new\n"), None);
    }
}
