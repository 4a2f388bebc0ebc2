//! Reads no memory: the feature `dotnet-memory` is off.

use std::{sync::Arc, time::Duration};

use profiler_addresses::MonotonicTime;
use profiler_binary_reader::WorkBudget;
use profiler_processes::{Pid, ProcFs, Process};

use super::reading::{ReadFailure, Reading};
use crate::{locks::AwaitedLocks, modules::Modules};

/// No runtime is found.
#[derive(Debug, Default)]
pub(super) struct RuntimeReader;

impl RuntimeReader {
    pub(super) fn with_recorder() -> Self {
        Self
    }

    pub(super) fn recording(&self, _: Pid) -> Option<Vec<u8>> {
        None
    }

    pub(super) fn find(&mut self, _: &mut Modules, _: &Process) {}

    pub(super) fn is_unknown(&self) -> bool {
        true
    }

    pub(super) fn is_usable(&self) -> bool {
        false
    }

    pub(super) fn find_all(
        &mut self,
        _: &ProcFs,
        _: &Process,
        addresses: Vec<u64>,
        _: Duration,
        _: bool,
    ) -> Reading {
        Reading {
            addresses,
            found: Err(ReadFailure::NotDescribed),
            read_during: MonotonicTime::ZERO..MonotonicTime::ZERO,
        }
    }

    pub(super) fn find_locks(&mut self, _: &ProcFs, _: &Process) -> AwaitedLocks {
        AwaitedLocks::default()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        0
    }
}

pub(super) fn replay(_: &[u8], _: &Arc<WorkBudget>, _: impl FnMut(Reading)) {}
