//! A version of a dependency is stated once, in the manifest of the workspace.

use std::path::Path;

/// Packages that are no members, or that stand outside like a stranger's.
const OTHERS: [&str; 3] = ["profiler-ebpf/", "tests/embedder/", "tests/fuzz/"];

/// Dependencies of a member's manifest that state a version of their own.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let is_manifest = Path::new(path).file_name().is_some_and(|name| name == "Cargo.toml");
    if !is_manifest || path == "Cargo.toml" || OTHERS.iter().any(|other| path.starts_with(other)) {
        return Vec::new();
    }
    let sections = text.split("\n[").filter(|section| has_dependencies(section));
    let lines = sections.flat_map(|section| section.lines().skip(1));
    let entries = lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let own_versions = entries.filter(|entry| !entry.contains("workspace = true"));
    own_versions.map(|entry| format!("{path}: `{entry}` is not from `[workspace.dependencies]`")).collect()
}

fn has_dependencies(section: &str) -> bool {
    section.split(']').next().is_some_and(|heading| heading.ends_with("dependencies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"a\"\nversion = \"1\"\n\n[dependencies]\nlog.workspace = true\n\
                            # For streams.\ntokio = { workspace = true, features = [\"rt\"] }\n";

    #[test]
    fn a_member_states_no_version() {
        assert_eq!(check("crates/a/Cargo.toml", MANIFEST), [""; 0]);
        let own = format!(
            "{MANIFEST}\n[target.'cfg(unix)'.dev-dependencies]\nhttp = \"1\"\n\n[lints]\nworkspace = true\n"
        );
        let violations = check("crates/a/Cargo.toml", &own);
        assert_eq!(
            violations,
            ["crates/a/Cargo.toml: `http = \"1\"` is not from `[workspace.dependencies]`"]
        );
        for path in ["Cargo.toml", "tests/fuzz/Cargo.toml", "crates/a/src/lib.rs"] {
            assert_eq!(check(path, &own), [""; 0], "{path}");
        }
    }
}
