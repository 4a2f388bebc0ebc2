//! Names JIT code that a process has from a fork by the perf maps and jitdumps of the processes that forked.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_processes::{Ancestor, Backing, Process, ProcessKey, ProcessTable, tenants::tenant_of};
use profiler_profile::Reason;

use super::Symbolizer;
use crate::{
    jit::{AncestorKey, FoundCode, Generation, JitNames},
    symbol::Symbolized,
};

/// Processes that have no JIT code of their own in the session, and whose files are read for their descendants.
const MAX_ANCESTORS: usize = 1024;

impl Symbolizer {
    /// Searches the processes from whose forks those with JIT code descend, once for each.
    pub(super) fn find_ancestors(&mut self, processes: &ProcessTable) {
        let unknown = self.jit.iter().filter(|(_, names)| names.inheritance.generations.is_none());
        let unknown: Vec<_> = unknown.filter_map(|(key, _)| processes.get(*key)).collect();
        for process in unknown {
            let ancestors = processes.ancestors(process);
            let generations: Vec<_> =
                ancestors.into_iter().map(|ancestor| self.generation(process, ancestor)).collect();
            for generation in &generations {
                if let Some(names) = self.names_of_ancestor(generation.names) {
                    process.mapped_files().for_each(|path| names.add_mapped_file(Path::new(path)));
                }
            }
            if let Some(names) = self.jit.get_mut(&process.key) {
                names.inheritance.generations = Some(generations);
            }
        }
    }

    /// The names of an ancestor: those that its own samples need, or others.
    fn generation(&mut self, process: &Process, ancestor: Ancestor) -> Generation {
        if let Some(key) = ancestor.key.filter(|key| self.jit.contains_key(key)) {
            return Generation { names: AncestorKey::Sampled(key), ancestor };
        }
        let identity = &ancestor.identity;
        let key = (ancestor.pid, identity.started_unix_ns);
        if !self.jit_of_ancestors.contains_key(&key) && self.jit_of_ancestors.len() < MAX_ANCESTORS {
            let names = self.new_names_of_ancestor(process, &ancestor);
            self.jit_of_ancestors.insert(key, names);
        }
        Generation { names: AncestorKey::Other(key.0, key.1), ancestor }
    }

    /// The names in the files of an ancestor. No file is read yet.
    fn new_names_of_ancestor(&mut self, process: &Process, ancestor: &Ancestor) -> JitNames {
        let budget = self.modules.budget_of(tenant_of(process)).part();
        JitNames::of_ancestor(&self.proc, ancestor, budget)
    }

    /// The path of the first perf map or jitdump that names JIT code which a process has from forks.
    pub(super) fn inherited_jit_file(
        &mut self,
        processes: &ProcessTable,
        process: &Process,
    ) -> Option<PathBuf> {
        let ancestors = processes.ancestors(process).into_iter();
        let has_code_of = |ancestor: &Ancestor| {
            process.mappings().any(|mapping| mapping.backing == Backing::Jit && ancestor.can_share(mapping))
        };
        ancestors
            .take_while(has_code_of)
            .find_map(|ancestor| self.new_names_of_ancestor(process, &ancestor).find_file(process))
    }

    fn names_of_ancestor(&mut self, key: AncestorKey) -> Option<&mut JitNames> {
        match key {
            AncestorKey::Sampled(key) => self.jit.get_mut(&key),
            AncestorKey::Other(pid, started_unix_ns) => {
                self.jit_of_ancestors.get_mut(&(pid, started_unix_ns))
            }
        }
    }

    /// The JIT code at an address: that of the process itself, or what it has from a fork.
    pub(super) fn own_or_inherited(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Result<Symbolized, Reason> {
        let own = self.jit_names(process).lookup(address, time);
        match &own {
            Ok(code) if code.is_certain => return own.map(|code| code.symbolized),
            Err(Reason::JitCodeReplaced | Reason::TooLarge) => return own.map(|code| code.symbolized),
            _ => {}
        }
        let Some(inherited) = self.inherited(process, address, time) else {
            return own.map(|code| code.symbolized);
        };
        match (own, inherited) {
            (Ok(own), Ok(inherited)) if own.symbolized.functions == inherited.symbolized.functions => {
                Ok(own.symbolized)
            }
            // Its own code came at an unknown time between the fork and the poll that read it.
            (Ok(own), _) if own.exists_from <= time => Err(Reason::JitCodeReplaced),
            (_, inherited) => inherited.map(|code| code.symbolized),
        }
    }

    /// The code that a process has at an address from a fork.
    fn inherited(
        &self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Option<Result<FoundCode, Reason>> {
        let mapping = process.find_mapping(address, time).ok()?;
        if matches!(mapping.backing, Backing::Vdso | Backing::Special(_)) {
            return None;
        }
        let generations = self.jit.get(&process.key)?.inheritance.generations();
        let shared = generations.iter().take_while(|Generation { ancestor, .. }| {
            ancestor.can_share(mapping) && process.had_code_at(mapping, ancestor.forked)
        });
        shared.into_iter().find_map(|Generation { names, ancestor }| {
            let names = match names {
                AncestorKey::Sampled(key) => self.jit.get(key),
                AncestorKey::Other(pid, started_unix_ns) => {
                    self.jit_of_ancestors.get(&(*pid, *started_unix_ns))
                }
            };
            names?.lookup_at_fork(address, ancestor.forked_after, ancestor.forked)
        })
    }

    /// Retires the names of the processes that `is_retained` rejects, unless a retained one has code of theirs, and code that
    /// was replaced before a time and before all forks.
    pub(super) fn retire_jit_names(&mut self, from: MonotonicTime, is_retained: impl Fn(ProcessKey) -> bool) {
        let mut first_forks = HashMap::new();
        let retained = self.jit.iter().filter(|(key, _)| is_retained(**key));
        for generation in retained.flat_map(|(_, names)| names.inheritance.generations()) {
            let first = first_forks.entry(generation.names).or_insert(MonotonicTime::MAX);
            *first = generation.ancestor.forked.min(*first);
        }
        let needed: HashSet<AncestorKey> = first_forks.keys().copied().collect();
        self.jit.retain(|key, _| is_retained(*key) || needed.contains(&AncestorKey::Sampled(*key)));
        self.jit_of_ancestors
            .retain(|(pid, started_unix_ns), _| needed.contains(&AncestorKey::Other(*pid, *started_unix_ns)));
        let until = |key| first_forks.get(&key).map_or(from, |forked| from.min(*forked));
        for (key, names) in &mut self.jit {
            names.retire_replaced(until(AncestorKey::Sampled(*key)));
        }
        for ((pid, started_unix_ns), names) in &mut self.jit_of_ancestors {
            names.retire_replaced(until(AncestorKey::Other(*pid, *started_unix_ns)));
        }
    }
}
