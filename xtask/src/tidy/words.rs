//! Finds banned words in prose and identifiers.

use std::{collections::HashMap, sync::LazyLock};

/// Each line: what is banned, and what to write instead.
const LIST: &str = include_str!("banned_words.txt");

/// Files of these kinds are written by people.
const EXTENSIONS: [&str; 12] = ["c", "cpp", "cs", "css", "h", "html", "js", "md", "mjs", "rs", "sh", "toml"];

/// Where banned words are named as such, or are the words of others.
const EXEMPT: [&str; 4] =
    ["xtask/src/tidy/words.rs", "tests/captures/", "tests/golden/", "tests/fuzz/seeds/"];

/// The entries of the list, by what a text is searched for.
struct Banned {
    /// By their first word, in lower case.
    phrases: HashMap<&'static str, Vec<Phrase>>,
    /// The replacement of each identifier.
    identifiers: HashMap<&'static str, &'static str>,
}

/// Words next to each other, in lower case.
struct Phrase {
    words: Vec<&'static str>,
    /// Whether the last word may have another ending.
    any_ending: bool,
    wrong: &'static str,
    right: &'static str,
}

static BANNED: LazyLock<Banned> = LazyLock::new(|| {
    let mut banned = Banned { phrases: HashMap::new(), identifiers: HashMap::new() };
    for (wrong, right) in entries() {
        if wrong.starts_with(|first: char| first.is_ascii_uppercase()) {
            banned.identifiers.insert(wrong, right);
            continue;
        }
        let phrase = wrong.trim_end_matches('*');
        let words: Vec<_> = phrase.split(' ').collect();
        let first = words.first().copied().unwrap_or_default();
        let phrase = Phrase { words, any_ending: phrase != wrong, wrong, right };
        banned.phrases.entry(first).or_default().push(phrase);
    }
    banned
});

fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" => "))
}

/// A word of a text, in lower case, with its place.
struct Word {
    text: String,
    line: usize,
    /// Whether only spaces, underscores or comment signs are between it and the previous word.
    continues: bool,
}

/// The banned words of a file, each as `PATH:LINE: WRONG => RIGHT`.
pub(super) fn find(path: &str, text: &str) -> Vec<String> {
    let has_prose = path.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension));
    if !has_prose || EXEMPT.iter().any(|place| path.starts_with(place)) {
        return Vec::new();
    }
    let is_rust = path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs");
    let (words, identifiers) = (words(text), if is_rust { identifiers(text) } else { Vec::new() });
    let mut found = Vec::new();
    let mut report = |line, wrong, right| found.push((line, format!("{path}:{line}: {wrong} => {right}")));
    for (index, word) in words.iter().enumerate() {
        let beginnings = word.text.char_indices().map(|(at, last)| &word.text[..at + last.len_utf8()]);
        for phrase in beginnings.filter_map(|beginning| BANNED.phrases.get(beginning)).flatten() {
            if phrase.is_at(&words[index..]) {
                report(word.line, phrase.wrong, phrase.right);
            }
        }
    }
    for (identifier, line) in identifiers {
        if let Some(right) = BANNED.identifiers.get(identifier) {
            report(line, identifier, right);
        }
    }
    found.sort();
    found.into_iter().map(|(_, report)| report).collect()
}

impl Phrase {
    /// Whether a text that goes on with `words` has this phrase there.
    fn is_at(&self, words: &[Word]) -> bool {
        let Some(words) = words.get(..self.words.len()) else { return false };
        let last = self.words.len() - 1;
        words.iter().zip(&self.words).enumerate().all(|(index, (word, wanted))| {
            let has_other_ending = index == last && self.any_ending && word.text.starts_with(wanted);
            (word.text == *wanted || has_other_ending) && (index == 0 || word.continues)
        })
    }
}

/// All words of a text; the parts of an identifier are words.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut separator = String::from("\n");
        let mut previous = None;
        for character in line.chars() {
            if !character.is_alphabetic() {
                separator.push(character);
                previous = None;
                continue;
            }
            let begins =
                previous.is_none_or(|previous: char| previous.is_lowercase() && character.is_uppercase());
            let lower = character.to_lowercase();
            match words.last_mut() {
                Some(word) if !begins => word.text.extend(lower),
                _ => {
                    let continues = separator.chars().all(|sign| " \t\n_-/!*#`".contains(sign));
                    words.push(Word { text: lower.collect(), line: index + 1, continues });
                    separator.clear();
                }
            }
            previous = Some(character);
        }
    }
    words
}

/// All identifiers of a Rust text with their lines, without those in comments.
fn identifiers(text: &str) -> Vec<(&str, usize)> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let code = text.lines().zip(1..).map(|(line, number)| (line.split("//").next().unwrap_or(line), number));
    let words = code.flat_map(|(line, number)| {
        line.split(move |character| !is_part(character)).map(move |word| (word, number))
    });
    words.filter(|(word, _)| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> String {
        find("profiler/src/lib.rs", text).join("\n")
    }

    #[test]
    fn a_phrase_is_found_in_prose_across_lines_and_in_identifiers() {
        assert_eq!(
            found("/// The kernel\n/// side.\n"),
            "profiler/src/lib.rs:1: kernel side => BPF program, BPF side"
        );
        for text in ["kernel-side", "fn kernel_side()", "struct KernelSide;", "KERNEL_SIDE", "Kernel side"] {
            assert!(found(text).contains("BPF program"), "{text}");
        }
    }

    #[test]
    fn words_of_different_sentences_are_no_phrase() {
        for text in ["the kernel. Side by side", "f(kernel, side)", "kernel sides", "a kernelside"] {
            assert_eq!(found(text), "", "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_any_ending() {
        assert!(found("two walkers").contains("unwinder"));
        assert!(found("the allowances").contains("budget"));
    }

    #[test]
    fn a_name_of_a_type_is_the_whole_identifier() {
        assert!(found("struct Ear;").contains(":1: Ear => "));
        assert!(found("let x: Vec<Spaces>;").contains("AddressSpaces"));
        for text in ["struct Early;", "address spaces", "AddressSpaces", "exit code", "/// Code"] {
            assert_eq!(found(text), "", "{text}");
        }
    }

    #[test]
    fn data_and_the_list_itself_are_exempt() {
        for path in ["tests/golden/a.md", "tests/captures/a/b.rs", "xtask/src/tidy/words.rs", "a.json", "a"] {
            assert_eq!(find(path, "nobody"), [""; 0], "{path}");
        }
    }

    #[test]
    fn every_line_of_the_list_is_an_entry_of_its_own() {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        let mut wrong: Vec<_> = entries().map(|(wrong, _)| wrong).collect();
        assert_eq!(wrong.len(), lines, "a line without ` => `");
        wrong.sort_unstable();
        wrong.dedup();
        assert_eq!(wrong.len(), lines, "an entry twice");
    }
}
