//! One tick: filter, capture both stacks, send the sample.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_current_comm, bpf_get_smp_processor_id, bpf_ktime_get_ns, generated as helpers},
    programs::PerfEventContext,
};
use decide::must_wake;
use profiler_common::{Counter, RecordKind, SampleRecord};

use crate::{
    config::get,
    filter::{self, Verdict},
    maps::{RECORDS, add, count, send},
    process::{self, Ids},
    stack::{self, Side},
};

/// Takes the sample; the error is the counter of what was lost.
#[inline(always)]
pub(crate) fn try_sample(context: &PerfEventContext) -> Result<(), Counter> {
    count(Counter::Ticks);
    let ids = process::current();
    if matches!(ids, Some(Ids { tid: 0, .. })) {
        // The idle task.
        return Ok(());
    }
    let ids = match filter::verdict(ids) {
        Verdict::Other => return Ok(()),
        Verdict::Target(ids) => ids,
        Verdict::Nameless => {
            count(Counter::TargetTicks);
            return Err(Counter::LostThreadId);
        }
    };
    count(Counter::TargetTicks);
    // SAFETY: the helper has no arguments and cannot fail.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let result = take(context, ids, time_ns);
    // SAFETY: as above.
    let end_ns = unsafe { bpf_ktime_get_ns() };
    add(Counter::RunTimeNs, end_ns - time_ns);
    result
}

#[inline(always)]
fn take(context: &PerfEventContext, ids: Ids, time_ns: u64) -> Result<(), Counter> {
    let kernel_stack = if get!(kernel_stacks) != 0 { stack::capture(context, Side::Kernel)? } else { 0 };
    let user_stack = if get!(user_stacks) != 0 { stack::capture(context, Side::User)? } else { 0 };
    let record = SampleRecord {
        kind: RecordKind::Sample as u32,
        // SAFETY: the helper has no arguments and cannot fail.
        cpu: unsafe { bpf_get_smp_processor_id() },
        time_ns,
        pid: ids.pid,
        tid: ids.tid,
        kernel_stack,
        user_stack,
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    if !send((&raw const record).cast(), size_of::<SampleRecord>() as u64, wakeup_flag()) {
        return Err(Counter::LostRingBuffer);
    }
    count(Counter::Sampled);
    Ok(())
}

#[inline(always)]
fn wakeup_flag() -> u64 {
    // SAFETY: the map is a ring buffer and the flag one that the helper knows.
    let pending = unsafe {
        helpers::bpf_ringbuf_query((&raw const RECORDS).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA))
    };
    u64::from(if must_wake(pending, get!(wakeup_bytes)) { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
}
