//! Selects the tests of what differs from a commit: those of changed packages, and their end-to-end tests.

use std::{collections::BTreeSet, process::Command};

use anyhow::Result;

use crate::{project, shell};

/// Folders, and the end-to-end tests of what is in them, as an expression of nextest.
const TESTS_OF: [(&str, &str); 16] = [
    (
        "crates/agent/",
        "package(profiler-agent) + (binary(end_to_end) & test(/agent/)) + (binary(containers) & test(/daemon_set|deployment|kustomization/))",
    ),
    ("crates/capi/", "binary(end_to_end) & test(/^c_interface::/)"),
    ("crates/dotnet-diagnostics/", "test(/dotnet|aspnet|events|hostile/)"),
    ("crates/dotnet-runtime/", "test(/dotnet_memory::|dotnet_monitors::/)"),
    ("crates/dotnet-symbols/", "test(/dotnet|aspnet|single_file|readable_names/)"),
    (
        "crates/elf-symbols/",
        "binary(end_to_end) & test(/debug_information|symbol_server|readable_names|chains|unwinding/)",
    ),
    ("crates/findings/", "test(/finding|incident/)"),
    (
        "crates/processes/",
        "binary(containers) + (binary(end_to_end) & test(/targets|threads|lifetimes|command_user/))",
    ),
    ("crates/profile-formats/", "binary(html_page) + binary(other_tools) + binary(output_files)"),
    ("crates/stack-height/", "binary(end_to_end) & test(/unwinding/)"),
    ("crates/symbolize/", "binary(end_to_end) & test(/symbol|jit|dotnet|hostile|debug_information|sandbox/)"),
    ("crates/triggers/", "test(/record/)"),
    ("crates/unwind-tables/", "binary(end_to_end) & test(/unwinding|chains|real_programs|dotnet::/)"),
    (
        "deploy/",
        "binary(containers) & test(/deployment|kustomization|daemon_set|kubectl_plugin|service_files/)",
    ),
    ("docs/", "binary(documents)"),
    ("tests/page/", "binary(html_page)"),
];

/// Folders whose end-to-end tests are all of them.
const SHARED_BY_ALL: [&str; 10] = [
    "crates/addresses/",
    "crates/binary-reader/",
    "crates/blocking/",
    "crates/cli/",
    "crates/profile/",
    "crates/sampler/",
    "profiler-common/",
    "profiler-ebpf/",
    "profiler/",
    "tests/src/",
];

const ALL: &str = "binary(end_to_end) + binary(containers)";

/// An expression that selects the tests of the files that differ from `commit`, also of those that git does not know yet.
/// `None` if the quick checks have all tests of these files.
///
/// # Errors
/// If git fails, for instance because there is no such commit.
pub(super) fn tests_since(commit: &str) -> Result<Option<String>> {
    let git =
        |arguments: &[&str]| shell::read(Command::new("git").args(arguments).current_dir(project::root()));
    let changed = git(&["diff", "--name-only", commit, "--"])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(expression(changed.lines().chain(new.lines())))
}

fn expression<'a>(files: impl Iterator<Item = &'a str>) -> Option<String> {
    let parts: BTreeSet<String> = files.filter_map(tests_of).collect();
    (!parts.is_empty())
        .then(|| parts.into_iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" + "))
}

fn tests_of(file: &str) -> Option<String> {
    if let Some(path) = file.strip_prefix("tests/tests/") {
        return Some(tests_in(path));
    }
    if SHARED_BY_ALL.iter().any(|folder| file.starts_with(folder)) {
        return Some(ALL.to_owned());
    }
    let tests = TESTS_OF.iter().find(|(folder, _)| file.starts_with(folder));
    tests.map(|(_, tests)| (*tests).to_owned())
}

/// The tests of a file below `tests/tests`: a test program, or a module of one.
fn tests_in(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let Some((program, module)) = path.split_once('/') else { return format!("binary({path})") };
    let module = module.replace('/', "::");
    match module.trim_end_matches("::mod") {
        "main" | "measured" => format!("binary({program})"),
        module => format!("binary({program}) & test(/^{module}::/)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(files: &[&str]) -> Option<String> {
        expression(files.iter().copied())
    }

    #[test]
    fn documents_and_sources_of_commands_need_no_end_to_end_test() {
        assert_eq!(selected(&["README.md", "xtask/src/main.rs"]), None);
    }

    #[test]
    fn a_file_of_tests_selects_its_module() {
        let module = selected(&["tests/tests/end_to_end/measured/wall.rs"]).unwrap();
        assert_eq!(module, "(binary(end_to_end) & test(/^measured::wall::/))");
        assert_eq!(selected(&["tests/tests/containers/main.rs"]).unwrap(), "(binary(containers))");
        assert_eq!(selected(&["tests/tests/replay.rs"]).unwrap(), "(binary(replay))");
    }

    #[test]
    fn a_crate_selects_its_end_to_end_tests_once() {
        let two = selected(&["crates/triggers/src/lib.rs", "crates/triggers/src/other.rs"]).unwrap();
        assert_eq!(two, "(test(/record/))");
        assert!(selected(&["profiler/src/lib.rs"]).unwrap().contains("binary(containers)"));
    }

    #[test]
    fn every_crate_selects_tests() {
        for folder in ["crates", "profiler", "profiler-common", "profiler-ebpf"] {
            for file in project::files_below(&project::root().join(folder).join("")).unwrap() {
                let file = project::relative(&file).display().to_string();
                if file.contains("/src/") {
                    assert!(selected(&[&file]).is_some(), "{file}");
                }
            }
        }
    }
}
