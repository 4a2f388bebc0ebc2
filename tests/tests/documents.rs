//! Checks the documents: every user-visible reason is explained, links lead to files, the README is short.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Display},
    fs,
    path::{Component, Path, PathBuf},
};

use profiler::profile::{EventSessionCause, Loss, MissedTick, Reason, StackEnd};
use profiler_tests::situations::{PROCESSES, SERVICES, Situation};

const README_MAX_WORDS: usize = 1_200;

const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

#[test]
fn every_reason_for_an_unsymbolized_frame_is_explained() {
    assert_explained(Reason::ALL.iter());
}

#[test]
fn every_loss_of_a_sample_is_explained() {
    assert_all_variants("Loss", Loss::ALL);
    assert_explained(Loss::ALL.iter());
}

#[test]
fn every_cause_of_a_missed_tick_is_explained() {
    assert_all_variants("MissedTick", MissedTick::ALL);
    assert_explained(MissedTick::ALL.iter());
}

#[test]
fn every_cause_of_an_event_session_is_explained() {
    assert_all_variants("EventSessionCause", EventSessionCause::ALL);
    assert_explained(EventSessionCause::ALL.iter());
}

#[test]
fn every_end_reason_of_a_stack_is_explained() {
    assert_all_variants("StackEnd", StackEnd::ALL);
    assert_explained(StackEnd::ALL.iter());
}

#[test]
fn every_situation_with_a_known_cause_is_in_the_table() {
    let page = read("docs/waiting.md");
    let rows = SERVICES.iter().chain(&PROCESSES).map(Situation::row);
    let missing: Vec<_> = rows.filter(|row| !page.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "docs/waiting.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= README_MAX_WORDS, "README.md has {words} words, {README_MAX_WORDS} are the limit");
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut checked = 0;
    for document in documents() {
        for link in links(&read(&document)) {
            let target = resolved(&document, &link);
            let in_repository = target.as_ref().is_some_and(|path| root().join(path).exists());
            assert!(in_repository, "{document}: `{link}` leads nowhere");
            checked += 1;
        }
    }
    assert!(checked > 0, "no document has a link");
}

#[test]
fn every_test_that_the_security_policy_names_exists() {
    let policy = read("SECURITY.md");
    let (_, table) = policy.split_once("## Attacks and their tests").unwrap();
    let named = table.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2);
    let named: BTreeSet<&str> = named.collect();
    assert!(named.len() > 20, "{named:?}");
    let mut sources = String::new();
    for folder in ["crates", "profiler/src", "tests/tests"] {
        read_rust_files(&root().join(folder), &mut sources);
    }
    for name in named {
        assert!(sources.contains(&format!("fn {name}()")), "SECURITY.md names the test `{name}`");
    }
}

fn read_rust_files(folder: &Path, to: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_rust_files(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            to.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_page_in_docs_is_reachable_from_the_readme() {
    let mut reached = BTreeSet::new();
    let mut pending = vec!["README.md".to_owned()];
    while let Some(document) = pending.pop() {
        if reached.insert(document.clone()) {
            let targets = links(&read(&document)).into_iter().filter_map(|link| resolved(&document, &link));
            pending.extend(targets.filter(|target| is_markdown(target) && root().join(target).is_file()));
        }
    }
    let pages: Vec<String> = documents().into_iter().filter(|path| path.starts_with("docs/")).collect();
    assert!(!pages.is_empty(), "docs has no page");
    for page in pages {
        assert!(reached.contains(&page), "no chain of links leads from README.md to {page}");
    }
}

#[test]
fn links_are_found_in_text_and_not_in_code() {
    let text = "[a](b.md) ![c](d/e.svg#x) `[f](g.md)` [h](https://i)\n```\n[j](k.md)\n```\n[l](#m)";
    assert_eq!(links(text), ["b.md", "d/e.svg"]);
    assert_eq!(resolved("docs/a.md", "../b.md").as_deref(), Some("b.md"));
    assert_eq!(resolved("docs/a.md", "../../b.md"), None);
}

/// Checks that each value has a table row that begins with its text and its name in the library.
fn assert_explained<'a, T: Debug + Display + 'a>(values: impl Iterator<Item = &'a T>) {
    let page = read(TROUBLESHOOTING);
    let mut count = 0;
    for value in values {
        let beginning = format!("| {value} | `{value:?}` | ");
        let row = page.lines().find(|line| line.starts_with(&beginning));
        let row =
            row.unwrap_or_else(|| panic!("{TROUBLESHOOTING} has no row that begins with `{beginning}`"));
        let explanation = row[beginning.len()..].split_whitespace().count();
        assert!(explanation > 3, "{TROUBLESHOOTING} does not explain `{value}`");
        count += 1;
    }
    assert!(count > 0, "nothing was checked");
}

/// Fails if `known` lacks a variant of the enum, which may have gained one.
fn assert_all_variants<T: Debug>(name: &str, known: &[T]) {
    let known: BTreeSet<String> = known.iter().map(|value| format!("{value:?}")).collect();
    assert_eq!(variants(name), known, "the variants of {name}");
}

/// The variants of a public enum without fields, as its declaration in the sources lists them.
fn variants(name: &str) -> BTreeSet<String> {
    let declaration = format!("pub enum {name} {{");
    let sources = files("rs");
    let found = sources.iter().find_map(|path| {
        let text = read(path);
        let (_, body) = text.split_once(&declaration)?;
        body.split_once("\n}").map(|(body, _)| body.to_owned())
    });
    let body = found.unwrap_or_else(|| panic!("no source declares `{declaration}`"));
    let names = body.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    names.filter_map(|line| line.strip_suffix(',')).map(str::to_owned).collect()
}

/// The targets of relative links outside of code, without their anchors.
fn links(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for rest in prose.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else { continue };
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:") {
                found.push(path.to_owned());
            }
        }
    }
    found
}

/// The repository path that a link of a document leads to. `None` for links out of the repository.
fn resolved(document: &str, link: &str) -> Option<String> {
    let mut path = PathBuf::from(document);
    path.pop();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir if !path.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.to_str().map(str::to_owned)
}

fn is_markdown(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

fn documents() -> Vec<String> {
    files("md")
}

/// The files of the repository with this extension, relative to its root.
fn files(extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(&root(), extension, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let is_output = name == "target" || name.to_string_lossy().starts_with('.');
        // Symbolic links are skipped: one of them leads to a folder that is searched anyway.
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !is_output {
            collect(&path, extension, found);
        } else if kind.is_file() && path.extension().is_some_and(|of| of == extension) {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
