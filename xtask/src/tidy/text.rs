//! Rules on a file's name and text.

use std::path::Path;

use memchr::memmem;

use crate::project;

/// A longer file is more than one file.
const MAX_LINES: usize = 600;

/// Names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 8] = ["common", "helper", "helpers", "misc", "type", "types", "util", "utils"];

/// The rules on a Rust file.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let rules = [first_line, length, module_name, sleeping_test, refusal];
    rules.iter().filter_map(|rule| rule(path, text)).map(|broken| format!("{path}: {broken}")).collect()
}

fn first_line(_: &str, text: &str) -> Option<String> {
    (!text.starts_with("//! ")).then(|| "the first line must say what the file does: `//! ...`".to_owned())
}

fn length(_: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| format!("{lines} lines, more than {MAX_LINES}"))
}

fn module_name(path: &str, _: &str) -> Option<String> {
    let mut names = Path::new(path).iter().map(|part| part.to_string_lossy());
    let empty = names.find(|name| EMPTY_NAMES.contains(&name.trim_end_matches(".rs")))?;
    Some(format!("`{empty}` does not say what is inside"))
}

/// A test waits for what it expects, until a deadline; time alone proves nothing.
fn sleeping_test(path: &str, text: &str) -> Option<String> {
    const SLEEP: &str = concat!("thread", "::sleep");
    let tests = if path.starts_with("tests/") { Some(0) } else { text.find("#[cfg(test)]") };
    let sleeps = tests.and_then(|start| text.get(start..)).is_some_and(|tests| tests.contains(SLEEP));
    sleeps.then(|| format!("a test must wait for an event, not `{SLEEP}`"))
}

/// A message that refuses a value says that it "is not a valid filter", not that it "is no filter".
fn refusal(_: &str, text: &str) -> Option<String> {
    const WRONG: &str = concat!("}` is ", "no ");
    text.contains(WRONG).then(|| format!("`{WRONG}...` in a message is not English: `is not a valid ...`"))
}

/// Longer subjects are cut by `git log --oneline` and by the lists of pull requests.
const MAX_SUBJECT: usize = 72;

/// The rule on the first line of a commit message.
pub(super) fn commit_subject(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    (length > MAX_SUBJECT)
        .then(|| format!("the subject of the last commit has {length} characters, more than {MAX_SUBJECT}"))
}

/// Strings that would tie the project to one machine. In pieces, so that this file passes.
const FORBIDDEN: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/."),
    concat!("/ho", "me/"),
    concat!("index.", "crates.io"),
    concat!("py", "pi.org"),
    concat!("registry.", "npmjs"),
    concat!("deb.", "debian.org"),
    concat!("static.", "rust-lang.org"),
];

/// Any file, binary ones too: paths of the machine and hosts of registries.
pub(super) fn forbidden_strings(path: &str, content: &[u8]) -> Vec<String> {
    let here = project::root().to_string_lossy();
    let contains = |string: &&str| memmem::find(content, string.as_bytes()).is_some();
    let found = FORBIDDEN.into_iter().chain([&*here]).filter(contains);
    found.map(|string| format!("{path}: names a machine or registry: {string}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> String {
        check(path, text).join("\n")
    }

    #[test]
    fn a_file_that_says_what_it_is_for_passes() {
        assert_eq!(broken("profiler/src/elf/notes.rs", "//! Notes.\n\nuse object::elf;\n"), "");
    }

    #[test]
    fn a_file_must_say_what_it_is_for() {
        assert!(broken("profiler/src/elf/notes.rs", "use object::elf;\n").contains("first line"));
    }

    #[test]
    fn a_file_must_not_be_too_long() {
        let text = "//! Long.\n".repeat(MAX_LINES + 1);
        assert!(broken("profiler/src/elf/notes.rs", &text).contains("601 lines"));
    }

    #[test]
    fn a_module_must_not_have_an_empty_name() {
        assert!(broken("profiler/src/utils.rs", "//! All.\n").contains("utils"));
        assert!(broken("tests/helpers/mod.rs", "//! All.\n").contains("helpers"));
        assert_eq!(broken("profiler-common/src/lib.rs", "//! All.\n"), "");
    }

    #[test]
    fn a_test_must_not_sleep() {
        let sleep = format!("//! Waits.\nfn wait() {{ {}(second) }}\n", concat!("thread", "::sleep"));
        assert!(broken("tests/tests/native.rs", &sleep).contains("wait for an event"));
        assert_eq!(broken("profiler/src/session.rs", &sleep), "");
        let unit_test = sleep.replace("fn wait", "#[cfg(test)]\nfn wait");
        assert!(broken("profiler/src/session.rs", &unit_test).contains("wait for an event"));
    }

    #[test]
    fn a_message_that_refuses_a_value_must_be_english() {
        let message = concat!("//! Parses.\n#[error(\"`{text}` is ", "no filter\")]\n");
        assert!(broken("profiler/src/filter.rs", message).contains("is not a valid"));
        assert_eq!(broken("profiler/src/filter.rs", &message.replace("no filter", "not a valid filter")), "");
    }

    #[test]
    fn the_subject_of_a_commit_must_fit_into_a_line() {
        assert_eq!(commit_subject(&"x".repeat(72)), None);
        assert!(commit_subject(&"x".repeat(73)).unwrap().contains("73 characters"));
    }

    #[test]
    fn no_file_may_name_the_machine_or_a_registry() {
        for string in FORBIDDEN.into_iter().chain([project::root().to_str().unwrap()]) {
            let content = [b"\xff\0 ", string.as_bytes(), b"x"].concat();
            assert!(!forbidden_strings("file.bin", &content).is_empty(), "{string}");
        }
        assert!(forbidden_strings("file.bin", b"/proc/1/root/etc and crates.io").is_empty());
    }
}
