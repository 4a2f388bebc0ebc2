//! Names of code that a runtime makes while it runs, from the files that it writes for profilers.
//!
//! They are looked for in the target's own root, under the process's innermost pid, and read as they grow.

mod follow;
pub(super) mod places;

use profiler_dotnet_symbols::managed::{self, ManagedName};
use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Instant,
};

use self::follow::{Follower, Owner, Sink};
use super::{
    diagnostics::{RuntimeMethod, RuntimeNames},
    jitdump::{JitDump, JitSymbol},
    perf_map::PerfMap,
    symbol::{Function, Symbolized},
};
use profiler_addresses::RuntimeAddress;
use profiler_processes::root_directory::RootDirectory;
use profiler_profile::{FrameKind, Reason, SymbolSource};

/// Jitdump files of one process: one for each runtime in it, and the few places where they are looked for.
const MAX_JIT_DUMPS: usize = 8;

/// Memory for the names of one process. A large .NET program that writes both files takes 60 MB.
const MAX_PROCESS_BYTES: usize = 58 << 20;

/// What has to be known of a process to find and trust its files.
#[derive(Clone, Copy, Debug)]
pub struct JitProcess<'a> {
    /// Its id in its innermost pid namespace (the last `NSpid` of `/proc/PID/status`): it names the files.
    pub namespace_pid: u32,
    /// Its user: whose files they have to be.
    pub uid: u32,
    /// Its start, nanoseconds since 1970-01-01 UTC: older files are of another process.
    pub started_unix_ns: u64,
    /// `/proc/PID/environ`: it may move the files.
    pub environ: &'a [u8],
}

/// The perf maps and jitdumps of one process, and what its runtime says.
#[derive(Debug)]
pub struct JitNames {
    owner: Owner,
    jit_dump_name: String,
    perf_maps: Vec<Followed<PerfMap>>,
    jit_dumps: Vec<Followed<JitDump>>,
    runtime: Option<RuntimeNames>,
    /// No more is read: there is no memory for it.
    full: bool,
}

#[derive(Debug)]
struct Followed<T> {
    file: Follower,
    names: T,
}

impl JitNames {
    /// Nothing is opened before the first [`poll`](Self::poll).
    pub fn new(process: &JitProcess<'_>, runtime: Option<RuntimeNames>) -> Self {
        let directories = places::directories(process.environ);
        let perf_map_name = format!("perf-{}.map", process.namespace_pid);
        let jit_dump_name = format!("jit-{}.dump", process.namespace_pid);
        Self {
            owner: Owner { uid: process.uid, started_unix_ns: process.started_unix_ns },
            perf_maps: directories.iter().map(|at| Followed::new(at.join(&perf_map_name))).collect(),
            jit_dumps: directories.iter().map(|at| Followed::new(at.join(&jit_dump_name))).collect(),
            jit_dump_name,
            runtime,
            full: false,
        }
    }

    /// Takes note of a mapped file. Runtimes map a page of their jitdump, for profilers to see where it is.
    pub fn see_mapping(&mut self, path: &Path) {
        let is_jit_dump = path.file_name().is_some_and(|name| *name == *self.jit_dump_name);
        let known = self.jit_dumps.iter().any(|dump| dump.file.path() == path);
        if is_jit_dump && path.is_absolute() && !known && self.jit_dumps.len() < MAX_JIT_DUMPS {
            self.jit_dumps.push(Followed::new(path.to_owned()));
        }
    }

    /// Reads what the runtime has written since the last poll. `now_ns` is the `CLOCK_MONOTONIC` time before
    /// the call, `room_bytes` the memory that this process's names may take. True when there is more to read at
    /// once.
    pub fn poll(&mut self, root: &RootDirectory, now_ns: u64, room_bytes: usize) -> bool {
        let limit_bytes = room_bytes.min(MAX_PROCESS_BYTES);
        let mut more = false;
        for index in 0..self.perf_maps.len() + self.jit_dumps.len() {
            self.full |= self.memory_bytes() >= limit_bytes;
            if self.full {
                return false;
            }
            more |= self.poll_file(index, root, now_ns);
        }
        more
    }

    /// As [`RuntimeNames::advance_perf_map`].
    pub fn advance_perf_map(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.advance_perf_map();
        }
    }

    /// Begins to listen to the runtime, as soon as there is one.
    pub fn listen(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.listen();
        }
    }

    /// Whether a thread listens to the runtime.
    pub fn is_listening(&self) -> bool {
        self.runtime.as_ref().is_some_and(RuntimeNames::is_listening)
    }

    /// As [`RuntimeNames::ask`].
    pub fn ask(&mut self, is_last: bool, until: Instant) {
        if let Some(runtime) = &mut self.runtime {
            runtime.ask(is_last, until);
        }
    }

    /// As [`RuntimeNames::settle`].
    pub fn settle(&mut self, until: Instant) {
        if let Some(runtime) = &mut self.runtime {
            runtime.settle(until);
        }
    }

    /// How much memory the names take.
    pub fn memory_bytes(&self) -> usize {
        let maps = self.perf_maps.iter().map(|map| map.names.memory_bytes());
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.memory_bytes());
        maps.chain(dumps).chain(self.runtime.as_ref().map(RuntimeNames::memory_bytes)).sum()
    }

    /// What stood at `address` at `time_ns`. Ask after a poll that came later than `time_ns`: what a runtime
    /// has written since is not known before.
    ///
    /// A jitdump has exact times and lines, so it comes first, then the runtime's events, which have exact times, unless
    /// a perf map names other code that was surely put there later.
    pub fn lookup(&self, address: RuntimeAddress, time_ns: u64) -> Result<Symbolized, Reason> {
        let dump = self.jit_dumps.iter().find_map(|dump| dump.names.lookup(address.0, time_ns));
        let told = self.runtime.as_ref().and_then(|runtime| runtime.lookup(address.0, time_ns));
        let map = self.perf_maps.iter().find_map(|map| map.names.lookup(address.0, time_ns));
        match (dump, told, map) {
            (Some(symbol), _, Some((name, from_ns)))
                if from_ns > symbol.exists_from_ns && name != symbol.name =>
            {
                Ok(from_perf_map(name))
            }
            (Some(symbol), ..) => Ok(from_jit_dump(&symbol)),
            (None, Some(told), Some((name, from_ns)))
                if from_ns > told.exists_from_ns && managed::normalise(name).name != told.name =>
            {
                Ok(from_perf_map(name))
            }
            (None, Some(told), _) => Ok(from_runtime(told)),
            (None, None, Some((name, _))) => Ok(from_perf_map(name)),
            (None, None, None) => Err(self.reason()),
        }
    }

    /// What kind of code stood at `address` at `time_ns`. A runtime copies images into memory that it cannot map.
    pub fn kind(&self, address: RuntimeAddress, time_ns: u64) -> FrameKind {
        let is_copy = |runtime: &RuntimeNames| runtime.is_precompiled(address.0, time_ns);
        if self.runtime.as_ref().is_some_and(is_copy) { FrameKind::Precompiled } else { FrameKind::Jit }
    }

    /// Names a span of time in which no address changed hands: look-ups of one address at two times of the
    /// same epoch agree. A failed look-up may succeed after a poll even so.
    pub fn epoch(&self, time_ns: u64) -> u32 {
        let maps = self.perf_maps.iter().map(|map| map.names.epoch(time_ns));
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.epoch(time_ns));
        let told = self
            .runtime
            .as_ref()
            .map(|runtime| runtime.epoch(time_ns).saturating_add(self.has_all_of(time_ns).into()));
        maps.chain(dumps).chain(told).fold(0, u32::saturating_add)
    }

    /// Whether a .NET runtime told of every method that there was at `time_ns`.
    pub fn has_all_of(&self, time_ns: u64) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.has_all_of(time_ns))
    }

    /// Lines, records and events that were no entries.
    pub fn malformed_entries(&self) -> u64 {
        let maps = self.perf_maps.iter().map(|map| map.names.malformed_lines());
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.malformed_records());
        maps.chain(dumps).chain(self.runtime.as_ref().map(RuntimeNames::malformed_events)).sum()
    }

    /// What the runtime had to tell and had no room for.
    pub fn dropped_events(&self) -> u64 {
        self.runtime.as_ref().map_or(0, RuntimeNames::dropped_events)
    }

    /// The files that are followed, by their paths in the target's root.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &File)> {
        let maps = self.perf_maps.iter().map(|map| &map.file);
        let followers = maps.chain(self.jit_dumps.iter().map(|dump| &dump.file));
        followers.filter_map(|follower| Some((follower.path().as_path(), follower.open_file()?)))
    }

    /// As [`RuntimeNames::recording`].
    #[cfg(feature = "capture")]
    pub fn runtime_recording(&self) -> Option<Vec<u8>> {
        self.runtime.as_ref().and_then(RuntimeNames::recording)
    }

    /// Perf maps count first.
    fn poll_file(&mut self, index: usize, root: &RootDirectory, now_ns: u64) -> bool {
        if let Some(map) = self.perf_maps.get_mut(index) {
            return map.file.poll(root, self.owner, now_ns, &mut map.names);
        }
        let dump = index.checked_sub(self.perf_maps.len()).and_then(|index| self.jit_dumps.get_mut(index));
        dump.is_some_and(|dump| dump.file.poll(root, self.owner, now_ns, &mut dump.names))
    }

    /// Why an address has no name.
    fn reason(&self) -> Reason {
        let files = || {
            let maps = self.perf_maps.iter().map(|map| (&map.file, map.names.truncated()));
            let dumps = self.jit_dumps.iter().map(|dump| (&dump.file, dump.names.truncated()));
            maps.chain(dumps)
        };
        let refusals = || files().filter_map(|(file, _)| file.refusal());
        if self.full
            || files().any(|(_, truncated)| truncated)
            || refusals().any(|reason| reason == Reason::TooLarge)
        {
            Reason::TooLarge
        } else if files().any(|(file, _)| file.is_open()) {
            Reason::NoJitEntry
        } else if let Some(reason) = self.runtime.as_ref().and_then(RuntimeNames::reason) {
            reason
        } else {
            refusals().next().unwrap_or(Reason::NoJitMap)
        }
    }
}

fn from_perf_map(name: &str) -> Symbolized {
    Symbolized::from_managed(SymbolSource::PerfMap, managed::normalise(name))
}

fn from_jit_dump(symbol: &JitSymbol<'_>) -> Symbolized {
    let ManagedName { name, tier } = managed::normalise(symbol.name);
    let location = symbol.location.map(|(file, line)| (file.to_owned(), line));
    let function = Function { name: name.into_owned(), location };
    Symbolized { source: SymbolSource::JitDump, functions: vec![function], tier }
}

fn from_runtime(told: RuntimeMethod) -> Symbolized {
    let name = ManagedName { name: told.name.into(), tier: Some(told.tier) };
    Symbolized::from_managed(SymbolSource::RuntimeEvents, name)
}

impl<T: Default> Followed<T> {
    fn new(path: PathBuf) -> Self {
        Self { file: Follower::new(path), names: T::default() }
    }
}

impl Sink for PerfMap {
    fn feed(&mut self, bytes: &[u8], written_after_ns: u64) {
        PerfMap::feed(self, bytes, written_after_ns);
    }

    fn restart(&mut self) {
        PerfMap::restart(self);
    }
}

impl Sink for JitDump {
    fn feed(&mut self, bytes: &[u8], _written_after_ns: u64) {
        JitDump::feed(self, bytes);
    }

    fn restart(&mut self) {
        JitDump::restart(self);
    }
}

#[cfg(test)]
mod tests;
