//! `debug_log!`: log lines of the unwinder's decisions by aya-log, compiled in with the feature `log` alone.

use profiler_common::unwind::StackEndReason;
use profiler_ebpf::unwind_step::FoundBy;

/// Writes a line of level debug into the ring buffer of aya-log.
#[cfg(feature = "log")]
macro_rules! debug_log {
    ($format:literal $(, $argument:expr)* $(,)?) => {{
        ::aya_log_ebpf::debug!((), target: "bpf", $format $(, $argument)*);
    }};
}

/// Nothing: the object that ships has no log.
#[cfg(not(feature = "log"))]
macro_rules! debug_log {
    ($format:literal $(, $argument:expr)* $(,)?) => {{
        $( let _ = $argument; )*
    }};
}

pub(crate) use debug_log;

/// Logs how a caller was found. The texts are literals, because a variable length costs the verifier more.
#[inline(always)]
pub(crate) fn log_caller(address: u64, found_by: FoundBy) {
    match found_by {
        FoundBy::Cfi => debug_log!("  caller {:x} by CFI", address),
        FoundBy::Instructions => debug_log!("  caller {:x} by instructions", address),
        FoundBy::FramePointer => debug_log!("  caller {:x} by frame pointer", address),
        FoundBy::EpilogueScan => debug_log!("  caller {:x} by epilogue scan", address),
        FoundBy::SignalFrame => debug_log!("  caller {:x} by signal frame", address),
    }
}

/// Logs why a stack ended.
#[inline(always)]
pub(crate) fn log_stack_end(reason: StackEndReason) {
    match reason {
        StackEndReason::Root => debug_log!("  end: outermost function"),
        StackEndReason::NullCaller => debug_log!("  end: return address or frame pointer of 0"),
        StackEndReason::NoMapping => debug_log!("  end: in no known mapping"),
        StackEndReason::UnreadableStack => debug_log!("  end: unreadable stack memory"),
        StackEndReason::UnsupportedRule => debug_log!("  end: unsupported CFI rule"),
        StackEndReason::BrokenFramePointer => debug_log!("  end: frame pointer points to no frame"),
        StackEndReason::Backwards => debug_log!("  end: CFA is not above the stack pointer"),
        StackEndReason::DepthLimit => debug_log!("  end: depth limit"),
        StackEndReason::NoUserStack => debug_log!("  end: no user stack any more"),
        StackEndReason::ReturnProbe => debug_log!("  end: return address replaced by a return probe"),
        StackEndReason::MappingsLocked => debug_log!("  end: the mappings are locked"),
    }
}
