//! Runs `cargo xtask run` and checks the flame graph that it draws.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use quick_xml::{Reader, events::Event};

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
    let titles = titles(svg)?;
    for function in FUNCTIONS {
        let is_shown = titles.iter().any(|title| title.contains(function));
        ensure!(is_shown, "the flame graph of the demo does not show {function}");
    }
    Ok(())
}

/// The content of all `<title>` elements of a well-formed SVG document.
fn titles(svg: &str) -> Result<Vec<String>> {
    let mut reader = Reader::from_str(svg);
    let (mut root, mut depth, mut in_title, mut titles) = (None, 0_u32, false, Vec::new());
    loop {
        match reader.read_event().context("the flame graph is not well-formed XML")? {
            Event::Start(element) => {
                depth += 1;
                in_title = element.name().as_ref() == b"title";
                root.get_or_insert_with(|| element.name().as_ref().to_vec());
            }
            Event::Text(text) if in_title => titles.push(String::from_utf8_lossy(&text).into_owned()),
            Event::End(_) => {
                depth -= 1;
                in_title = false;
            }
            Event::Eof => break,
            _ => {}
        }
    }
    ensure!(depth == 0, "the flame graph is cut");
    ensure!(root.as_deref() == Some(b"svg".as_slice()), "the flame graph is no SVG document");
    Ok(titles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(names: &[&str]) -> String {
        let boxes = names.iter().map(|name| format!("<g><title>demo::{name} (9 samples)</title></g>"));
        format!("<?xml version=\"1.0\"?><svg>{}</svg>", boxes.collect::<String>())
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
