//! Compares the lists of public items with those of the last release: a version that cargo takes in its place has all of them.

use std::{collections::HashSet, path::Path, process::Command};

use anyhow::{Result, ensure};
use cargo_metadata::semver::{Comparator, Op, Prerelease, Version};
use fs_err as fs;

use super::public_api::FOLDER;
use crate::{project, shell};

/// Fails if an item of the last release is removed or changed, and the version of the packages is compatible with that release.
pub(crate) fn check() -> Result<()> {
    let version = Version::parse(env!("CARGO_PKG_VERSION"))?;
    println!("{}", compare(project::root(), &version)?);
    Ok(())
}

/// Compares the lists in a clone with those of its last release, and returns the result in words.
fn compare(clone: &Path, version: &Version) -> Result<String> {
    let git = |arguments: &[&str]| shell::read(Command::new("git").args(arguments).current_dir(clone));
    if git(&["rev-parse", "--is-shallow-repository"])? == "true" {
        let remedy = "`git fetch --unshallow --tags`";
        return Ok(format!("not compared: the clone lacks the history with the tags of releases ({remedy})"));
    }
    // The workflow of a release runs on its tag: its lists have to be compared with those of the release before.
    let tags = git(&["tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD"])?;
    let Some(released) = last_release(&tags) else {
        return Ok("no version is released: no commit before this one has a tag such as v0.1.0".to_owned());
    };
    ensure!(*version >= released, "version {version} is lower than the released {released}");
    if !is_compatible(version, &released) {
        return Ok(format!("version {version} may lack items of the released {released}"));
    }
    let tag = format!("v{released}");
    let mut missing = Vec::new();
    for path in git(&["ls-tree", "--name-only", &tag, &format!("{FOLDER}/")])?.lines() {
        let before = git(&["show", &format!("{tag}:{path}")])?;
        // A package that is removed or renamed has no list.
        let now = fs::read_to_string(clone.join(path)).unwrap_or_default();
        missing.extend(missing_items(&before, &now).map(|item| format!("{path}: {item}")));
    }
    ensure!(
        missing.is_empty(),
        "version {version} is compatible with the released {released} by its number, but lacks items of it: keep them, or raise \
         the version in Cargo.toml\n{}",
        missing.join("\n")
    );
    Ok(format!("version {version} has all items of the released {released}"))
}

/// The highest version among tags, without pre-releases, which promise nothing.
fn last_release(tags: &str) -> Option<Version> {
    let versions = tags.lines().filter_map(|tag| Version::parse(tag.strip_prefix('v')?).ok());
    versions.filter(|version| version.pre.is_empty()).max()
}

/// Whether cargo takes a version where a program asks for a released one.
fn is_compatible(version: &Version, released: &Version) -> bool {
    let Version { major, minor, patch, .. } = *released;
    let pre = Prerelease::EMPTY;
    let caret = Comparator { op: Op::Caret, major, minor: Some(minor), patch: Some(patch), pre };
    // A pre-release becomes the version with its number.
    caret.matches(&Version::new(version.major, version.minor, version.patch))
}

/// The items that one list has and the other lacks. A changed item is one that is missing and one that is new.
fn missing_items<'a>(before: &'a str, now: &str) -> impl Iterator<Item = &'a str> {
    let now: HashSet<_> = now.lines().collect();
    before.lines().filter(move |item| !now.contains(item))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn items_that_are_removed_or_changed_are_missing_and_new_ones_are_not() {
        let before = "pub fn p::kept()\npub fn p::taken(u32)\npub fn p::removed()\n";
        let now = "pub fn p::added()\npub fn p::kept()\npub fn p::taken(u64)\n";
        let missing: Vec<_> = missing_items(before, now).collect();
        assert_eq!(missing, ["pub fn p::taken(u32)", "pub fn p::removed()"]);
    }

    #[test]
    fn compatible_versions_are_those_that_cargo_takes() {
        for (present, released, expected) in [
            ("0.1.0", "0.1.0", true),
            ("0.1.7", "0.1.0", true),
            ("0.2.0", "0.1.9", false),
            ("1.3.0", "1.2.9", true),
            ("2.0.0", "1.9.9", false),
            ("1.3.0-rc.1", "1.2.0", true),
            ("2.0.0-rc.1", "1.2.0", false),
        ] {
            let found = is_compatible(&version(present), &version(released));
            assert_eq!(found, expected, "{present} after {released}");
        }
    }

    #[test]
    fn the_last_release_is_the_highest_version_that_is_no_pre_release() {
        assert_eq!(last_release("v0.9.0\nv0.10.0\nv0.2.0\nv1.0.0-rc.1\nvendor"), Some(version("0.10.0")));
        assert_eq!(last_release(""), None);
    }

    /// A repository with one list, whose last commit is after the release of version 0.1.0.
    struct Repository(std::path::PathBuf);

    impl Repository {
        const LIST: &str = "tests/public-api/p.txt";

        fn with(test: &str, released: &str, now: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("released-api-{test}-{}", std::process::id()));
            fs::create_dir_all(folder.join(FOLDER)).unwrap();
            let repository = Self(folder);
            repository.git(&["init", "--quiet"]);
            repository.commit(released);
            repository.git(&["tag", "v0.1.0"]);
            repository.commit(now);
            repository
        }

        fn commit(&self, list: &str) {
            fs::write(self.0.join(Self::LIST), list).unwrap();
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--allow-empty", "--message", "a"]);
        }

        fn git(&self, arguments: &[&str]) {
            const SETTINGS: [&str; 4] =
                ["user.name=a", "user.email=a@b", "commit.gpgsign=false", "tag.gpgsign=false"];
            let mut git = Command::new("git");
            git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
            shell::run_quietly(git.args(arguments).current_dir(&self.0)).unwrap();
        }

        fn compared_as(&self, text: &str) -> Result<String> {
            compare(&self.0, &version(text))
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            // A rest in the folder of temporary files is harmless.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_compatible_version_that_lacks_an_item_of_the_release_fails_and_another_does_not() {
        let repository = Repository::with("lacks", "pub fn p::a()\n", "pub fn p::b()\n");
        let error = repository.compared_as("0.1.1").unwrap_err().to_string();
        assert!(error.ends_with("tests/public-api/p.txt: pub fn p::a()"), "{error}");
        assert_eq!(
            repository.compared_as("0.2.0").unwrap(),
            "version 0.2.0 may lack items of the released 0.1.0"
        );
        let error = repository.compared_as("0.0.9").unwrap_err().to_string();
        assert_eq!(error, "version 0.0.9 is lower than the released 0.1.0");
    }

    #[test]
    fn the_commit_of_a_release_is_compared_with_the_release_before_it() {
        let repository = Repository::with("before", "pub fn p::a()\n", "pub fn p::a()\npub fn p::b()\n");
        assert_eq!(
            repository.compared_as("0.1.1").unwrap(),
            "version 0.1.1 has all items of the released 0.1.0"
        );
        repository.commit("pub fn p::b()\n");
        repository.git(&["tag", "v0.1.1"]);
        assert!(repository.compared_as("0.1.1").is_err());
    }

    #[test]
    fn a_clone_without_its_history_is_not_compared() {
        let repository = Repository::with("shallow", "pub fn p::a()\n", "");
        let folder = repository.0.join("clone");
        let url = format!("file://{}", repository.0.display());
        repository.git(&["clone", "--quiet", "--depth", "1", &url, "clone"]);
        let result = compare(&folder, &version("0.1.1")).unwrap();
        assert!(result.starts_with("not compared"), "{result}");
    }

    #[test]
    fn without_a_tag_nothing_is_compared() {
        let repository = Repository::with("none", "pub fn p::a()\n", "");
        repository.git(&["tag", "--delete", "v0.1.0"]);
        let result = repository.compared_as("0.1.0").unwrap();
        assert!(result.starts_with("no version is released"), "{result}");
    }
}
