//! Samples of the profiler, from the BPF programs or from a recorded capture: the plan of a session, the kinds of events with
//! their programs and counters, the loader, the unwind maps, and the raw samples and sideband events that arrive.
//!
//! A [`Plan`] says what to sample. [`LoadedSource::load`] loads the BPF programs that it needs, and
//! [`LoadedSource::start`] attaches them. From then on a [`SampleSource`] returns [`Batch`]es: samples with the ids of their
//! stacks, stacks that are new, and sideband events, in time order. Addresses have no names here: this crate knows neither files
//! nor symbols of targets.
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//!
//! use profiler_processes::Pid;
//! use profiler_sampler::{Filter, LoadedSource, Plan, SampleSource as _};
//! use rustix::event::{EventfdFlags, eventfd};
//!
//! // A write to it ends the wait for samples.
//! let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
//! let plan = Plan::cpu_samples(Filter::Processes(vec![Pid(1234)]), 99);
//! let mut source = LoadedSource::load(plan, waker)?.start()?;
//! for sample in source.read(Duration::from_secs(1))?.samples {
//!     println!("{:?}: thread {}, stack {:?}", sample.time, sample.tid.0, sample.user_stack);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod available_events;
mod batch;
mod batch_order;
#[cfg(feature = "capture")]
pub mod capture;
mod counted_event;
mod counts;
mod ebpf;
mod error;
mod event_condition;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod plan;
mod planned_event;
#[cfg(feature = "capture")]
mod replay;
mod sample;
mod source;
mod stack;
mod sys;
pub mod system_calls;

#[cfg(any(test, feature = "testing"))]
pub use self::ebpf::test_maps;
#[cfg(feature = "capture")]
pub use self::replay::ReplaySource;
pub use self::{
    available_events::{AvailableEvent, available_events},
    batch::Batch,
    batch_order::BatchOrder,
    counted_event::{CountedEvent, EventSource, Probe, StaticProbeName, UnknownEvent},
    counts::{KernelCounts, TimerCounts, add_loss},
    ebpf::{
        EbpfSource, INITIAL_PID_NAMESPACE, InstallError, InstalledFile, InstalledMappings, LoadedSource,
        UnwindMaps, abilities, check_present,
        events::{
            ArrivedSamples, DEFAULT_FREQUENCY_HZ, EventPlan, EventSettings, MAX_COUNTED_EVENTS, OffCpu,
            Waits, WallShare,
        },
        raise_locked_memory_limit,
    },
    error::{Error, ErrorKind, Operation, Result},
    event_condition::{EventCondition, InvalidCondition},
    plan::{DEFAULT_MAX_OVERHEAD_PERCENT, Filter, Plan, StackSettings, Unwind},
    planned_event::{PlannedEvent, ProbePlace, ProbedFile},
    sample::{CalledSystemCall, Comm, Origin, RawSample, RawWaker},
    source::SampleSource,
    stack::{FrameFound, RawFrame, RawStack, RawStackId},
    sys::{kernel_names::KernelNames, priority::raise_thread_priority, sysctl},
};
