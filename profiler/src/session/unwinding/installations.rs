//! Passes the times at which mappings were installed to the pipeline thread, which marks stacks that outdated unwind
//! tables have unwound.

use std::sync::{Mutex, PoisonError};

use profiler_processes::{Installation, ProcessKey};

/// The installations that the pipeline does not know yet, oldest first.
#[derive(Debug, Default)]
pub(super) struct Installations(Mutex<Vec<(ProcessKey, Installation)>>);

impl Installations {
    /// How many are kept while the pipeline takes none.
    const CAPACITY: usize = 4096;

    /// Adds one. Beyond the capacity it is forgotten: stacks of that process are marked until its next installation.
    pub(super) fn add(&self, process: ProcessKey, installation: Installation) {
        let mut installations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if installations.len() < Self::CAPACITY {
            installations.push((process, installation));
        }
    }

    /// Takes all.
    pub(super) fn take(&self) -> Vec<(ProcessKey, Installation)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
