//! Comparing what was made with what is kept in a file.

use std::path::Path;

/// With this variable in the environment the file is written anew in place of being compared.
const BLESS: &str = "BLESS";

/// Checks that a file holds this text.
///
/// # Panics
/// When it does not.
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
