//! Reads the owners of locks that threads wait for: .NET monitors and mutexes of the GNU C library.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use profiler_processes::{Pid, ProcessTable};

use super::Symbolizer;
use crate::ProcessLocks;

/// Time for the locks of all runtimes in one reading. The runtimes that are left are the first ones in the next reading.
const MAX_MONITOR_TIME: Duration = Duration::from_millis(50);

impl Symbolizer {
    /// Reads the locks of the .NET runtimes whose code was sampled, with the feature `dotnet-memory`. Runtimes before .NET 9 do not
    /// describe them.
    pub fn read_monitor_owners(&mut self, processes: &ProcessTable) -> Vec<ProcessLocks> {
        let deadline = Instant::now() + MAX_MONITOR_TIME;
        let with_memory = self.jit.iter_mut().filter_map(|(key, names)| {
            let memory = names.dotnet_memory()?;
            Some((processes.get(*key)?, memory))
        });
        let mut awaited: Vec<_> = with_memory.collect();
        awaited.sort_by_key(|(_, memory)| memory.lock_readings.last_reading);
        let mut read = Vec::new();
        for (process, memory) in awaited {
            if Instant::now() >= deadline {
                break;
            }
            if let Some(locks) = memory.find_locks(&mut self.modules, &self.proc, process) {
                read.push(memory.lock_readings.end(process, locks));
            }
        }
        read.retain(|process| !process.locks.is_empty());
        read
    }

    /// Reads the mutexes of the GNU C library that threads wait for in the processes that run: in those of `waiting` alone, where it
    /// is known which may have such threads. A process with more than 1,024 threads is not read. Readings of one process are at least
    /// a second apart where the calls are.
    pub fn read_mutex_owners(
        &mut self,
        processes: &ProcessTable,
        waiting: Option<&HashSet<Pid>>,
    ) -> Vec<ProcessLocks> {
        self.mutexes.read(&self.proc, processes, waiting)
    }
}
