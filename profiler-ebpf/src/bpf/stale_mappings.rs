//! Reports processes whose mappings are missing or stale in the unwind maps, so that user space reads them again.

use profiler_common::{RecordKind, StaleMappingsRecord};

use super::{
    maps::STALE_MAPPINGS,
    ring_buffer::{Wakeup, send},
};

/// The least time between two reports of samples about one process.
const REPORT_INTERVAL_NS: u64 = 20_000_000;

/// Reports a process unless it was reported within the interval. `now_ns` is `CLOCK_MONOTONIC`.
#[inline(always)]
pub(crate) fn report_rate_limited(pid: u32, now_ns: u64) {
    if is_due(pid, now_ns) != Some(false) && report(pid) {
        let _ = STALE_MAPPINGS.insert(&pid, &now_ns, 0);
    }
}

/// As [`report_rate_limited`], but not at the first time: only what lasts is worth a report.
#[inline(always)]
pub(crate) fn report_repeated(pid: u32, now_ns: u64) {
    match is_due(pid, now_ns) {
        Some(true) => report_rate_limited(pid, now_ns),
        Some(false) => {}
        None => {
            let _ = STALE_MAPPINGS.insert(&pid, &now_ns, 0);
        }
    }
}

/// Whether the interval since the last time has passed; `None` where there was no last time.
#[inline(always)]
fn is_due(pid: u32, now_ns: u64) -> Option<bool> {
    let last_ns = STALE_MAPPINGS.get_ptr(&pid)?;
    // SAFETY: a live map value; a torn or stale value costs one report more or less.
    Some(now_ns.wrapping_sub(unsafe { *last_ns }) >= REPORT_INTERVAL_NS)
}

/// Reports a process at once; false when the ring buffer is full. Nothing is lost then: a later sample reports again.
#[inline(always)]
pub(crate) fn report(pid: u32) -> bool {
    send_report(pid, Wakeup::Always)
}

/// Reports a process that has exited: user space can release its mappings, when it reads the report anyway.
#[inline(always)]
pub(crate) fn report_exit(pid: u32) {
    send_report(pid, Wakeup::Never);
}

#[inline(always)]
fn send_report(pid: u32, wakeup: Wakeup) -> bool {
    let record = StaleMappingsRecord { kind: RecordKind::StaleMappings as u32, pid };
    send((&raw const record).cast(), size_of::<StaleMappingsRecord>() as u64, wakeup)
}
