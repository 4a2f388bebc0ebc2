//! The processes that forked a process, whose perf maps and jitdumps name the JIT code that it has from the forks.

use std::sync::Arc;

use profiler_binary_reader::WorkBudget;
use profiler_processes::{Ancestor, Pid, ProcFs, ProcessKey};

use super::{JitNames, JitProcess};

/// Identifies the names of a process that forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AncestorKey {
    /// Those of a sampled process.
    Sampled(ProcessKey),
    /// Those of another one, by its process id and start time.
    Other(Pid, u64),
}

/// The processes whose code a process has from forks.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    /// The parent first. `None` until they were searched.
    pub(crate) generations: Option<Vec<Generation>>,
}

#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) names: AncestorKey,
    pub(crate) ancestor: Ancestor,
}

impl Inheritance {
    pub(crate) fn generations(&self) -> &[Generation] {
        self.generations.as_deref().unwrap_or_default()
    }
}

impl JitNames {
    /// The names in the files of an ancestor. No file is read yet.
    pub(crate) fn of_ancestor(proc: &ProcFs, ancestor: &Ancestor, budget: Arc<WorkBudget>) -> Self {
        let identity = &ancestor.identity;
        // The files in a capture belong to the user who copied them.
        let own = (identity.status.uid, identity.started_unix_ns);
        let (uid, started_unix_ns) =
            if proc.is_live() { own } else { (rustix::process::geteuid().as_raw(), 0) };
        let owner = JitProcess {
            namespace_pid: identity.status.innermost_pid,
            uid,
            started_unix_ns,
            environ: &identity.environment,
        };
        Self::with_runtime(&owner, identity.root.clone(), None, budget)
    }
}
