//! Remembers the modules of the files that tenants map.

use std::{collections::HashMap, sync::Arc, time::Instant};

use profiler_processes::{FileId, ProcessKey};

use crate::ModuleKey;
use profiler_processes::tenants::Tenant;

/// Files that are remembered. A target can show one open module under any number of paths: beyond the limit, the half
/// that was not used for longest is evicted, and looked up again when it is used.
pub(super) const MAX_FILES: usize = 8 * 1024;

/// A file as the mappings of a tenant show it. Files in several subvolumes of btrfs differ in their path alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MappedPath {
    pub(super) tenant: Tenant,
    pub(super) id: FileId,
    pub(super) path: Arc<str>,
}

/// The module of a mapped file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedModule {
    pub(super) module: ModuleKey,
    /// The process that mapped the file when it was opened last.
    pub(super) process: ProcessKey,
    /// When the file was opened last.
    pub(super) checked: Instant,
    last_used: Instant,
}

/// The modules of mapped files.
#[derive(Debug, Default)]
pub(super) struct MappedModules(HashMap<MappedPath, MappedModule>);

impl MappedModules {
    /// The module of a file, which is used at `now`.
    pub(super) fn find(&mut self, file: &MappedPath, now: Instant) -> Option<MappedModule> {
        let found = self.0.get_mut(file)?;
        found.last_used = now;
        Some(*found)
    }

    /// Adds or replaces the module of a file that a process maps and that was opened at `now`.
    pub(super) fn insert(&mut self, file: MappedPath, module: ModuleKey, process: ProcessKey, now: Instant) {
        if self.0.len() >= MAX_FILES {
            self.evict_half();
        }
        self.0.insert(file, MappedModule { module, process, checked: now, last_used: now });
    }

    /// Keeps the files of these modules.
    pub(super) fn retain_modules(&mut self, is_retained: impl Fn(ModuleKey) -> bool) {
        self.0.retain(|_, mapped| is_retained(mapped.module));
    }

    /// The number of files.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn evict_half(&mut self) {
        let mut uses: Vec<_> = self.0.values().map(|mapped| mapped.last_used).collect();
        let middle = uses.len() / 2;
        let median = *uses.select_nth_unstable(middle).1;
        self.0.retain(|_, mapped| mapped.last_used > median);
    }
}
