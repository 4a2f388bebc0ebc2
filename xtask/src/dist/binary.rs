//! Builds the static release binary with the `dist` profile, or reads one and checks that it is static.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use auditable_serde::{DependencyKind, Package};
use fs_err as fs;
use object::{Endianness, elf, read::elf::ProgramHeader as _};

use crate::{project, shell, static_binary};

/// The largest binary that a release may have.
const MAX_BINARY_BYTES: u64 = 14_000_000;

/// The uncompressed list of packages has some kilobytes.
const MAX_PACKAGES_BYTES: usize = 8 << 20;

/// A static executable.
pub(super) struct Binary {
    pub(super) content: Vec<u8>,
    /// As Debian and the OCI image specification name it.
    pub(super) architecture: &'static str,
    /// What it was built from, as it lists itself.
    pub(super) packages: Vec<Package>,
}

impl Binary {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let content = fs::read(path)?;
        let cannot_pack = || format!("cannot pack {}", path.display());
        let architecture = static_architecture(&content).with_context(cannot_pack)?;
        let packages = listed_packages(&content).with_context(cannot_pack)?;
        Ok(Self { content, architecture, packages })
    }
}

/// Builds the binary and returns its path. Fails when it is too large, or lists other packages than those that are linked.
pub(super) fn build() -> Result<PathBuf> {
    let binary = static_binary::build(static_binary::DIST)?;
    let size_bytes = fs::metadata(&binary)?.len();
    ensure!(
        size_bytes <= MAX_BINARY_BYTES,
        "{} has {size_bytes} bytes, more than the {MAX_BINARY_BYTES} that a release may have",
        project::relative(&binary).display()
    );
    println!("{}: {size_bytes} bytes", project::relative(&binary).display());
    ensure_lists_linked_packages(&Binary::read(&binary)?)?;
    Ok(binary)
}

/// The packages that `cargo auditable` lists in a binary. Their dependencies are indices.
fn listed_packages(binary: &[u8]) -> Result<Vec<Package>> {
    let list = auditable_info::audit_info_from_slice(binary, MAX_PACKAGES_BYTES).context(
        "it has no list of its packages: `cargo xtask setup --only release` installs `cargo auditable`, which adds it",
    )?;
    Ok(list.packages)
}

/// Whether the code of a package is in the binary. That of the others ran while it was built.
pub(super) fn is_linked(package: &Package) -> bool {
    package.kind == DependencyKind::Runtime
}

fn ensure_lists_linked_packages(binary: &Binary) -> Result<()> {
    let linked = static_binary::linked_packages(&shell::host_target()?)?;
    let linked: BTreeSet<_> = linked.into_iter().map(|package| (package.name, package.version)).collect();
    let listed = binary.packages.iter().filter(|package| is_linked(package));
    let listed: BTreeSet<_> =
        listed.map(|package| (package.name.clone(), package.version.to_string())).collect();
    let different: Vec<_> = linked.symmetric_difference(&listed).collect();
    ensure!(different.is_empty(), "the binary lists other packages than are linked: {different:?}");
    Ok(())
}

/// The architecture of an ELF executable that needs no dynamic loader.
fn static_architecture(content: &[u8]) -> Result<&'static str> {
    type Header = elf::FileHeader64<Endianness>;
    use object::read::elf::FileHeader as _;
    let header = Header::parse(content)?;
    let endian = header.endian()?;
    let programs = header.program_headers(endian, content)?;
    ensure!(
        programs.iter().all(|program| program.p_type(endian) != elf::PT_INTERP),
        "it is linked dynamically: the image has no dynamic loader"
    );
    match header.e_machine(endian) {
        elf::EM_X86_64 => Ok("amd64"),
        elf::EM_AARCH64 => Ok("arm64"),
        machine => bail!("ELF machine {machine:?} has no architecture name here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_executable_is_rejected() {
        let test = fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = static_architecture(&test).unwrap_err();
        assert!(error.to_string().contains("linked dynamically"), "{error:#}");
    }

    #[test]
    fn a_binary_without_a_list_is_refused_with_what_adds_it() {
        let test = fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = listed_packages(&test).unwrap_err().to_string();
        assert!(error.contains("cargo auditable"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_elf_is_rejected() {
        assert!(static_architecture(b"#!/bin/sh\n").is_err());
        assert!(static_architecture(b"").is_err());
    }

    #[test]
    fn a_static_executable_has_the_architecture_of_its_header() {
        for (machine, name) in [(elf::EM_X86_64, "amd64"), (elf::EM_AARCH64, "arm64")] {
            assert_eq!(static_architecture(&header_only(machine.0)).unwrap(), name);
        }
        assert!(static_architecture(&header_only(elf::EM_S390.0)).is_err());
    }

    /// An ELF header without program headers.
    fn header_only(machine: u16) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        header.resize(size_of::<elf::FileHeader64<Endianness>>(), 0);
        header[16] = 2;
        header[18..20].copy_from_slice(&machine.to_le_bytes());
        header[20] = 1;
        header
    }
}
