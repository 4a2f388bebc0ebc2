//! Which module of the library may know which: the table of layers, and what only some may name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::rust_code;

/// The library's modules, from the lowest layer up, and what each may import.
const LAYERS: [(&str, &[&str]); 19] = [
    ("address", &[]),
    ("error", &[]),
    ("budget", &[]),
    ("sys", &[]),
    ("elf", &["address", "error", "sys"]),
    ("profile", &["address", "error", "sys"]),
    ("pe", &["address", "error", "budget", "elf"]),
    ("process", &["address", "error", "sys", "elf", "profile"]),
    ("recording", &["address", "error", "profile"]),
    ("shape", &["address", "error", "profile"]),
    ("difference", &["profile"]),
    ("output", &["error", "profile", "recording", "difference"]),
    ("symbolize", &["address", "error", "sys", "budget", "elf", "pe", "profile", "process"]),
    ("sampler", &["address", "error", "sys", "elf", "profile", "process"]),
    ("unwind", &["address", "error", "sys", "budget", "elf", "pe", "profile", "process"]),
    ("session", BELOW_SESSION),
    ("builder", BELOW_SESSION),
    ("doctor", BELOW_SESSION),
    ("fuzz", BELOW_SESSION),
];

const BELOW_SESSION: &[&str] = &[
    "address",
    "error",
    "sys",
    "budget",
    "elf",
    "pe",
    "profile",
    "process",
    "recording",
    "shape",
    "difference",
    "output",
    "symbolize",
    "sampler",
    "unwind",
    "session",
    "builder",
    "doctor",
];

/// The command line sees of the library what every user of it sees.
const COMMAND_LINE: [&str; 2] = ["cli", "main"];

/// The only files below `profiler/src` with unsafe code: system calls, and the promise that the kernel's records are
/// plain bytes.
const UNSAFE_FILES: [&str; 3] = ["sys.rs", "sys/", "sampler/ebpf/pod.rs"];

const AYA_FOLDER: &str = "sampler/ebpf";

/// Modules whose results depend on their arguments alone.
const PURE_MODULES: [&str; 7] = ["elf", "pe", "profile", "recording", "shape", "difference", "output"];

/// What `lib.rs` shows to the outside: name -> the module it comes from.
pub(super) struct PublicNames(BTreeMap<String, String>);

impl PublicNames {
    pub(super) fn of(library: &str) -> Result<Self> {
        let tokens = rust_code::tokens(library)?;
        let mut names = BTreeMap::new();
        for (index, window) in tokens.windows(3).enumerate() {
            let [visibility, keyword, module] = window else { continue };
            match (visibility.as_str(), keyword.as_str()) {
                ("pub", "mod") => drop(names.insert(module.clone(), module.clone())),
                ("pub", "use") => {
                    let until_end = tokens[index + 3..].iter().take_while(|token| *token != ";");
                    names.extend(until_end.map(|name| (name.clone(), module.clone())));
                }
                _ => {}
            }
        }
        Ok(Self(names))
    }
}

/// The rules on a file of the library; other files have no layer.
pub(super) fn check(path: &str, text: &str, public: &PublicNames) -> Result<Vec<String>> {
    let Some(file) = path.strip_prefix("profiler/src/") else { return Ok(Vec::new()) };
    let tokens = rust_code::tokens(text)?;
    let module_path = module_path(file);
    let module = module_path.first().copied().unwrap_or(file.trim_end_matches(".rs"));
    let mut broken = forbidden_words(file, module, &tokens);
    if file != "lib.rs" {
        let imports = imports(&tokens, &module_path);
        broken.extend(imports.iter().filter_map(|name| forbidden_import(module, name, public)));
    }
    Ok(broken.into_iter().map(|rule| format!("{path}: {rule}")).collect())
}

/// `symbolize/dotnet/mod.rs` -> `[symbolize, dotnet]`.
fn module_path(file: &str) -> Vec<&str> {
    let names = file.trim_end_matches(".rs").split('/');
    names.filter(|name| !["mod", "lib", "main"].contains(name)).collect()
}

/// The names at the crate's root that a file mentions, by `crate::` or enough of `super::`.
fn imports(tokens: &[String], module_path: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let mut levels_to_root = match first.as_str() {
            "crate" => 0,
            "super" => module_path.len() - usize::from(!module_path.is_empty()),
            _ => continue,
        };
        while let [colon, also_colon, next, ..] = rest {
            if colon != ":" || also_colon != ":" {
                break;
            }
            if next == "super" && levels_to_root > 0 {
                levels_to_root -= 1;
                rest = &rest[3..];
                continue;
            }
            if levels_to_root == 0 {
                names.extend(first_names(&rest[2..]));
            }
            break;
        }
    }
    names
}

/// `a::b` -> a; `{a::b, c::{d, e}}` -> a, c.
fn first_names(tokens: &[String]) -> Vec<String> {
    if tokens.first().is_none_or(|first| first != "{") {
        return tokens.first().cloned().into_iter().collect();
    }
    let mut names = Vec::new();
    let mut depth = 0;
    let mut at_start = false;
    for token in tokens {
        match token.as_str() {
            "{" => {
                depth += 1;
                at_start = depth == 1;
                continue;
            }
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            "," if depth == 1 => {
                at_start = true;
                continue;
            }
            name if at_start => names.push(name.to_owned()),
            _ => {}
        }
        at_start = false;
    }
    names
}

fn forbidden_import(module: &str, name: &str, public: &PublicNames) -> Option<String> {
    let origin = public.0.get(name).map_or(name, String::as_str);
    if origin == module {
        return None;
    }
    if COMMAND_LINE.contains(&module) {
        let seen = COMMAND_LINE.contains(&name) || public.0.contains_key(name);
        return (!seen).then(|| format!("`{module}` names `{name}`, which lib.rs does not show"));
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == module) else {
        return Some(format!("`{module}` has no layer: give it one in xtask/src/tidy/layers.rs"));
    };
    (!allowed.contains(&origin)).then(|| format!("`{module}` must not know `{origin}`"))
}

fn forbidden_words(file: &str, module: &str, tokens: &[String]) -> Vec<String> {
    let has = |word: &str| tokens.iter().any(|token| token == word);
    let has_path = |first: &str, last: &str| {
        tokens
            .windows(4)
            .any(|path| matches!(path, [a, b, c, d] if a == first && b == ":" && c == ":" && d == last))
    };
    let mut broken = Vec::new();
    if has("unsafe") && !UNSAFE_FILES.iter().any(|place| file.starts_with(place)) {
        broken.push("`unsafe` belongs to `sys`".to_owned());
    }
    if has("aya") && !file.starts_with(AYA_FOLDER) {
        broken.push(format!("`aya` is named outside `{AYA_FOLDER}`"));
    }
    if PURE_MODULES.contains(&module) {
        if tokens.windows(4).any(opens_file) {
            broken.push(format!("`{module}` must not open files by path"));
        }
        if has_path("Instant", "now") || has_path("SystemTime", "now") {
            broken.push(format!("`{module}` must not read a clock"));
        }
    }
    broken
}

/// `File::open`, `fs::read` and their like; what they return may be passed in.
fn opens_file(path: &[String]) -> bool {
    let [first, colon, also_colon, last] = path else { return false };
    let is_function = last.starts_with(|first: char| first.is_ascii_lowercase());
    colon == ":" && also_colon == ":" && ["File", "fs"].contains(&first.as_str()) && is_function
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &str = "//! All.
        mod error;
        pub mod profile;
        pub use error::{Error, Result};
        pub use builder::Profiler;";

    fn broken(file: &str, text: &str) -> String {
        let public = PublicNames::of(LIBRARY).unwrap();
        check(&format!("profiler/src/{file}"), text, &public).unwrap().join("\n")
    }

    #[test]
    fn a_module_may_import_what_is_below_it() {
        let text = "use crate::{Error, elf::{self, Segment}, process::Mapping};";
        assert_eq!(broken("symbolize/mod.rs", text), "");
        assert_eq!(broken("session.rs", "use crate::{sampler, symbolize};"), "");
    }

    #[test]
    fn the_three_of_one_layer_do_not_know_each_other() {
        assert!(broken("symbolize/elf.rs", "use crate::unwind::Rows;").contains("must not know `unwind`"));
        assert!(
            broken("sampler/replay.rs", "use crate::{elf, symbolize};").contains("must not know `symbolize`")
        );
        assert!(
            broken("unwind/mod.rs", "fn f() { crate::sampler::g() }").contains("must not know `sampler`")
        );
    }

    #[test]
    fn output_sees_the_profile_and_how_to_fail() {
        assert_eq!(broken("output/folded.rs", "use crate::{Error, profile::Profile};"), "");
        assert!(
            broken("output/folded.rs", "use crate::address::ElfAddress;").contains("must not know `address`")
        );
    }

    #[test]
    fn the_lowest_layer_imports_nothing() {
        assert!(broken("error.rs", "use crate::profile::Reason;").contains("must not know `profile`"));
        assert!(broken("elf/mod.rs", "use crate::profile::Reason;").contains("must not know `profile`"));
    }

    #[test]
    fn a_name_counts_as_its_module_when_lib_shows_it() {
        assert!(broken("profile/mod.rs", "use crate::Profiler;").contains("must not know `builder`"));
        assert!(broken("process/mod.rs", "use crate::Profiler;").contains("must not know `builder`"));
    }

    #[test]
    fn enough_supers_lead_to_the_root() {
        assert!(broken("symbolize/mod.rs", "use super::unwind::Rows;").contains("must not know `unwind`"));
        assert!(
            broken("symbolize/elf.rs", "use super::super::unwind::Rows;").contains("must not know `unwind`")
        );
        assert_eq!(broken("symbolize/elf.rs", "use super::unwind::Rows;"), "");
    }

    #[test]
    fn the_command_line_uses_what_every_user_can() {
        assert_eq!(broken("cli/mod.rs", "use crate::{Profiler, profile::Profile, cli::advice};"), "");
        assert!(broken("cli/mod.rs", "use crate::session::Session;").contains("lib.rs does not show"));
    }

    #[test]
    fn every_module_has_a_layer() {
        assert!(broken("cache.rs", "use crate::error::Error;").contains("has no layer"));
    }

    #[test]
    fn tests_may_import_anything() {
        let text = "#[cfg(test)] mod tests { use crate::{unwind, sampler}; unsafe fn f() {} }";
        assert_eq!(broken("symbolize/mod.rs", text), "");
    }

    #[test]
    fn unsafe_and_aya_have_their_places() {
        let text = "use aya::Ebpf; unsafe fn f() {}";
        assert!(broken("sampler/mod.rs", text).contains("`aya` is named outside"));
        assert!(broken("sampler/mod.rs", text).contains("`unsafe` belongs"));
        assert_eq!(broken("sampler/ebpf/pod.rs", text), "");
        assert_eq!(broken("sys/memory.rs", "unsafe fn f() {}"), "");
    }

    #[test]
    fn pure_modules_open_no_file_and_read_no_clock() {
        assert!(broken("elf/mod.rs", "fn f() { std::fs::read(path) }").contains("open files"));
        assert_eq!(broken("elf/mod.rs", "use std::fs::File; fn f(file: &File) {}"), "");
        assert!(broken("output/svg.rs", "fn f() { Instant::now() }").contains("read a clock"));
        assert_eq!(broken("process/mod.rs", "fn f() { std::fs::read(path) }"), "");
    }
}
