//! The version of Landlock's interface (landlock(7)).

/// `LANDLOCK_CREATE_RULESET_VERSION` (`include/uapi/linux/landlock.h`).
const VERSION: u32 = 1;

/// The version, `None` where the kernel does not have Landlock or it is not enabled.
pub(crate) fn version() -> Option<u32> {
    let no_attributes = std::ptr::null::<u8>();
    // SAFETY: with this flag, the call takes no attributes and only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}
