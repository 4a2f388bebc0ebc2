//! Debian's packages of all suites that have kernels, without a change to the machine's own apt.
//!
//! The mirror is the one that the machine itself uses.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Error, Result};
use fs_err as fs;

use super::{folder, image::Package};
use crate::{project, shell};

const SUITES: [&str; 5] = ["bullseye", "bookworm", "trixie", "trixie-backports", "sid"];
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];

/// An index that cannot be fetched is a failure, not a warning.
const UPDATE: [&str; 3] = ["update", "--option", "APT::Update::Error-Mode=any"];

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt with folders of its own.
pub(super) struct Repository {
    config: PathBuf,
    /// What kept an index from being read; the others serve.
    incomplete: Option<Error>,
}

impl Repository {
    /// Reads the indexes of all suites.
    pub(super) fn read() -> Result<Self> {
        let folder = folder().join("apt");
        for name in ["lists/partial", "cache/archives/partial", "parts"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("sources.list"), sources(&own_mirrors()?)?)?;
        let config = folder.join("apt.conf");
        fs::write(&config, configuration(&folder))?;
        let mut repository = Self { config, incomplete: None };
        println!("reading the package indexes of {} suites", SUITES.len() + SECURITY_SUITES.len());
        repository.incomplete = shell::run_quietly(repository.apt_get().args(UPDATE)).err();
        Ok(repository)
    }

    /// Fails with what kept an index from being read.
    pub(super) fn ensure_complete(&self) -> Result<()> {
        match &self.incomplete {
            Some(error) => {
                Err(Error::msg(format!("{error:#}")).context("failed to read Debian's package indexes"))
            }
            None => Ok(()),
        }
    }

    /// All packages with kernels.
    pub(super) fn packages(&self) -> Result<Vec<Package>> {
        let mut search = self.apt("apt-cache");
        search.args(["search", "--names-only", "^linux-(image|binary)-[0-9].*-cloud-amd64$"]);
        let found = shell::read(&mut search)?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        Ok(names.filter_map(Package::named).collect())
    }

    /// Fetches a package into `to`, emptied before, and returns its path.
    pub(super) fn download(&self, package: &str, to: &Path) -> Result<PathBuf> {
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        fs::create_dir_all(to)?;
        shell::run_quietly(self.apt_get().args(["download", package]).current_dir(to))?;
        project::files_below(to)?.into_iter().next().context("apt-get fetched nothing")
    }

    fn apt_get(&self) -> Command {
        let mut command = self.apt("apt-get");
        command.arg("--quiet=2");
        command
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.config);
        command
    }
}

/// apt's label of an archive and the archive's address, for each index that the machine's own apt has.
fn own_mirrors() -> Result<String> {
    let mut list = Command::new("apt-get");
    list.args(["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages", "Origin: Debian"]);
    shell::read(&mut list)
}

/// The lines of a `sources.list` for all suites.
fn sources(own_mirrors: &str) -> Result<String> {
    let mirror = |label: &str| {
        own_mirrors
            .lines()
            .find_map(|line| line.split_once(' ').filter(|(of, _)| *of == label))
            .map(|(_, uri)| uri)
    };
    let main = mirror("Debian").context("apt knows no mirror of Debian: run `apt-get update` on a Debian")?;
    let main = SUITES.map(|suite| (main, suite));
    let security = mirror("Debian-Security").map(|uri| SECURITY_SUITES.map(|suite| (uri, suite)));
    let all = main.into_iter().chain(security.into_iter().flatten());
    Ok(all.map(|(uri, suite)| format!("deb [arch=amd64 signed-by={KEYS}] {uri} {suite} main\n")).collect())
}

/// A mirror can be a snapshot, whose indexes are out of date on purpose.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"Dir::State "{folder}"; Dir::State::lists "{folder}/lists"; Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache"; Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "{folder}/parts"; Dir::Etc::preferencesparts "{folder}/parts";
APT::Architecture "amd64"; APT::Architectures {{ "amd64"; }}; APT::Sandbox::User "root";
Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false"; Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_read_from_the_machines_own_mirrors() {
        let text = sources("Debian http://a/debian/\nDebian http://b/\nDebian-Security http://c/\n").unwrap();
        assert!(text.contains("] http://a/debian/ bullseye main\n"), "{text}");
        assert!(text.contains("] http://c/ trixie-security main\n"), "{text}");
        assert!(!text.contains("http://b/"), "{text}");
    }

    #[test]
    fn a_machine_without_a_mirror_says_so() {
        assert!(sources("").unwrap_err().to_string().contains("apt-get update"));
        assert!(!sources("Debian http://a/\n").unwrap().contains("security"));
    }
}
