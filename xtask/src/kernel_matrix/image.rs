//! The kernels to boot: of each series the newest that Debian has, kept once it was fetched.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use fs_err as fs;

use super::{folder, repository::Repository};
use crate::{project, shell};

/// The oldest supported series, two that long-lived distributions have, and whatever is the newest.
const SERIES: [Series; 4] = [Series::Of("5.10"), Series::Of("6.1"), Series::Of("6.12"), Series::Newest];

/// How many packages of a series are tried: an index can name some that are not there any more.
const TRIES: usize = 6;

#[derive(Clone, Copy)]
enum Series {
    /// The first numbers of its releases.
    Of(&'static str),
    Newest,
}

/// One kernel.
pub(super) struct Image {
    /// What `uname -r` shows.
    pub(super) release: String,
    pub(super) path: PathBuf,
}

/// A kernel in which each CPU keeps 128 nodes of an LRU map, however small the map is: before 6.16.
const WITH_SMALL_LRU_MAPS: Series = Series::Of("6.1");

/// All of them. Only those that were not fetched before need a network.
pub(super) fn all() -> Result<Vec<Image>> {
    of(&SERIES)
}

/// A kernel on which many CPUs exhaust a small LRU map.
pub(super) fn with_small_lru_maps() -> Result<Image> {
    of(&[WITH_SMALL_LRU_MAPS])?.pop().context("a series has an image")
}

fn of(series: &[Series]) -> Result<Vec<Image>> {
    let mut repository = None;
    let image = |series: &Series| match series.kept()? {
        Some(image) => Ok(image),
        None => {
            let repository = match &mut repository {
                Some(repository) => repository,
                none => none.insert(Repository::read()?),
            };
            series.fetch(repository)
        }
    };
    series.iter().map(image).collect()
}

impl Series {
    fn name(self) -> &'static str {
        match self {
            Self::Of(numbers) => numbers,
            Self::Newest => "newest",
        }
    }

    fn has(self, package: &Package) -> bool {
        match self {
            Self::Of(numbers) => {
                package.release.strip_prefix(numbers).is_some_and(|rest| rest.starts_with('.'))
            }
            Self::Newest => true,
        }
    }

    /// Where its image is. Another look for newer kernels begins with removing it.
    fn folder(self) -> PathBuf {
        folder().join(self.name())
    }

    fn kept(self) -> Result<Option<Image>> {
        if !self.folder().is_dir() {
            return Ok(None);
        }
        let image = |path: PathBuf| {
            let release = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            Some(Image { release, path })
        };
        Ok(project::files_below(&self.folder())?.into_iter().find_map(image))
    }

    fn fetch(self, repository: &Repository) -> Result<Image> {
        let mut packages = repository.packages()?;
        packages.retain(|package| self.has(package));
        packages.sort_by(|one, other| other.cmp(one));
        if packages.is_empty() {
            repository.ensure_complete()?;
            bail!("Debian has no kernel of the series {}", self.name());
        }
        let mut failures = Vec::new();
        for package in packages.iter().take(TRIES) {
            match self.unpack(package, repository) {
                Ok(image) => return Ok(image),
                Err(error) => {
                    repository.ensure_complete()?;
                    failures.push(format!("{}: {error:#}", package.name));
                }
            }
        }
        bail!("no kernel of the series {} can be fetched:\n{}", self.name(), failures.join("\n"))
    }

    fn unpack(self, package: &Package, repository: &Repository) -> Result<Image> {
        println!("fetching {}", package.name);
        let scratch = folder().join("package");
        let archive = repository.download(&package.name, &scratch)?;
        let content = scratch.join("content");
        shell::run_quietly(
            std::process::Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&content),
        )?;
        let is_image = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz"))
        };
        let unpacked = project::files_below(&content)?.into_iter().find(is_image);
        let unpacked = unpacked.context("there is no kernel in it")?;
        fs::create_dir_all(self.folder())?;
        let path = self.folder().join(format!("vmlinuz-{}", package.release));
        fs::rename(unpacked, &path)?;
        fs::remove_dir_all(scratch)?;
        Ok(Image { release: package.release.clone(), path })
    }
}

/// A package with a kernel. The greater one is the newer one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    /// The numbers of the release, the ABI and the suite it was built for.
    numbers: Vec<u32>,
    /// From 7.0 on, the image is in a separate package, `linux-binary-*`.
    is_binary: bool,
    release: String,
    name: String,
}

impl Package {
    /// Knows signed kernels for clouds, which are small and have all that is needed built in.
    pub(super) fn named(name: &str) -> Option<Self> {
        let release =
            name.strip_prefix("linux-image-").or_else(|| name.strip_prefix("linux-binary-"))?.to_owned();
        let version = release.strip_suffix("-cloud-amd64")?;
        let numbers: Vec<u32> =
            version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        // `6.12-cloud-amd64` is the name of whatever kernel is current, or of a release candidate.
        let is_release = version.starts_with(|c: char| c.is_ascii_digit()) && numbers.len() > 2;
        let is_binary = name.starts_with("linux-binary-");
        is_release.then(|| Self { numbers, is_binary, release, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newest(names: &[&str]) -> String {
        names.iter().filter_map(|name| Package::named(name)).max().unwrap().name
    }

    #[test]
    fn releases_are_compared_number_by_number() {
        let old = "linux-image-6.1.0-9-cloud-amd64";
        let backport = "linux-image-6.1.0-0.deb11.50-cloud-amd64";
        assert_eq!(
            newest(&[old, "linux-image-6.1.0-56-cloud-amd64", backport]),
            "linux-image-6.1.0-56-cloud-amd64"
        );
        let names = ["linux-image-6.12.9+deb13-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64"];
        assert_eq!(newest(&names), names[1]);
    }

    #[test]
    fn the_package_that_has_the_image_comes_first() {
        let names = ["linux-image-7.3.4+deb13-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64"];
        assert_eq!(newest(&names), names[1]);
    }

    #[test]
    fn only_signed_releases_for_clouds_count() {
        for name in [
            "linux-image-6.12-cloud-amd64",
            "linux-image-cloud-amd64",
            "linux-image-6.12.90+deb13-amd64",
            "linux-image-6.12.90+deb13-rt-amd64",
            "linux-image-6.12.90+deb13-cloud-amd64-dbg",
            "linux-image-unsigned-6.12.90-cloud-amd64",
            "linux-headers-6.12.90-cloud-amd64",
            "",
        ] {
            assert_eq!(Package::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_series_ends_at_a_dot() {
        let package = |release| Package::named(&format!("linux-image-{release}-cloud-amd64")).unwrap();
        assert!(Series::Of("6.1").has(&package("6.1.0-56")));
        assert!(!Series::Of("6.1").has(&package("6.12.117+deb13")));
        assert!(Series::Newest.has(&package("6.12.117+deb13")));
    }
}
