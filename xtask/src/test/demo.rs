//! Runs `cargo xtask run` and checks the flame graph that it draws.

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;
use roxmltree::{Document, ParsingOptions};

use crate::{run, shell, workspace::cargo};

/// Functions of `tests/workloads/demo.rs` that use most of its time.
const FUNCTIONS: [&str; 4] = ["count_words", "find_primes", "make_text", "sort_by_count"];

/// Runs the command and reads its picture.
pub(crate) fn check() -> Result<()> {
    let path = run::flame_graph();
    if path.exists() {
        fs::remove_file(&path)?;
    }
    shell::run(&mut cargo(&["xtask", "run"]))?;
    let svg = fs::read_to_string(&path).with_context(|| format!("{} was not written", path.display()))?;
    check_picture(&svg)
}

fn check_picture(svg: &str) -> Result<()> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let picture =
        Document::parse_with_options(svg, options).context("the flame graph is not well-formed XML")?;
    ensure!(picture.root_element().has_tag_name("svg"), "the flame graph is no SVG document");
    let titles = picture.descendants().filter(|node| node.has_tag_name("title"));
    let titles: Vec<_> = titles.filter_map(|title| title.text()).collect();
    for function in FUNCTIONS {
        let is_shown = titles.iter().any(|title| title.contains(function));
        ensure!(is_shown, "the flame graph of the demo does not show {function}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(names: &[&str]) -> String {
        let boxes = names.iter().map(|name| format!("<g><title>demo::{name} (9 samples)</title></g>"));
        format!(
            "<?xml version=\"1.0\"?><!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"svg11.dtd\"><svg>{}</svg>",
            boxes.collect::<String>()
        )
    }

    #[test]
    fn a_picture_with_all_functions_passes() {
        check_picture(&picture(&FUNCTIONS)).unwrap();
    }

    #[test]
    fn a_missing_function_is_named() {
        let error = check_picture(&picture(&FUNCTIONS[1..])).unwrap_err().to_string();
        assert!(error.contains(FUNCTIONS[0]), "{error}");
    }

    #[test]
    fn a_cut_or_foreign_document_is_refused() {
        let whole = picture(&FUNCTIONS);
        assert!(check_picture(&whole[..whole.len() / 2]).is_err());
        assert!(check_picture(&whole.replace("svg", "html")).is_err());
    }
}
