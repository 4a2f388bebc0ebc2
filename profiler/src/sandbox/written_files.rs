//! Landlock (landlock(7)): files are created and written below the directories of the outputs alone, and none is executed.

use std::{io, os::fd::BorrowedFd};

use landlock::{ABI, AccessFs, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _};

use crate::sys::landlock_abi;

/// The rights that are handled, where the kernel knows them.
const KNOWN: ABI = ABI::V5;

/// The version of Landlock's interface, `None` where the kernel does not have it or it is not enabled.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    landlock_abi::version()
}

/// Confines the calling thread and the threads that it starts. Kernels without Landlock confine nothing.
pub(super) fn confine(directories: &[BorrowedFd<'_>]) -> io::Result<()> {
    let written = AccessFs::from_write(KNOWN);
    let ruleset = Ruleset::default().handle_access(written | AccessFs::Execute).map_err(io::Error::other)?;
    let mut ruleset = ruleset.create().map_err(io::Error::other)?;
    for directory in directories {
        ruleset = ruleset.add_rule(PathBeneath::new(directory, written)).map_err(io::Error::other)?;
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    log::debug!("Landlock: {:?}", status.ruleset);
    Ok(())
}
