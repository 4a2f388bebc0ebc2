//! Passes over a process most of whose threads have not run since the last pass: the others alone are visited.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use profiler_common::wall::{WallScan, captures_cut_stacks};
use profiler_processes::Tid;
use zerocopy::FromBytes;

use super::iterator_pass;
use crate::sys::{
    bpf,
    bpf_link::{self, IteratedTasks},
};

/// The number of threads that one pass visits in the time of one separate visit: that attaches, opens and closes an iterator.
const THREADS_PER_VISIT: u32 = 30;

/// The time without scans after a scan that was not worth its cost.
const PAUSE: Duration = Duration::from_secs(1);

/// The scan of the threads of a process.
#[derive(Debug)]
pub(super) struct WallScanner {
    links: ScanLinks,
    result: OwnedFd,
    /// The program of passes.
    pass: OwnedFd,
    next_scan: Instant,
    /// Whether a scan has found threads waiting whose ticks are not in the map of waiting threads.
    has_scanned: bool,
}

/// The iterators of the program that scans.
#[derive(Debug)]
pub(super) struct ScanLinks {
    /// Over the leader of the process.
    pub(super) scan: OwnedFd,
    /// Over the profiler: scans can be ended once the process is gone.
    pub(super) end: OwnedFd,
}

impl WallScanner {
    /// The map with the result of a scan, and the program of passes.
    pub(super) fn new(links: ScanLinks, result: OwnedFd, pass: OwnedFd) -> Self {
        Self { links, result, pass, next_scan: Instant::now(), has_scanned: false }
    }

    /// Counts the ticks of threads that have not run since the last pass, and visits the others. `false`: a pass over all threads
    /// has to follow, once scans have ended.
    pub(super) fn scan(&mut self, pass: u32) -> io::Result<bool> {
        if Instant::now() < self.next_scan {
            return Ok(false);
        }
        self.has_scanned = true;
        iterator_pass::run(self.links.scan.as_fd())?;
        let is_complete = match self.result()?.filter(|scan| scan.pass == pass) {
            Some(scan) => self.visit_changed(&scan)?,
            None => false,
        };
        // After a pass that captures cut stacks again, the next scan can be worth its cost.
        if !is_complete && !captures_cut_stacks(pass) {
            self.next_scan = Instant::now() + PAUSE;
        }
        Ok(is_complete)
    }

    /// Whether [`WallScanner::end_scans`] has to run before a pass over all threads.
    pub(super) fn has_scanned(&self) -> bool {
        self.has_scanned
    }

    /// Puts the ticks that scans have counted into the map of waiting threads. The pass says so
    /// ([`WallPass::ends_scans`](profiler_common::wall::WallPass::ends_scans)).
    pub(super) fn end_scans(&mut self) -> io::Result<()> {
        self.has_scanned = false;
        iterator_pass::run(self.links.end.as_fd())
    }

    /// Visits the threads that have run, if they are few. `false` where they are many, or not all were visited: some kernels
    /// from 6.1 on do not find a thread by its id (fixed by "bpf: Fix iter/task tid filtering").
    fn visit_changed(&self, scan: &WallScan) -> io::Result<bool> {
        let Some(tids) = threads_to_visit(scan) else { return Ok(false) };
        for tid in tids {
            let Ok(link) =
                bpf_link::attach_task_iterator(self.pass.as_fd(), IteratedTasks::Thread(Tid(*tid)))
            else {
                return Ok(false);
            };
            iterator_pass::run(link.as_fd())?;
        }
        let visits = self.result()?.map_or(0, |scan| scan.visits);
        Ok(visits as usize >= tids.len())
    }

    fn result(&self) -> io::Result<Option<WallScan>> {
        let mut value = [0; size_of::<WallScan>()];
        bpf::look_up_element(self.result.as_fd(), &0_u32.to_ne_bytes(), &mut value)?;
        Ok(WallScan::read_from_bytes(&value).ok())
    }
}

/// The threads that the pass visits one by one; `None` where it visits all.
fn threads_to_visit(scan: &WallScan) -> Option<&[u32]> {
    let is_cheap = scan.changed <= scan.threads / THREADS_PER_VISIT;
    let tids = scan.changed_tids.get(..usize::try_from(scan.changed).ok()?)?;
    (scan.is_complete != 0 && is_cheap).then_some(tids)
}

#[cfg(test)]
mod tests {
    use profiler_common::wall::{LINKED_WORDS, MAX_CHANGED_THREADS, SCAN_GROUP, STATE_WORDS};

    use super::*;

    fn scan(threads: u32, changed: u32) -> WallScan {
        WallScan {
            head: 0,
            link: 0,
            pass: 1,
            is_complete: 1,
            threads,
            changed,
            visits: 0,
            entries: 0,
            next_entry: 0,
            kept: threads,
            next_record: 0,
            singles: 0,
            changed_tids: std::array::from_fn(|index| index as u32),
            linked: [0; LINKED_WORDS],
            states: [0; STATE_WORDS],
            group_links: [0; SCAN_GROUP],
        }
    }

    #[test]
    fn few_threads_are_visited_alone_and_many_in_one_pass() {
        assert_eq!(threads_to_visit(&scan(1_000, 3)), Some(&[0, 1, 2][..]));
        assert_eq!(threads_to_visit(&scan(60, 2)).map(<[u32]>::len), Some(2));
        assert_eq!(threads_to_visit(&scan(60, 3)), None);
        assert_eq!(threads_to_visit(&scan(3, 0)), Some(&[][..]));
        let most = MAX_CHANGED_THREADS as u32;
        assert_eq!(threads_to_visit(&scan(100_000, most)).map(<[u32]>::len), Some(MAX_CHANGED_THREADS));
        assert_eq!(threads_to_visit(&scan(100_000, most + 1)), None, "the others are not known");
        assert_eq!(threads_to_visit(&WallScan { is_complete: 0, ..scan(1_000, 0) }), None);
    }
}
