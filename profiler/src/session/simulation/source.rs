//! Generates the records of a simulated node in advance, and returns those that are due at each read.

use std::{collections::VecDeque, num::NonZeroU64, os::fd::OwnedFd, sync::Arc, time::Duration};

use profiler_addresses::MonotonicTime;
use profiler_common::unwind::StackEndReason;
use profiler_processes::{Pid, SidebandEvent, SidebandEventKind, Tid, monotonic_time};
use profiler_sampler::{
    Batch, BatchOrder, Comm, Error, ErrorKind, KernelCounts, Origin, RawSample, RawStack, RawStackId, Result,
    SampleSource,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    Node,
    node_proc::{CallSites, FIRST_PID},
};

const NS_PER_S: u64 = 1_000_000_000;

/// Frames of a stack: as many as those of a request in a web framework.
const USER_FRAMES: usize = 40;
const KERNEL_FRAMES: usize = 12;
const KERNEL_STACKS: u64 = 500;
/// The ids of kernel stacks begin here, behind those of user stacks.
const FIRST_KERNEL_STACK: u64 = 1 << 32;

/// From fork to exec, and from exec to the first sample.
const STEP_NS: u64 = 200_000;
/// From fork to exit.
const LIFETIME_NS: u64 = 300_000_000;

/// A record that a CPU writes.
#[derive(Debug)]
enum Record {
    /// A sample with its new stack.
    Sample(RawSample, RawStack),
    Event(SidebandEvent),
}

/// Records by CPU, in time order. Their times are relative to the start until they are read.
#[derive(Debug)]
pub(super) struct SimulatedSource {
    cpus: Vec<VecDeque<(u64, Record)>>,
    /// Sent with the first batch.
    kernel_stacks: Vec<RawStack>,
    order: BatchOrder,
    /// Becomes readable when a profile is requested.
    waker: Arc<OwnedFd>,
    started: MonotonicTime,
    samples: u64,
    stopped: bool,
}

impl SimulatedSource {
    /// Generates all records. Sampling begins when this returns.
    pub(super) fn generate(node: Node, call_sites: &CallSites, waker: Arc<OwnedFd>) -> Self {
        let samples = u64::from(node.samples_per_second) * u64::from(node.seconds);
        let mut random = Random(1);
        let kernel_stacks = (0..KERNEL_STACKS).map(|number| RawStack {
            id: NonZeroU64::new(FIRST_KERNEL_STACK + number),
            addresses: random.chosen(&call_sites.kernel, KERNEL_FRAMES),
            ..RawStack::default()
        });
        let mut source = Self {
            kernel_stacks: kernel_stacks.collect(),
            cpus: (0..node.cpus).map(|_| VecDeque::new()).collect(),
            order: BatchOrder::default(),
            waker,
            started: MonotonicTime::ZERO,
            samples,
            stopped: false,
        };
        for number in 0..samples {
            let pid = Pid(FIRST_PID + random.below(u64::from(node.processes)) as u32);
            let at_ns = number * NS_PER_S / u64::from(node.samples_per_second);
            source.add_sample(at_ns, pid, number + 1, call_sites, &mut random);
        }
        for number in 0..node.forks_per_second * node.seconds {
            let pid = Pid(FIRST_PID + node.processes + number);
            let fork_ns = u64::from(number) * NS_PER_S / u64::from(node.forks_per_second);
            let parent = Pid(FIRST_PID + random.below(u64::from(node.processes)) as u32);
            for (after_ns, kind) in [
                (0, SidebandEventKind::Fork { parent }),
                (STEP_NS, SidebandEventKind::Execute("forked".to_owned())),
                (LIFETIME_NS, SidebandEventKind::Exit),
            ] {
                let event = SidebandEvent { time: MonotonicTime(0), pid, tid: Tid::leader_of(pid), kind };
                source.add(fork_ns + after_ns, Record::Event(event), &mut random);
            }
        }
        for cpu in &mut source.cpus {
            cpu.make_contiguous().sort_by_key(|(at_ns, _)| *at_ns);
        }
        source.started = monotonic_time();
        source
    }

    fn add_sample(&mut self, at_ns: u64, pid: Pid, stack: u64, call_sites: &CallSites, random: &mut Random) {
        let id = NonZeroU64::new(stack);
        let kernel_stack: RawStackId = NonZeroU64::new(FIRST_KERNEL_STACK + random.below(KERNEL_STACKS));
        let sample = RawSample {
            time: MonotonicTime(0),
            cpu: 0,
            pid,
            tid: Tid::leader_of(pid),
            comm: Comm(*b"simulated\0\0\0\0\0\0\0"),
            kernel_stack,
            user_stack: id,
            value: 1,
            origin: Origin::default(),
            waker: None,
            system_call: None,
        };
        let stack = RawStack {
            id,
            addresses: random.chosen(&call_sites.user, USER_FRAMES),
            is_truncated: false,
            end_reason: StackEndReason::Root as u8,
        };
        self.add(at_ns, Record::Sample(sample, stack), random);
    }

    /// Adds a record of a random CPU.
    fn add(&mut self, at_ns: u64, record: Record, random: &mut Random) {
        let cpu = random.below(self.cpus.len() as u64) as usize;
        self.cpus[cpu].push_back((at_ns, record));
    }

    /// Reads what a CPU has written up to now.
    fn drain(&mut self, cpu: usize, batch: &mut Batch) {
        let since_start_ns = monotonic_time().nanoseconds_since(self.started);
        let records = &mut self.cpus[cpu];
        let due = records.partition_point(|(at_ns, _)| *at_ns <= since_start_ns);
        for (at_ns, record) in records.drain(..due) {
            let time = self.started.saturating_add(Duration::from_nanos(at_ns));
            match record {
                Record::Sample(sample, stack) => {
                    batch.stacks.push(stack);
                    batch.samples.push(RawSample { time, cpu: cpu as u32, ..sample });
                }
                Record::Event(event) => {
                    batch.events.push(SidebandEvent { time, ..event });
                }
            }
        }
    }
}

impl SampleSource for SimulatedSource {
    fn started(&self) -> MonotonicTime {
        self.started
    }

    fn cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    fn read(&mut self, wait: Duration) -> Result<Batch> {
        let failed =
            |error: std::io::Error| Error::with_source(ErrorKind::Io, "failed to wait for a request", error);
        let timeout =
            rustix::event::Timespec::try_from(wait).map_err(|error| failed(std::io::Error::other(error)))?;
        poll(&mut [PollFd::new(&self.waker, PollFlags::IN)], Some(&timeout))
            .map_err(|error| failed(error.into()))?;
        let watermark = if self.is_exhausted() { MonotonicTime::MAX } else { monotonic_time() };
        let mut batch = Batch { stacks: std::mem::take(&mut self.kernel_stacks), ..Batch::default() };
        for cpu in 0..self.cpus.len() {
            self.drain(cpu, &mut batch);
        }
        self.order.order(&mut batch, watermark);
        Ok(batch)
    }

    fn stop(&mut self) -> Result<MonotonicTime> {
        self.stopped = true;
        Ok(monotonic_time())
    }

    fn is_exhausted(&self) -> bool {
        self.stopped
    }

    fn lost(&self) -> Result<u64> {
        Ok(0)
    }

    fn counts(&mut self) -> Result<KernelCounts> {
        Ok(KernelCounts::of_ticks(self.samples))
    }
}

/// A pseudo-random generator with a fixed seed (Vigna's SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn chosen(&mut self, from: &[u64], count: usize) -> Vec<u64> {
        (0..count).map(|_| from[self.below(from.len() as u64) as usize]).collect()
    }
}
