//! Compares output with a committed file.

use std::path::Path;

/// The environment variable with which the file is rewritten instead of compared.
const BLESS: &str = "BLESS";

/// Checks that a file has this content.
///
/// # Panics
/// Panics if it has another content.
pub fn assert_matches_file(found: &str, path: &Path) {
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let place = kept.lines().zip(found.lines()).position(|(kept, found)| kept != found);
    let line = place.unwrap_or_else(|| kept.lines().count().min(found.lines().count()));
    assert!(
        kept == found,
        "line {} of {} differs:\n  kept  {:?}\n  found {:?}\nif it is right now, run the test with {BLESS}=1",
        line + 1,
        path.display(),
        kept.lines().nth(line),
        found.lines().nth(line)
    );
}
