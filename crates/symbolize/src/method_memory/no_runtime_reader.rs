//! Reads no memory: the feature `dotnet-memory` is off.

use std::time::Duration;

use profiler_processes::{ProcFs, Process};

use super::Found;
use crate::{locks::AwaitedLock, modules::Modules};

/// Why no address was looked up.
#[expect(dead_code)]
pub(super) enum ReadFailure {
    ProcessEnded,
    NotReadable,
    NotDescribed,
}

/// No runtime is found.
#[derive(Debug, Default)]
pub(super) struct RuntimeReader;

impl RuntimeReader {
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
        _: Vec<u64>,
        _: Duration,
        _: bool,
    ) -> Result<Found, ReadFailure> {
        Err(ReadFailure::NotDescribed)
    }

    pub(super) fn find_locks(&mut self, _: &ProcFs, _: &Process) -> Vec<AwaitedLock> {
        Vec::new()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        0
    }
}
