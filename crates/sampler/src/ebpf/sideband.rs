//! Decodes perf sideband events of one CPU: mmap, comm, exec, fork and exit of its tasks.
//!
//! Record layouts: perf_event_open(2), and `include/uapi/linux/perf_event.h`, `enum perf_event_type`.

use std::os::fd::{AsFd, BorrowedFd};

use crate::{
    batch::Batch,
    error::{Error, Operation, Result},
    sys::{
        perf::open_sideband,
        perf_ring::{
            PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST,
            PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MMAP2, PerfRecord, PerfRing,
        },
    },
};
use profiler_addresses::{FileOffset, MonotonicTime, RuntimeAddress};
use profiler_processes::{Backing, FileId, Mapping, Pid, SidebandEvent, SidebandEventKind, Tid};

/// Enough for about 1,200 mmap events between two reads of the ring.
const DATA_PAGES: usize = 32;
/// The reader is woken when a quarter is used; below that its own timer is soon enough.
const WAKEUP_BYTES: u32 = 16 * 1024;

/// The sideband event of one CPU, which closes on drop.
#[derive(Debug)]
pub(super) struct Sideband {
    ring: PerfRing,
}

impl Sideband {
    pub(super) fn open(cpu: u32) -> Result<Self> {
        let failed = |error| {
            let message = format!("failed to open the sideband event (mmap, fork, exec, exit) of CPU {cpu}");
            Error::from_io(Operation::OpenPerfEvent, message, error)
        };
        let event = open_sideband(cpu, WAKEUP_BYTES).map_err(failed)?;
        Ok(Self { ring: PerfRing::map(event, DATA_PAGES).map_err(failed)? })
    }

    /// Decodes all pending records into the batch.
    pub(super) fn drain(&mut self, batch: &mut Batch) {
        let is_full = self.ring.drain(|record| decode(record, batch));
        batch.may_lack_events |= is_full;
    }
}

impl AsFd for Sideband {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Decodes one record into the batch, or counts it as lost.
pub(super) fn decode(record: PerfRecord<'_>, batch: &mut Batch) {
    let mut fields = Fields { bytes: record.body };
    if record.kind == PERF_RECORD_LOST {
        batch.may_lack_events = true;
        batch.lost_events += fields.u64().and_then(|_id| fields.u64()).unwrap_or(1);
        return;
    }
    match decode_event(record) {
        Some(Some(event)) => batch.events.push(event),
        Some(None) => {}
        None => {
            batch.may_lack_events = true;
            batch.lost_events += 1;
        }
    }
}

/// The event in a record; `Some(None)` for a record that is ignored, `None` for one that does not decode.
fn decode_event(record: PerfRecord<'_>) -> Option<Option<SidebandEvent>> {
    // With sample_id_all each record ends in the fields of sample_type, here the time alone.
    let (body, time) = record.body.split_last_chunk::<8>()?;
    let time = MonotonicTime(u64::from_ne_bytes(*time));
    let mut fields = Fields { bytes: body };
    let (pid, tid, kind) = match record.kind {
        PERF_RECORD_MMAP2 => {
            let (pid, tid) = (Pid(fields.u32()?), Tid(fields.u32()?));
            (pid, tid, SidebandEventKind::Map(decode_mapping(&mut fields)?))
        }
        PERF_RECORD_COMM => {
            let (pid, tid) = (Pid(fields.u32()?), Tid(fields.u32()?));
            let comm = fields.text();
            let exec = u32::from(record.misc) & PERF_RECORD_MISC_COMM_EXEC != 0;
            (pid, tid, if exec { SidebandEventKind::Execute(comm) } else { SidebandEventKind::Rename(comm) })
        }
        PERF_RECORD_FORK => {
            let (pid, parent, tid) = (Pid(fields.u32()?), Pid(fields.u32()?), Tid(fields.u32()?));
            let kind = if pid == parent {
                SidebandEventKind::StartThread
            } else {
                SidebandEventKind::Fork { parent }
            };
            (pid, tid, kind)
        }
        PERF_RECORD_EXIT => {
            let (pid, _parent, tid) = (Pid(fields.u32()?), Pid(fields.u32()?), Tid(fields.u32()?));
            (pid, tid, SidebandEventKind::Exit)
        }
        _ => return Some(None),
    };
    // 0 and -1 are tasks that the reader's PID namespace does not show, and the kernel itself.
    let visible = pid != Pid(0) && pid != Pid(u32::MAX);
    Some(visible.then_some(SidebandEvent { time, pid, tid, kind }))
}

fn decode_mapping(fields: &mut Fields<'_>) -> Option<Mapping> {
    let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (major, minor, inode) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let (_generation, _protection, _flags) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let backing = Backing::from_name(&fields.text(), FileId { major, minor, inode });
    let end = RuntimeAddress(start.checked_add(length)?);
    Some(Mapping { start: RuntimeAddress(start), end, offset: FileOffset(offset), backing })
}

/// Reads the fields of a record in order; `None` at the end.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(u32::from_ne_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(u64::from_ne_bytes(*field))
    }

    /// NUL-terminated text.
    fn text(&mut self) -> String {
        let end = memchr::memchr(0, self.bytes).unwrap_or(self.bytes.len());
        String::from_utf8_lossy(&self.bytes[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(parts: &[&[u8]], time_ns: u64) -> Vec<u8> {
        let mut body = parts.concat();
        body.extend(time_ns.to_ne_bytes());
        body
    }

    fn decoded(kind: u32, misc: u32, body: &[u8]) -> Batch {
        let mut batch = Batch::default();
        decode(PerfRecord { kind, misc: u16::try_from(misc).unwrap(), body }, &mut batch);
        batch
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn mmap2() -> Vec<u8> {
        let longs: Vec<u8> =
            [0x1000_u64, 0x2000, 0x500].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let rest =
            [words(&[8, 1]), 77_u64.to_ne_bytes().to_vec(), 0_u64.to_ne_bytes().to_vec(), words(&[5, 2])];
        body(&[&words(&[7, 8]), &longs, &rest.concat(), b"/lib/x.so\0\0\0\0\0\0\0"], 99)
    }

    #[test]
    fn an_executable_mapping_is_decoded() {
        let batch = decoded(PERF_RECORD_MMAP2, 0, &mmap2());
        let event = &batch.events[0];
        assert_eq!((event.time, event.pid, event.tid), (MonotonicTime(99), Pid(7), Tid(8)));
        let SidebandEventKind::Map(mapping) = &event.kind else { panic!("{event:?}") };
        assert_eq!((mapping.start.0, mapping.end.0, mapping.offset.0), (0x1000, 0x3000, 0x500));
        let id = FileId { major: 8, minor: 1, inode: 77 };
        assert_eq!(mapping.backing, Backing::File { id, path: "/lib/x.so".into() });
    }

    #[test]
    fn exec_and_rename_are_distinguished() {
        let bytes = body(&[&words(&[7, 7]), b"ls\0\0\0\0\0\0"], 5);
        assert_eq!(
            decoded(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, &bytes).events[0].kind,
            SidebandEventKind::Execute("ls".to_owned())
        );
        assert_eq!(
            decoded(PERF_RECORD_COMM, 0, &bytes).events[0].kind,
            SidebandEventKind::Rename("ls".to_owned())
        );
    }

    #[test]
    fn a_new_thread_and_a_new_process_are_distinguished() {
        let thread = body(&[&words(&[7, 7, 9, 7]), &1_u64.to_ne_bytes()], 5);
        assert_eq!(decoded(PERF_RECORD_FORK, 0, &thread).events[0].kind, SidebandEventKind::StartThread);
        let process = body(&[&words(&[9, 7, 9, 7]), &1_u64.to_ne_bytes()], 5);
        let batch = decoded(PERF_RECORD_FORK, 0, &process);
        assert_eq!(batch.events[0].kind, SidebandEventKind::Fork { parent: Pid(7) });
        assert_eq!((batch.events[0].pid, batch.events[0].tid), (Pid(9), Tid(9)));
    }

    #[test]
    fn lost_records_are_counted() {
        let bytes = body(&[&1_u64.to_ne_bytes(), &42_u64.to_ne_bytes()], 5);
        assert_eq!(decoded(PERF_RECORD_LOST, 0, &bytes).lost_events, 42);
    }

    #[test]
    fn tasks_outside_this_pid_namespace_are_ignored() {
        let bytes = body(&[&words(&[u32::MAX, u32::MAX]), b"x\0\0\0\0\0\0\0"], 5);
        assert!(decoded(PERF_RECORD_COMM, 0, &bytes).is_empty());
    }

    #[test]
    fn short_records_are_counted_and_never_panic() {
        let whole = mmap2();
        for end in 0..40 {
            let batch = decoded(PERF_RECORD_MMAP2, 0, &whole[..end]);
            assert_eq!((batch.events.len(), batch.lost_events), (0, 1));
        }
    }
}
