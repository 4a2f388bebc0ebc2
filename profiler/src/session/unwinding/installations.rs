//! Passes the times at which mappings were installed to the pipeline thread, which marks stacks that outdated unwind
//! tables have unwound.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use profiler_processes::{Installation, ProcessKey};

/// The latest installation of each process that the pipeline does not know yet.
#[derive(Debug, Default)]
pub(super) struct Installations(Mutex<HashMap<ProcessKey, Installation>>);

impl Installations {
    /// Adds one. An earlier one of the process that was not taken is forgotten: for a few milliseconds its tables are
    /// taken for outdated.
    pub(super) fn add(&self, process: ProcessKey, installation: Installation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(process, installation);
    }

    /// Takes all.
    pub(super) fn take(&self) -> HashMap<ProcessKey, Installation> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
