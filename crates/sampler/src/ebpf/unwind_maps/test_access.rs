//! Reads the unwind maps as the unwinder does, for tests.

use std::os::fd::AsFd;

use profiler_addresses::MonotonicTime;
use profiler_common::unwind::{MAX_MAPPINGS, MAX_PAGES, ProcessEntry, ROWS_PER_CHUNK};
use profiler_processes::Pid;
use zerocopy::IntoBytes;

use super::{
    super::test_maps::{self, Contents},
    UnwindMaps,
};
use crate::sys::bpf;

impl UnwindMaps {
    /// The contents of the maps, as the unwinder reads them.
    pub fn contents(&self) -> Contents {
        Contents::read(&self.maps, self.chunks.iter().map(|chunk| &chunk.array))
    }

    /// The entry of a process, without the time of its last sample.
    pub fn process(&self, pid: Pid) -> Option<ProcessEntry> {
        test_maps::process(&self.maps.processes, pid).map(|entry| ProcessEntry { used_ns: 0, ..entry })
    }

    /// Sets the time of the last sample of a process.
    pub fn set_last_use(&self, pid: Pid, last_use: MonotonicTime) {
        let entry = ProcessEntry { used_ns: last_use.0, ..self.process(pid).unwrap() };
        bpf::update_element(self.maps.processes.as_fd(), &pid.0.to_ne_bytes(), entry.as_bytes()).unwrap();
    }

    /// Whether every range and rule is free.
    pub fn are_empty(&mut self) -> bool {
        self.reclaim().unwrap();
        let mut chunks = self.chunks.iter_mut();
        self.free_mappings.allocate(MAX_MAPPINGS).is_some()
            && self.free_pages.allocate(MAX_PAGES).is_some()
            && chunks.all(|chunk| chunk.free.allocate(ROWS_PER_CHUNK).is_some())
            && self.rule_ids.is_empty()
            && self.free_rules.len() == self.rule_users.len()
    }
}
