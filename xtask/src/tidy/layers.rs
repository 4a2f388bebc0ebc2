//! Which folders may name `aya`, contain `unsafe`, open files and read clocks. Which crate may use which, cargo checks.

use anyhow::Result;

use super::rust_code;

/// Folders of the code that runs in user space and ships.
const SHIPPED: [&str; 2] = ["profiler/src/", "crates/"];

/// The only folder that names `aya`.
const AYA_FOLDER: &str = "crates/sampler/src/ebpf/";

/// Wraps system calls, in each package.
const SYSTEM_CALLS: [&str; 2] = ["/src/sys/", "/src/sys.rs"];

/// Folders of pure code, whose results depend on arguments alone: it opens no file by path and reads no clock.
const PURE_FOLDERS: [&str; 10] = [
    "crates/addresses/",
    "crates/binary-reader/",
    "crates/dotnet-runtime/",
    "crates/dotnet-symbols/",
    "crates/elf-symbols/",
    "crates/findings/",
    "crates/profile-formats/",
    "crates/profile/",
    "crates/stack-height/",
    "crates/unwind-tables/",
];

/// Places of the rules that no file has: such a rule checks nothing.
pub(super) fn places_without_files(files: &[String]) -> Vec<String> {
    let folders = SHIPPED.iter().chain([&AYA_FOLDER]).chain(&PURE_FOLDERS);
    let missing = folders.filter(|place| !files.iter().any(|path| path.starts_with(**place)));
    let modules = SYSTEM_CALLS.iter().filter(|place| !files.iter().any(|path| path.contains(**place)));
    missing.chain(modules).map(|place| format!("xtask/src/tidy/layers.rs: no file is in `{place}`")).collect()
}

/// The rules on a Rust file that ships; others have none.
pub(super) fn check(path: &str, text: &str) -> Result<Vec<String>> {
    let is_unshipped = path.contains("/tests/")
        || path.ends_with("tests.rs")
        || path.ends_with("comparison.rs")
        || path.contains("/examples/")
        || path.ends_with("/build.rs");
    if is_unshipped || !SHIPPED.iter().any(|folder| path.starts_with(folder)) {
        return Ok(Vec::new());
    }
    let tokens = rust_code::tokens(text)?;
    let has = |word: &str| tokens.iter().any(|token| token == word);
    let mut broken = Vec::new();
    if has("unsafe") && !may_be_unsafe(path) {
        broken.push("`unsafe` belongs into a module `sys`".to_owned());
    }
    if has("aya") && !path.starts_with(AYA_FOLDER) {
        broken.push(format!("`aya` is named outside `{AYA_FOLDER}`"));
    }
    if PURE_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        if tokens.windows(4).any(opens_file) {
            broken.push("a pure crate must not open files by path".to_owned());
        }
        if tokens.windows(4).any(reads_clock) {
            broken.push("a pure crate must not read a clock".to_owned());
        }
    }
    Ok(broken.into_iter().map(|rule| format!("{path}: {rule}")).collect())
}

fn may_be_unsafe(path: &str) -> bool {
    // Each function of the C interface has the pointers of its caller.
    path.starts_with("crates/capi/src/") || SYSTEM_CALLS.iter().any(|place| path.contains(place))
}

/// `File::open`, `fs::read` and other functions of these names; an open file may be passed in.
fn opens_file(path: &[String]) -> bool {
    let [first, colon, second_colon, last] = path else { return false };
    let is_function = last.starts_with(|first: char| first.is_ascii_lowercase());
    colon == ":" && second_colon == ":" && ["File", "fs"].contains(&first.as_str()) && is_function
}

fn reads_clock(path: &[String]) -> bool {
    let [first, colon, second_colon, last] = path else { return false };
    let is_clock = ["Instant", "SystemTime"].contains(&first.as_str());
    is_clock && colon == ":" && second_colon == ":" && last == "now"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> String {
        check(path, text).unwrap().join("\n")
    }

    #[test]
    fn aya_is_named_by_its_loader_alone() {
        let text = "use aya::Ebpf;";
        assert!(broken("crates/sampler/src/lib.rs", text).contains("`aya` is named outside"));
        assert!(broken("crates/processes/src/lib.rs", text).contains("`aya` is named outside"));
        assert_eq!(broken("crates/sampler/src/ebpf/mod.rs", text), "");
    }

    #[test]
    fn unsafe_code_is_in_sys_modules_alone() {
        let text = "unsafe fn f() {}";
        assert!(broken("crates/sampler/src/lib.rs", text).contains("`unsafe` belongs"));
        assert!(broken("crates/processes/src/system.rs", text).contains("`unsafe` belongs"));
        assert_eq!(broken("crates/capi/src/session.rs", text), "");
        for path in ["profiler/src/sys/memory.rs", "crates/processes/src/sys.rs"] {
            assert_eq!(broken(path, text), "", "{path}");
        }
    }

    #[test]
    fn pure_crates_open_no_file_and_read_no_clock() {
        for path in ["crates/elf-symbols/src/notes.rs", "crates/profile/src/lib.rs"] {
            assert!(broken(path, "fn f() { std::fs::read(path) }").contains("open files"));
            assert!(broken(path, "fn f() { File::open(path) }").contains("open files"));
            assert!(broken(path, "fn f() { Instant::now() }").contains("read a clock"));
            assert_eq!(broken(path, "use std::fs::File; fn f(file: &File) {}"), "");
        }
        assert_eq!(broken("crates/processes/src/lib.rs", "fn f() { std::fs::read(path) }"), "");
    }

    #[test]
    fn a_rule_for_a_folder_that_does_not_exist_is_broken() {
        let places = SHIPPED.iter().chain([&AYA_FOLDER]).chain(&PURE_FOLDERS);
        let mut files: Vec<String> = places.map(|place| format!("{place}file.rs")).collect();
        files.extend(SYSTEM_CALLS.iter().map(|place| format!("profiler{place}")));
        assert_eq!(places_without_files(&files), [""; 0]);
        files.retain(|path| !path.starts_with("crates/findings/"));
        let missing = places_without_files(&files);
        assert_eq!(missing, ["xtask/src/tidy/layers.rs: no file is in `crates/findings/`"]);
    }

    #[test]
    fn code_that_does_not_ship_has_no_rules() {
        let text = "fn f() { std::fs::read(path) } unsafe fn g() {}";
        assert_eq!(broken("crates/elf-symbols/tests/files.rs", text), "");
        assert_eq!(
            broken("crates/elf-symbols/src/lib.rs", &format!("#[cfg(test)] mod tests {{ {text} }}")),
            ""
        );
        for path in ["xtask/src/main.rs", "crates/profile-formats/build.rs"] {
            assert_eq!(broken(path, text), "");
        }
    }
}
