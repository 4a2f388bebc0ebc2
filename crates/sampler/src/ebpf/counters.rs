//! The counters of the BPF programs.

use std::os::fd::{AsFd, OwnedFd};

use profiler_common::Counter;

use crate::{
    error::{Error, ErrorKind, Result},
    sys::bpf,
};

/// The counters that all programs share.
#[derive(Debug)]
pub(crate) struct Counters {
    map: OwnedFd,
}

impl Counters {
    pub(super) fn new(map: OwnedFd) -> Self {
        Self { map }
    }

    /// One counter, summed over all CPUs.
    pub(super) fn get(&self, counter: Counter) -> Result<u64> {
        bpf::sum_over_cpus(self.map.as_fd(), counter as u32).map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to read the counters of the BPF programs", error)
        })
    }
}
