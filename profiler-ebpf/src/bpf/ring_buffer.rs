//! Sends records to user space through the BPF ring buffer, and wakes its reader.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated as helpers,
};
use profiler_ebpf::must_wake;

use super::{config::get, maps::RECORDS};

/// When the reader of the ring buffer is woken.
#[derive(Clone, Copy)]
pub(crate) enum Wakeup {
    /// Now.
    Always,
    /// Not for this record.
    Never,
    /// When the ring buffer holds the configured number of bytes.
    AtThreshold,
}

/// Copies a record into the ring buffer; false when it is full.
#[inline(always)]
pub(crate) fn send(record: *const u8, bytes: u64, wakeup: Wakeup) -> bool {
    let flags = match wakeup {
        Wakeup::Always => BPF_RB_FORCE_WAKEUP,
        Wakeup::Never => BPF_RB_NO_WAKEUP,
        Wakeup::AtThreshold => threshold_flag(),
    };
    // SAFETY: the verifier proves that `bytes` readable bytes start at `record`.
    let result = unsafe {
        helpers::bpf_ringbuf_output(
            (&raw const RECORDS).cast_mut().cast(),
            record.cast_mut().cast(),
            bytes,
            u64::from(flags),
        )
    };
    result == 0
}

#[inline(always)]
fn threshold_flag() -> u32 {
    // SAFETY: the map is a ring buffer, and the helper knows the flag.
    let pending = unsafe {
        helpers::bpf_ringbuf_query((&raw const RECORDS).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA))
    };
    if must_wake(pending, get!(wakeup_bytes)) { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }
}
