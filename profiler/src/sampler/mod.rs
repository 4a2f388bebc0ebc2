//! Sources of samples: the kernel, or a recorded capture.

pub(crate) mod capture;
pub(crate) mod ebpf;
pub(crate) mod replay;

use std::{borrow::Cow, path::PathBuf, time::Duration};

use profiler_common::COMM_BYTES;
use serde::{Deserialize, Serialize};

use crate::{address::RuntimeAddress, error::Result, process::ProcessEvent};

/// The id of a captured stack; `None` is no stack on that side.
pub(crate) type RawStackId = Option<std::num::NonZeroU64>;

/// A sample as it was taken: stacks by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawSample {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The thread's name.
    pub(crate) comm: Comm,
    pub(crate) kernel_stack: RawStackId,
    pub(crate) user_stack: RawStackId,
}

/// A thread's name, padded with NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Comm(pub(crate) [u8; COMM_BYTES]);

impl Comm {
    /// The name as text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        let end = memchr::memchr(0, &self.0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end])
    }
}

/// A captured stack: sent once, named by id from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawStack {
    pub(crate) id: RawStackId,
    /// Leaf first.
    pub(crate) addresses: Vec<u64>,
    /// The walk ended at the depth limit.
    pub(crate) cut: bool,
}

impl RawStack {
    /// The addresses to look up, leaf first: all but the first are return addresses, whose calls stand one
    /// byte earlier.
    pub(crate) fn call_sites(&self) -> impl DoubleEndedIterator<Item = RuntimeAddress> + '_ {
        self.addresses.iter().enumerate().map(|(depth, address)| {
            let address = RuntimeAddress(*address);
            if depth == 0 { address } else { address.call_site() }
        })
    }
}

/// What came from a source at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// Stacks that are new.
    pub(crate) stacks: Vec<RawStack>,
    /// Samples, in the order of each CPU.
    pub(crate) samples: Vec<RawSample>,
    /// What happened to processes, by time. Everything that happened before a sample of this batch is here or
    /// in an earlier one.
    pub(crate) events: Vec<ProcessEvent>,
    /// Records of samples and stacks that could not be decoded.
    pub(crate) undecodable: u64,
    /// Side-band records that the kernel could not hand over, or that could not be decoded.
    pub(crate) lost_events: u64,
}

impl Batch {
    /// Whether nothing came.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the kernel side counted since the beginning, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelCounts {
    pub(crate) target_ticks: u64,
    pub(crate) lost_ring_buffer: u64,
    pub(crate) lost_thread_id: u64,
    pub(crate) lost_children: u64,
    pub(crate) run_time_ns: u64,
}

/// Where samples come from.
pub(crate) trait SampleSource: Send {
    /// The moment sampling began, `CLOCK_MONOTONIC` nanoseconds.
    fn started_ns(&self) -> u64;

    /// How many CPUs are sampled.
    fn cpus(&self) -> u32;

    /// Waits until there is something, at most `wait`, and takes all there is.
    fn read(&mut self, wait: Duration) -> Result<Batch>;

    /// Takes no sample from now on. What was taken before can still be read.
    fn stop(&mut self) -> Result<()>;

    /// Whether there will never be more.
    fn is_exhausted(&self) -> bool;

    /// Samples lost so far because the reader was too slow.
    fn lost(&self) -> Result<u64>;

    /// What the kernel side counted.
    fn counts(&self) -> Result<KernelCounts>;
}

/// What the kernel lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Everything,
    Processes(Vec<u32>),
    Threads(Vec<u32>),
    /// A directory of the cgroup v2 hierarchy, and everything below it.
    CgroupV2(PathBuf),
    /// A directory of a cgroup v1 hierarchy, and everything below it.
    CgroupV1 {
        directory: PathBuf,
        /// A controller of that hierarchy: `cpu`, `memory`.
        controller: String,
    },
}

/// What to sample, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) filter: Filter,
    pub(crate) frequency_hz: u64,
    /// Only these CPUs; `None` is every CPU that is online, now or later.
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) kernel_stacks: bool,
    pub(crate) user_stacks: bool,
    /// Whether processes forked by a target process become targets.
    pub(crate) children: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_looked_up_in_their_calls_and_the_leaf_where_it_is() {
        let stack = RawStack { id: None, addresses: vec![0x1000, 0x2000, 0x3000], cut: false };
        let sites: Vec<u64> = stack.call_sites().map(|address| address.0).collect();
        assert_eq!(sites, [0x1000, 0x1fff, 0x2fff]);
    }

    #[test]
    fn a_name_ends_at_its_padding() {
        assert_eq!(Comm(*b"dotnet\0\0\0\0\0\0\0\0\0\0").text(), "dotnet");
        assert_eq!(Comm(*b"sixteen_bytes_xx").text(), "sixteen_bytes_xx");
        assert_eq!(Comm([0xff; 16]).text(), "\u{fffd}".repeat(16));
    }
}
