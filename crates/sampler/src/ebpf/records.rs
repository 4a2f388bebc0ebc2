//! Decodes the records of the BPF ring buffer: samples, stacks, stale mappings.

use std::num::NonZeroU64;

use profiler_addresses::MonotonicTime;
use profiler_common::{
    RecordKind, SampleRecord, StackFlags, StackHeader, StaleMappingsRecord, decode_kind,
    unwind::StackEndReason,
    wall::{WaitState, WaitingThread},
};
use profiler_processes::{Pid, Tid};
use profiler_profile::ThreadState;
use zerocopy::FromBytes;

use crate::{
    batch::Batch,
    sample::{Comm, Origin, RawSample},
    stack::RawStack,
};

/// Decodes one record into the batch, or counts it as undecodable. `sample` decodes those of events.
pub(super) fn decode(
    record: &[u8],
    sample: impl FnOnce(RecordKind, &mut Batch) -> Option<()>,
    batch: &mut Batch,
) {
    let known = match decode_kind(record) {
        Some(RecordKind::Stack) => stack(record).map(|stack| batch.stacks.push(stack)),
        Some(RecordKind::StaleMappings) => StaleMappingsRecord::read_from_prefix(record)
            .ok()
            .map(|(record, _)| batch.stale_mappings.push(Pid(record.pid))),
        Some(kind) => sample(kind, batch),
        None => None,
    };
    if known.is_none() {
        batch.undecodable += 1;
    }
}

/// The sample of a record that an event counts with this value.
pub(super) fn sample_of(record: &SampleRecord, origin: Origin, value: u64) -> RawSample {
    RawSample {
        time: MonotonicTime(record.time_ns),
        cpu: record.cpu.into(),
        origin,
        value,
        waker: None,
        system_call: None,
        pid: Pid(record.pid),
        tid: Tid(record.tid),
        comm: Comm(record.comm),
        kernel_stack: NonZeroU64::new(record.kernel_stack),
        user_stack: NonZeroU64::new(record.user_stack),
    }
}

/// The sample of the ticks of a thread that waited; `None` for an unknown state.
pub(super) fn waiting_sample(thread: &WaitingThread, event: u16) -> Option<RawSample> {
    Some(RawSample {
        time: MonotonicTime(thread.time_ns),
        cpu: thread.cpu,
        origin: Origin { event, state: Some(thread_state(thread.state)?), is_duration: false },
        value: thread.ticks(),
        waker: None,
        system_call: None,
        pid: Pid(thread.pid),
        tid: Tid(thread.tid),
        comm: Comm(thread.comm),
        kernel_stack: NonZeroU64::new(thread.kernel_stack),
        user_stack: NonZeroU64::new(thread.user_stack),
    })
}

/// The state with this number; `None` for an unknown one.
pub(super) fn thread_state(number: u32) -> Option<ThreadState> {
    const STATES: [(WaitState, ThreadState); 5] = [
        (WaitState::Runnable, ThreadState::Runnable),
        (WaitState::Blocked, ThreadState::Blocked),
        (WaitState::Disk, ThreadState::Disk),
        (WaitState::Stopped, ThreadState::Stopped),
        (WaitState::Throttled, ThreadState::Throttled),
    ];
    STATES.into_iter().find(|(state, _)| *state as u32 == number).map(|(_, state)| state)
}

fn stack(record: &[u8]) -> Option<RawStack> {
    let (header, rest) = StackHeader::read_from_prefix(record).ok()?;
    let (words, _) = rest.as_chunks::<8>();
    let addresses: Vec<u64> =
        words.get(..usize::from(header.frames))?.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let is_truncated = header.flags & StackFlags::TRUNCATED != 0;
    let end_reason = if header.flags & StackFlags::UNWOUND != 0 {
        // A record with an unknown reason is undecodable.
        StackEndReason::from_number(header.end_reason)? as u8
    } else {
        0
    };
    Some(RawStack { id: Some(NonZeroU64::new(header.id)?), addresses, is_truncated, end_reason })
}

#[cfg(test)]
mod tests {
    use profiler_common::{event::EventRecord, system_call::SystemCallAbi, wall::WaitRecord};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::{ebpf::events::decode_sample, sample::CalledSystemCall};

    fn decode_into(record: &[u8], batch: &mut Batch) {
        decode(record, |kind, batch| decode_sample(kind, record, batch), batch);
    }

    fn sample_bytes() -> Vec<u8> {
        let record = SampleRecord {
            kind: RecordKind::Sample as u32,
            cpu: 1,
            weight: 3,
            time_ns: 2,
            pid: 3,
            tid: 4,
            kernel_stack: 0,
            user_stack: 5,
            comm: *b"app\0\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        record.as_bytes().to_vec()
    }

    const TRUNCATED: StackHeader = StackHeader {
        kind: RecordKind::Stack as u32,
        frames: 0,
        flags: StackFlags::TRUNCATED,
        end_reason: 0,
        id: 9,
    };

    fn stack_bytes(header: StackHeader, frames: u16, addresses: &[u64]) -> Vec<u8> {
        let header = StackHeader { frames, ..header };
        [header.as_bytes(), addresses.as_bytes()].concat()
    }

    #[test]
    fn samples_and_stacks_are_decoded() {
        let mut batch = Batch::default();
        decode_into(&sample_bytes(), &mut batch);
        decode_into(&stack_bytes(TRUNCATED, 2, &[0x10, 0x20]), &mut batch);
        assert_eq!((batch.samples[0].cpu, batch.samples[0].value), (1, 3));
        assert_eq!(batch.samples[0].comm.text(), "app");
        assert_eq!((batch.samples[0].kernel_stack, batch.samples[0].user_stack), (None, NonZeroU64::new(5)));
        assert_eq!(batch.stacks[0].addresses, [0x10, 0x20]);
        assert!(batch.stacks[0].is_truncated);
        assert_eq!(batch.undecodable, 0);
    }

    #[test]
    fn an_unwound_stack_has_its_end_reason() {
        let unwound = StackHeader {
            flags: StackFlags::UNWOUND,
            end_reason: StackEndReason::NoMapping as u8,
            ..TRUNCATED
        };
        let mut batch = Batch::default();
        decode_into(&stack_bytes(unwound, 1, &[0x10]), &mut batch);
        assert_eq!(batch.stacks[0].end_reason(), Some(StackEndReason::NoMapping));
        decode_into(&stack_bytes(StackHeader { end_reason: 200, ..unwound }, 1, &[0x10]), &mut batch);
        assert_eq!(batch.undecodable, 1);
    }

    /// A thread that has waited for 70,000 ticks.
    fn waiting_thread(state: u32) -> WaitingThread {
        WaitingThread {
            time_ns: 2,
            start_time: 1,
            switches: 9,
            kernel_stack: 4,
            user_stack: 0,
            pid: 3,
            tid: 4,
            state,
            cpu: 1,
            is_cut: 0,
            may_await_mutex: 0,
            found_ticks: 70_005,
            recorded_ticks: 5,
            run_queue_ns: 0,
            comm: *b"app\0\0\0\0\0\0\0\0\0\0\0\0\0",
        }
    }

    #[test]
    fn a_wait_has_its_ticks_and_its_state() {
        let record =
            |state| WaitRecord { kind: RecordKind::Wait as u32, reserved: 0, thread: waiting_thread(state) };
        let mut batch = Batch::default();
        decode_into(record(WaitState::Disk as u32).as_bytes(), &mut batch);
        let [sample] = &batch.samples[..] else { panic!("{batch:?}") };
        let origin = Origin { event: 1, state: Some(ThreadState::Disk), is_duration: false };
        assert_eq!((sample.value, sample.origin), (70_000, origin));
        decode_into(record(77).as_bytes(), &mut batch);
        assert_eq!((batch.samples.len(), batch.undecodable), (1, 1));
    }

    #[test]
    fn a_process_in_which_threads_may_wait_for_a_mutex_is_noted_once() {
        let record = |may_await_mutex| {
            let thread = WaitingThread { may_await_mutex, ..waiting_thread(WaitState::Blocked as u32) };
            WaitRecord { kind: RecordKind::Wait as u32, reserved: 0, thread }
        };
        let mut batch = Batch::default();
        for may_await_mutex in [0, 1, 1] {
            decode_into(record(may_await_mutex).as_bytes(), &mut batch);
        }
        assert_eq!((batch.samples.len(), &batch.mutex_waits[..]), (3, &[Pid(3)][..]));
    }

    #[test]
    fn a_sample_of_an_event_has_its_occurrences() {
        let mut bytes = sample_bytes();
        bytes[..4].copy_from_slice(&(RecordKind::Event as u32).to_ne_bytes());
        let sample = SampleRecord::read_from_bytes(&bytes).unwrap();
        let record = |event| EventRecord {
            sample,
            value: 70_000,
            event,
            system_call_abi: SystemCallAbi::X64 as u32,
            system_call: 39,
        };
        let mut batch = Batch::default();
        decode_into(record(7).as_bytes(), &mut batch);
        let [sample] = &batch.samples[..] else { panic!("{batch:?}") };
        assert_eq!((sample.value, sample.origin), (70_000, Origin { event: 3 + 7, ..Origin::default() }));
        assert_eq!(sample.system_call, Some(CalledSystemCall { number: 39, abi: SystemCallAbi::X64 }));
        decode_into(record(8).as_bytes(), &mut batch);
        assert_eq!((batch.samples.len(), batch.undecodable), (1, 1), "there is no such event");
        decode_into(EventRecord { system_call_abi: 0, ..record(0) }.as_bytes(), &mut batch);
        assert_eq!(batch.samples[1].system_call, None);
        decode_into(EventRecord { system_call_abi: 3, ..record(0) }.as_bytes(), &mut batch);
        assert_eq!((batch.samples.len(), batch.undecodable), (2, 2), "there is no such table");
    }

    #[test]
    fn a_stale_mappings_record_names_its_process() {
        let record = StaleMappingsRecord { kind: RecordKind::StaleMappings as u32, pid: 7 };
        let mut batch = Batch::default();
        decode_into(record.as_bytes(), &mut batch);
        assert_eq!(batch.stale_mappings, [Pid(7)]);
    }

    #[test]
    fn short_and_unknown_records_are_counted() {
        let mut batch = Batch::default();
        let sample = sample_bytes();
        for end in 0..sample.len() {
            decode_into(&sample[..end], &mut batch);
        }
        decode_into(&stack_bytes(TRUNCATED, 3, &[0x10, 0x20]), &mut batch);
        decode_into(&[7; 64], &mut batch);
        assert_eq!(batch.undecodable, sample.len() as u64 + 2);
        assert!(batch.samples.is_empty() && batch.stacks.is_empty());
    }
}
