//! What the programs of events are loaded from and for.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use profiler_common::Config;

use super::{
    kernel_types::KernelTypes,
    object::{Helper, clone_fd, has_helper, load_program, map},
};
use crate::{
    error::{Error, Operation, Result},
    sys::{
        bpf::ProgramType,
        bpf_link::{self, IteratedTasks},
    },
};

/// What the maps, constants and programs of an event depend on, besides its own settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventContext<'a> {
    pub(crate) types: &'a KernelTypes,
    /// The CPUs that can come online. The kernel has data of each of them.
    pub(crate) possible_cpus: u32,
    /// Whether the BPF unwinder captures user stacks, and not `bpf_get_stack`.
    pub(crate) uses_unwinder: bool,
}

/// Loads programs from the object of a session.
pub(crate) struct ProgramLoader<'a> {
    pub(super) context: EventContext<'a>,
    pub(super) config: &'a Config,
    pub(super) object: Arc<aya_obj::Object>,
    pub(super) maps: &'a HashMap<String, OwnedFd>,
    /// The tasks that can belong to the target.
    pub(super) tasks: IteratedTasks,
    /// The run time of the programs that is allowed on each CPU.
    pub(super) max_overhead_percent: f64,
}

impl ProgramLoader<'_> {
    /// Whether programs that are not those of timers can unwind user stacks, and not only call `bpf_get_stack`.
    pub(super) fn can_unwind(&self) -> bool {
        self.context.uses_unwinder && has_helper(Helper::Loop)
    }

    pub(super) fn load(&self, name: &str, program_type: ProgramType) -> Result<OwnedFd> {
        load_program(&self.object, name, program_type)
    }

    /// Loads a program of the task iterator.
    pub(super) fn load_iterator(&self, name: &str, is_sleepable: bool) -> Result<OwnedFd> {
        let btf_id = self.context.types.task_iterator()?;
        self.load(name, ProgramType::Iterator { btf_id, is_sleepable })
    }

    pub(super) fn map(&self, name: &str) -> Result<OwnedFd> {
        clone_fd(map(self.maps, name)?)
    }
}

/// Attaches a program of the task iterator to tasks.
pub(super) fn attach_iterator(program: &OwnedFd, tasks: IteratedTasks) -> Result<OwnedFd> {
    bpf_link::attach_task_iterator(program.as_fd(), tasks)
        .map_err(|error| Error::from_io(Operation::LoadProgram, "failed to attach the task iterator", error))
}
