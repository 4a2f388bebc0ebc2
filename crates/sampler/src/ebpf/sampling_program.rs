//! Loads the program that runs at each tick, in a thread of its own: the verifier takes longer than the rest of the start.

use std::{
    mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread::JoinHandle,
};

use profiler_common::names;

use super::{
    object::{Helper, broken, has_helper, load_program},
    programs::ProgramLoader,
};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sys::bpf::{self, ProgramType},
};

/// The program that runs at each tick. Dropping it before it is loaded does not wait for the thread.
#[derive(Debug)]
pub(super) enum SamplingProgram {
    Loading(JoinHandle<Result<OwnedFd>>),
    Loaded(OwnedFd),
    /// Loading it failed, and the error was returned.
    Failed,
}

impl SamplingProgram {
    /// Starts to load the program.
    pub(super) fn start_loading(loader: &ProgramLoader<'_>) -> Result<Self> {
        let uses_unwinder = loader.context.uses_unwinder;
        let (object, tail_calls) = (Arc::clone(&loader.object), loader.map(names::MAP_TAIL_CALLS)?);
        let thread = std::thread::Builder::new()
            .name("bpf-load".to_owned())
            .spawn(move || load(&object, uses_unwinder, tail_calls.as_fd()))
            .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))?;
        Ok(Self::Loading(thread))
    }

    /// The program. The first call waits until it is loaded.
    ///
    /// # Errors
    /// The first call returns the error of loading.
    pub(super) fn wait(&mut self) -> Result<BorrowedFd<'_>> {
        if matches!(self, Self::Loading(_))
            && let Self::Loading(thread) = mem::replace(self, Self::Failed)
        {
            let loaded = thread.join().map_err(|_| broken("the thread that loads it panicked"))?;
            *self = Self::Loaded(loaded?);
        }
        match &*self {
            Self::Loaded(program) => Ok(program.as_fd()),
            Self::Loading(_) | Self::Failed => Err(broken("the sampling program was not loaded")),
        }
    }
}

fn load(object: &aya_obj::Object, uses_unwinder: bool, tail_calls: BorrowedFd<'_>) -> Result<OwnedFd> {
    let load = |name| load_program(object, name, ProgramType::PerfEvent);
    if !uses_unwinder {
        return load(names::PROGRAM_SAMPLE_FP);
    }
    if has_helper(Helper::Loop) {
        return load(names::PROGRAM_SAMPLE_LOOP);
    }
    let unwind = load(names::PROGRAM_UNWIND_TAILCALL)?;
    bpf::update_element(tail_calls, &0_u32.to_ne_bytes(), &unwind.as_raw_fd().to_ne_bytes()).map_err(
        |error| Error::from_io(Operation::LoadProgram, "failed to set the tail call of the unwinder", error),
    )?;
    load(names::PROGRAM_SAMPLE_TAILCALL)
}
