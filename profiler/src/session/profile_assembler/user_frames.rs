//! Resolves the addresses of a user stack, up to where the unwinder cannot have found the caller.

use profiler_addresses::MonotonicTime;
use profiler_common::unwind::StackEndReason;
use profiler_processes::Process;
use profiler_profile::{Reason, StackEnd};
use profiler_symbolize::{CodeKey, Symbolizer};

use super::SampleStacks;
use profiler_sampler::{FrameFound, RawFrame};

/// Resolves the addresses of a user stack, and returns why it is cut, if it is.
///
/// `bpf_get_stack` takes any register value for a frame pointer and follows it to false return addresses: the first is outside of all
/// mappings. An outdated unwind table gives the callers of other code.
pub(super) fn resolve_user_frames(
    symbolizer: &mut Symbolizer,
    process: &Process,
    time: MonotonicTime,
    stacks: &SampleStacks,
) -> (Vec<(CodeKey, RawFrame)>, Option<StackEnd>) {
    let mut frames = Vec::new();
    let Some(stack) = stacks.user.as_deref() else { return (frames, None) };
    let end_reason = stack.end_reason();
    let is_unwound = end_reason.is_some();
    let outdated_since = stacks.tables_outdated_since.filter(|_| is_unwound);
    let jit_outdated_since = jit_tables_outdated_since(symbolizer, process, time).filter(|_| is_unwound);
    let mut raw_frames = stack.frames().peekable();
    while let Some(frame) = raw_frames.next() {
        let code = symbolizer.code_at(process, frame.address, time);
        if frame.found == FrameFound::ByGetStack && matches!(code, CodeKey::Unknown(Reason::NoMapping, _)) {
            return (frames, Some(StackEnd::BrokenFramePointer));
        }
        frames.push((code, frame));
        let was_replaced = outdated_since
            .is_some_and(|since| process.was_file_replaced(frame.address, since, time))
            || jit_outdated_since.is_some_and(|since| {
                matches!(code, CodeKey::Jit(..))
                    && may_use_row(raw_frames.peek(), end_reason)
                    && symbolizer.was_jit_code_replaced_at(process, frame.address, since..time)
            });
        if was_replaced {
            return (frames, Some(StackEnd::OutdatedTable));
        }
    }
    (frames, None)
}

/// The time of the call frame information of JIT code that was in use at `time`, if JIT code had been replaced since
/// then.
pub(super) fn jit_tables_outdated_since(
    symbolizer: &Symbolizer,
    process: &Process,
    time: MonotonicTime,
) -> Option<MonotonicTime> {
    let as_of = process.jit_code_as_of(time)?;
    symbolizer.was_jit_code_replaced(process, as_of..time).then_some(as_of)
}

/// Whether the unwinder may have used an unwind row of a frame with this caller, or without one.
fn may_use_row(caller: Option<&RawFrame>, end_reason: Option<StackEndReason>) -> bool {
    match caller {
        Some(caller) => !matches!(caller.found, FrameFound::ByFramePointer | FrameFound::ByEpilogueScan),
        None => !matches!(
            end_reason,
            Some(
                StackEndReason::BrokenFramePointer | StackEndReason::DepthLimit | StackEndReason::ReturnProbe
            )
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_addresses::{FileOffset, RuntimeAddress};
    use profiler_common::FrameFlags;
    use profiler_processes::{
        Backing, Installation, Mapping, Pid, ProcFs, ProcessFilter, ProcessTable, SidebandEvent,
        SidebandEventKind, Tid,
    };
    use profiler_sampler::RawStack;

    use super::*;
    use crate::session::test_symbolizer::symbolizer;

    fn stack(end_reason: Option<StackEndReason>) -> RawStack {
        RawStack { end_reason: end_reason.map_or(0, |end| end as u8), ..RawStack::default() }
    }

    /// The number of resolved frames of a stack of this process, and why it was cut.
    fn resolve(addresses: &[u64], end_reason: Option<StackEndReason>) -> (usize, Option<StackEnd>) {
        let proc = Arc::new(ProcFs::live());
        let mut symbolizer = symbolizer(Arc::clone(&proc));
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let key = table.prefetch(Pid::own());
        let stack = RawStack { addresses: addresses.into(), ..stack(end_reason) };
        let stacks = SampleStacks { user: Some(Arc::new(stack)), ..SampleStacks::default() };
        let (frames, cut) =
            resolve_user_frames(&mut symbolizer, table.get(key).unwrap(), MonotonicTime(1), &stacks);
        (frames.len(), cut)
    }

    #[test]
    fn a_stack_of_bpf_get_stack_ends_where_it_leaves_all_mappings() {
        const UNMAPPED: u64 = 0x1238;
        // Aligned to 8 bytes.
        let code = (resolve as fn(_, _) -> _ as usize as u64).next_multiple_of(8);
        let cut = Some(StackEnd::BrokenFramePointer);
        assert_eq!(resolve(&[code, code, code], None), (3, None));
        assert_eq!(resolve(&[code, code, UNMAPPED, code], None), (2, cut));
        assert_eq!(resolve(&[UNMAPPED, code], None), (2, None), "the leaf is the sampled address");
        let unwound = Some(StackEndReason::NoMapping);
        assert_eq!(resolve(&[code, UNMAPPED], unwound), (2, None), "an unwound stack has an end reason");
    }

    #[test]
    fn a_stack_ends_at_code_that_has_replaced_the_code_of_its_table() {
        const INSTALLED_NS: u64 = u64::MAX / 8;
        const REPLACED_NS: u64 = u64::MAX / 4;
        let proc = Arc::new(ProcFs::live());
        let mut symbolizer = symbolizer(Arc::clone(&proc));
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let pid = Pid::own();
        let key = table.prefetch(pid);
        table.request_mappings(pid);
        table.note_installation(
            key,
            Installation {
                as_of: MonotonicTime(INSTALLED_NS),
                jit_code_as_of: None,
                installed: MonotonicTime(INSTALLED_NS),
            },
        );
        let own = RuntimeAddress(resolve as fn(_, _) -> _ as usize as u64);
        let is_library =
            |mapping: &&Mapping| matches!(mapping.backing, Backing::File { .. }) && !mapping.contains(own);
        let library = table.get(key).unwrap().mappings().find(is_library).unwrap().clone();
        let code = library.start.0 + 16;
        let other = Mapping { offset: FileOffset(library.offset.0 + 0x1000), ..library };
        table.apply(SidebandEvent {
            time: MonotonicTime(REPLACED_NS),
            pid,
            tid: Tid::leader_of(pid),
            kind: SidebandEventKind::Map(other),
        });
        let mut cut = |table: &ProcessTable, time_ns: u64| {
            let time = MonotonicTime(time_ns);
            let process = table.get(key).unwrap();
            let addresses = [own.0, code, own.0].into();
            let stack = RawStack { addresses, ..stack(Some(StackEndReason::Root)) };
            let tables_outdated_since = process.unwind_tables_outdated_since(time);
            let user = Some(Arc::new(stack));
            let stacks = SampleStacks { user, tables_outdated_since, ..SampleStacks::default() };
            let (frames, cut) = resolve_user_frames(&mut symbolizer, process, time, &stacks);
            (frames.len(), cut)
        };
        assert_eq!(cut(&table, REPLACED_NS - 1), (3, None), "before the code was replaced");
        assert_eq!(cut(&table, REPLACED_NS + 1), (2, Some(StackEnd::OutdatedTable)));
        let installation = Installation {
            as_of: MonotonicTime(REPLACED_NS),
            jit_code_as_of: None,
            installed: MonotonicTime(REPLACED_NS + 5),
        };
        table.note_installation(key, installation);
        let before = REPLACED_NS + 4;
        assert_eq!(cut(&table, before), (2, Some(StackEnd::OutdatedTable)), "not installed yet");
        assert_eq!(cut(&table, REPLACED_NS + 5), (3, None));
    }

    /// A jitdump with code of 16 bytes at an address at these times (Linux, tools/perf/Documentation/jitdump-specification.txt).
    fn jitdump(address: u64, times_ns: &[u64]) -> Vec<u8> {
        const HEADER_BYTES: u32 = 16;
        let header =
            [[0x4a69_5444_u32, 1, 40, 62, 0, 0].map(u32::to_ne_bytes).concat(), vec![0; 16]].concat();
        let load = |(index, time_ns): (usize, &u64)| {
            let name = format!("f{index}\0");
            let fields = [0, address, address, 16, index as u64].map(u64::to_ne_bytes).concat();
            let body = [&fields, name.as_bytes(), &[0xcc; 16]].concat();
            let header = [0, HEADER_BYTES + body.len() as u32].map(u32::to_ne_bytes).concat();
            [&header, &time_ns.to_ne_bytes()[..], &body].concat()
        };
        times_ns.iter().enumerate().map(load).fold(header, |file, record| [file, record].concat())
    }

    #[test]
    fn a_stack_ends_at_jit_code_that_is_later_than_the_call_frame_information_that_was_installed() {
        const CODE: u64 = 0x10_0040;
        const BY_CFI: u64 = 0;
        let proc = Arc::new(ProcFs::live());
        let mut symbolizer = symbolizer(Arc::clone(&proc));
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let pid = Pid::own();
        let key = table.prefetch(pid);
        table.request_mappings(pid);
        let (start, end) = (RuntimeAddress(CODE & !0xfff), RuntimeAddress((CODE & !0xfff) + 0x1000));
        let mapping = Mapping { start, end, offset: FileOffset(0), backing: Backing::Jit };
        table.apply(SidebandEvent {
            time: MonotonicTime(u64::MAX / 2),
            pid,
            tid: Tid::leader_of(pid),
            kind: SidebandEventKind::Map(mapping),
        });
        let path = format!("/tmp/jit-{pid}.dump");
        std::fs::write(&path, jitdump(CODE, &[100, 200])).unwrap();
        let own = resolve as fn(_, _) -> _ as usize as u64;
        let cut = |symbolizer: &mut Symbolizer, table: &ProcessTable, flags: u64, time_ns: u64| {
            let (process, time) = (table.get(key).unwrap(), MonotonicTime(time_ns));
            let addresses = vec![CODE, (own & !FrameFlags::ALL) | flags];
            let stack = RawStack { addresses, ..stack(Some(StackEndReason::Root)) };
            let stacks = SampleStacks { user: Some(Arc::new(stack)), ..SampleStacks::default() };
            let (frames, cut) = resolve_user_frames(symbolizer, process, time, &stacks);
            (frames.len(), cut)
        };
        assert_eq!(cut(&mut symbolizer, &table, BY_CFI, 250), (2, None), "no call frame information");
        symbolizer.poll_jit(&table, MonotonicTime(300));
        std::fs::remove_file(&path).unwrap();
        for (jit_code_as_of_ns, installed_ns) in [(100, 150), (200, 260)] {
            let jit_code_as_of_ns = Some(jit_code_as_of_ns);
            table.note_installation(
                key,
                Installation {
                    as_of: MonotonicTime(1),
                    jit_code_as_of: jit_code_as_of_ns.map(MonotonicTime),
                    installed: MonotonicTime(installed_ns),
                },
            );
        }
        let outdated = (1, Some(StackEnd::OutdatedTable));
        let mut cuts =
            |flags| [199, 200, 259, 260].map(|time_ns| cut(&mut symbolizer, &table, flags, time_ns));
        assert_eq!(cuts(BY_CFI), [(2, None), outdated, outdated, (2, None)]);
        assert_eq!(cuts(FrameFlags::BY_FRAME_POINTER), [(2, None); 4], "no row was used");
    }
}
