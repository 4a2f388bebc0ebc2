//! Settings of the C library's allocator.

/// Makes the allocator return freed memory to the kernel soon, for a program that runs for days: while unwind tables are
/// built and profiles are taken, a session needs memory for moments, in several threads. Call it before threads start.
///
/// glibc raises both thresholds to the size of the largest block that was freed, and keeps up to twice that much in each
/// arena (mallopt(3), "Dynamic mmap threshold"). Other C libraries and allocators are not changed.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    for threshold in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        /// The threshold at the start of a program.
        const BYTES: libc::c_int = 128 << 10;
        // SAFETY: mallopt has no pointers, and may be called at any time.
        let is_set = unsafe { libc::mallopt(threshold, BYTES) };
        if is_set == 0 {
            log::debug!("a threshold of the allocator cannot be set");
        }
    }
}
