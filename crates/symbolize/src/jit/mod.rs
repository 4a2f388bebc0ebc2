//! Symbolizes the JIT code of one process, from perf maps, jitdumps and the runtime's events.
//!
//! The files are searched in the target's own root, under the id of the process in its innermost pid namespace, and read
//! as they grow.

mod call_frames;
mod follow;
mod inherited;
pub(crate) mod tenant_limits;

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_binary_reader::WorkBudget;
use profiler_dotnet_diagnostics::{
    MemoryBudget, PerfMapPaths, RECORDING_FILE, RuntimeMethod, RuntimeNames, RuntimeProcess,
};
use profiler_dotnet_symbols::managed::{ManagedName, Tier, normalize_name};
use profiler_processes::{Backing, ProcFs, Process, jit_file_directories, root_directory::RootDirectory};
use profiler_profile::{FrameKind, LanguageRuntime, Reason, SymbolSource};

pub(crate) use self::inherited::{AncestorKey, Generation};
use self::{
    follow::{FileAccess, FileDecoder, FileFollower, FileOwner},
    inherited::Inheritance,
};
use crate::{
    MethodEventRequests, RuntimeRequests,
    jitdump::{JitDump, JitSymbol},
    method_memory::{FoundMethod, ManagedFunctionFrames, MethodMemory},
    perf_map::{MappedCode, PerfMap},
    symbol::{Function, Symbolized},
};

/// Jitdump files per process: one for each runtime in it, and one for each candidate directory.
const MAX_JIT_DUMPS: usize = 8;

/// Memory for the names of one process. A large .NET program that writes both files takes 60 MB.
const MAX_PROCESS_BYTES: usize = 58 << 20;

/// The data for finding the files of a process and verifying their owner.
#[derive(Clone, Copy, Debug)]
struct JitProcess<'a> {
    /// The id in its innermost pid namespace (the last `NSpid` of `/proc/PID/status`), which is part of the file names.
    namespace_pid: u32,
    /// The user that must own the files.
    uid: u32,
    /// The start in nanoseconds since 1970-01-01 UTC. Older files belong to another process.
    started_unix_ns: u64,
    /// `/proc/PID/environ`, which can change the directories.
    environ: &'a [u8],
}

/// What limits the names of one process.
#[derive(Debug)]
pub(crate) struct JitBudgets {
    pub(crate) events: MemoryBudget,
    pub(crate) files: Arc<WorkBudget>,
}

/// The perf maps and jitdumps of one process, and the methods that its runtime reports.
#[derive(Debug)]
pub(crate) struct JitNames {
    root: Option<Arc<RootDirectory>>,
    owner: FileOwner,
    budget: Arc<WorkBudget>,
    jit_dump_name: String,
    perf_maps: Vec<FollowedFile<PerfMap>>,
    jit_dumps: Vec<FollowedFile<JitDump>>,
    pub(crate) runtime: Option<RuntimeNames>,
    /// When the runtime is asked for the events of its methods.
    pub(crate) event_requests: MethodEventRequests,
    /// The methods of a .NET runtime in the memory of the process, if they may be read.
    pub(crate) method_memory: Option<MethodMemory>,
    /// The runtime to which the mapped files belong.
    language: Option<LanguageRuntime>,
    /// The processes whose code it has from forks.
    pub(crate) inheritance: Inheritance,
    /// Whether the memory limit was reached. No more is read then.
    is_full: bool,
    /// Whether the files have more than there was time to read.
    is_behind: bool,
}

#[derive(Debug)]
struct FollowedFile<T> {
    file: FileFollower,
    names: T,
}

impl JitNames {
    /// Opens nothing before the first [`poll`](Self::poll). In a capture, the methods of the runtime are those of its
    /// recordings.
    pub(crate) fn new(
        process: &Process,
        proc: &ProcFs,
        budgets: JitBudgets,
        requests: RuntimeRequests,
    ) -> Self {
        let identity = process.identity.as_deref();
        // The files in a capture were checked when it was taken, and belong to the user who copied them.
        let (uid, started_unix_ns) = match identity {
            Some(identity) if proc.is_live() => (identity.status.uid, identity.started_unix_ns),
            _ => (rustix::process::geteuid().as_raw(), 0),
        };
        let owner = JitProcess {
            namespace_pid: identity.map_or(process.pid.0, |identity| identity.status.innermost_pid),
            uid,
            started_unix_ns,
            environ: identity.map_or(&[], |identity| &identity.environment),
        };
        let root = identity.and_then(|identity| identity.root.clone());
        let runtime = if proc.is_live() {
            let runtime = runtime_process(process, requests);
            let may_contact = requests.events != MethodEventRequests::Never;
            runtime.filter(|_| may_contact).map(|runtime| RuntimeNames::new(runtime, budgets.events))
        } else {
            captured_names(process, proc)
        };
        let language = language_of(process);
        let may_read_memory = cfg!(feature = "dotnet-memory") && requests.memory;
        let method_memory = may_read_memory
            .then(|| MethodMemory::of_process(proc, process, requests.frames, &budgets.files))
            .flatten();
        Self {
            language,
            method_memory,
            event_requests: requests.events,
            ..Self::with_runtime(&owner, root, runtime, budgets.files)
        }
    }

    fn with_runtime(
        process: &JitProcess<'_>,
        root: Option<Arc<RootDirectory>>,
        runtime: Option<RuntimeNames>,
        budget: Arc<WorkBudget>,
    ) -> Self {
        let directories = jit_file_directories(process.environ);
        let perf_map_name = format!("perf-{}.map", process.namespace_pid);
        let jit_dump_name = format!("jit-{}.dump", process.namespace_pid);
        let in_directories = |name: &str| directories.iter().map(|path| path.join(name)).collect::<Vec<_>>();
        Self {
            root,
            owner: FileOwner { uid: process.uid, started_unix_ns: process.started_unix_ns },
            perf_maps: in_directories(&perf_map_name).into_iter().map(FollowedFile::new).collect(),
            jit_dumps: in_directories(&jit_dump_name).into_iter().map(FollowedFile::new).collect(),
            budget,
            jit_dump_name,
            runtime,
            event_requests: MethodEventRequests::Always,
            method_memory: None,
            language: None,
            inheritance: Inheritance::default(),
            is_full: false,
            is_behind: false,
        }
    }

    /// Adds a mapped file: a jitdump, or a file of a runtime. Runtimes map a page of their jitdump so that profilers find it.
    pub(crate) fn add_mapped_file(&mut self, path: &Path) {
        if self.language.is_none() {
            self.language = path.to_str().and_then(LanguageRuntime::of_module);
        }
        let is_jit_dump = path.file_name().is_some_and(|name| *name == *self.jit_dump_name);
        let is_known = self.jit_dumps.iter().any(|dump| dump.file.path() == path);
        if is_jit_dump && path.is_absolute() && !is_known && self.jit_dumps.len() < MAX_JIT_DUMPS {
            self.jit_dumps.push(FollowedFile::new(path.to_owned()));
        }
    }

    /// Reads what the runtime has written since the last poll. `now` is the time before the call, `max_bytes` limits
    /// the memory of this process's names. Returns true when more can be read at once.
    pub(crate) fn poll(&mut self, now: MonotonicTime, max_bytes: usize) -> bool {
        let (Some(root), budget) = (self.root.clone(), Arc::clone(&self.budget)) else { return false };
        let access = FileAccess { root: &root, owner: self.owner, budget: &budget };
        let limit_bytes = max_bytes.min(MAX_PROCESS_BYTES);
        let mut has_more = false;
        for index in 0..self.perf_maps.len() + self.jit_dumps.len() {
            self.is_full |= self.memory_bytes() >= limit_bytes;
            if self.is_full {
                return false;
            }
            has_more |= self.poll_file(index, access, now);
        }
        self.is_behind = has_more;
        has_more
    }

    /// What describes the frames of the .NET methods that were found in memory since the last call.
    pub(crate) fn take_function_frames(&mut self) -> Vec<ManagedFunctionFrames> {
        self.method_memory.as_mut().map(MethodMemory::take_frames).unwrap_or_default()
    }

    /// The bytes of files that were read.
    pub(crate) fn read_bytes(&self) -> u64 {
        let maps = self.perf_maps.iter().map(|map| &map.file);
        maps.chain(self.jit_dumps.iter().map(|dump| &dump.file)).map(FileFollower::read_bytes).sum()
    }

    /// The memory of the names.
    pub(crate) fn memory_bytes(&self) -> usize {
        let methods = self.runtime.as_ref().map_or(0, |runtime| runtime.methods.memory_bytes());
        let memory = self.method_memory.as_ref().map_or(0, MethodMemory::memory_bytes);
        self.file_memory_bytes() + methods + memory
    }

    /// The memory of the names in files.
    fn file_memory_bytes(&self) -> usize {
        let maps = self.perf_maps.iter().map(|map| map.names.memory_bytes());
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.memory_bytes());
        maps.chain(dumps).sum()
    }

    /// The function whose code was at `address` at `time`. The result is complete after a poll later than `time`.
    ///
    /// Jitdumps have exact times and lines, so they take precedence, then the runtime's events, which have exact times.
    /// A perf map takes precedence if it names other code that was certainly written later.
    pub(crate) fn lookup(&self, address: RuntimeAddress, time: MonotonicTime) -> Result<FoundCode, Reason> {
        let method = self.runtime.as_ref().and_then(|runtime| runtime.methods.lookup(address.0, time));
        let is_unloaded =
            self.runtime.as_ref().is_some_and(|runtime| runtime.methods.may_be_unloaded(address.0, time));
        // A map has the method that came later, too.
        let map = self.map_lookup(address, time);
        let map = map.filter(|code| !is_unloaded || code.exists_from <= time);
        let from_files = combined(self.dump_lookup(address, time), map, time);
        match (method, from_files) {
            (Some(method), Some(Ok(code)))
                if code.symbolized.source == SymbolSource::JitDump || code.is_later_than(&method) =>
            {
                Ok(code)
            }
            (Some(method), _) => {
                let exists_from = method.exists_from;
                let is_certain = exists_from <= time;
                Ok(FoundCode { symbolized: from_runtime(method), exists_from, is_certain })
            }
            (None, Some(found)) => found,
            (None, None) => match self.memory_lookup(address, time) {
                Some(Ok(found)) => Ok(from_memory(found)),
                Some(Err(_)) | None if is_unloaded => Err(Reason::JitCodeUnloaded),
                Some(Err(reason)) => Err(reason),
                None => Err(self.reason()),
            },
        }
    }

    /// The function whose code was at `address` at the time of a fork, by the files. `None` if they have none from before.
    /// The fork was between two times.
    pub(crate) fn lookup_at_fork(
        &self,
        address: RuntimeAddress,
        forked_after: MonotonicTime,
        forked: MonotonicTime,
    ) -> Option<Result<FoundCode, Reason>> {
        let found = self.lookup_before(address, forked)?;
        let earliest = self.lookup_before(address, forked_after);
        let names = |found: &Result<FoundCode, _>| {
            found.as_ref().ok().map(|code: &FoundCode| code.symbolized.functions.clone())
        };
        let is_other = earliest.is_some_and(|earliest| names(&earliest) != names(&found));
        Some(if is_other { Err(Reason::JitCodeReplaced) } else { found })
    }

    fn lookup_before(
        &self,
        address: RuntimeAddress,
        forked: MonotonicTime,
    ) -> Option<Result<FoundCode, Reason>> {
        let dump = self.dump_lookup(address, forked);
        let dump = dump.filter(|symbol| symbol.exists_from <= forked);
        let map = self.map_lookup(address, forked);
        combined(dump, map.filter(|code| code.exists_from <= forked), forked)
    }

    fn dump_lookup(&self, address: RuntimeAddress, time: MonotonicTime) -> Option<JitSymbol<'_>> {
        self.jit_dumps.iter().find_map(|dump| dump.names.lookup(address.0, time))
    }

    fn map_lookup(&self, address: RuntimeAddress, time: MonotonicTime) -> Option<MappedCode<'_>> {
        self.perf_maps.iter().find_map(|map| map.names.lookup(address.0, time))
    }

    fn memory_lookup(
        &self,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Option<Result<&FoundMethod, Reason>> {
        self.method_memory.as_ref()?.lookup(address.0, time)
    }

    /// Notes a sampled address, which may have to be looked up in the memory of the process.
    pub(crate) fn note(&mut self, address: RuntimeAddress) {
        if self.reads_method_memory()
            && let Some(memory) = self.dotnet_memory()
        {
            memory.note(address.0);
        }
    }

    /// The memory of a .NET runtime, if it may be read.
    pub(crate) fn dotnet_memory(&mut self) -> Option<&mut MethodMemory> {
        self.method_memory.as_mut().filter(|_| self.language == Some(LanguageRuntime::Dotnet))
    }

    /// Whether methods are looked up in the memory of the process. Beside events as well: those that are requested late lack the names
    /// of code that was freed before, and no event describes the frames of a method.
    pub(crate) fn reads_method_memory(&self) -> bool {
        let needs_names = self.event_requests == MethodEventRequests::WhereMemoryLacks
            || !self.runtime.as_ref().is_some_and(RuntimeNames::reports_methods);
        needs_names || self.method_memory.as_ref().is_some_and(MethodMemory::reads_frames)
    }

    /// Whether the runtime is to be asked for the events of its methods.
    fn needs_method_events(&self) -> bool {
        match self.event_requests {
            MethodEventRequests::Never => false,
            MethodEventRequests::Always => true,
            MethodEventRequests::WhereMemoryLacks => {
                let memory = self.method_memory.as_ref();
                let memory = memory.filter(|_| self.language == Some(LanguageRuntime::Dotnet));
                memory.is_none_or(|memory| memory.lack().is_some())
            }
        }
    }

    /// The kind of the code at `address` at `time`. A runtime copies images that it cannot map into memory: their code
    /// is precompiled.
    pub(crate) fn kind(&self, address: RuntimeAddress, time: MonotonicTime) -> FrameKind {
        let tier = self.runtime.as_ref().and_then(|runtime| runtime.methods.tier(address.0, time));
        let is_in_image = || {
            let found = self.memory_lookup(address, time).and_then(Result::ok);
            found.is_some_and(|method| method.is_precompiled)
        };
        let is_precompiled = tier.map_or_else(is_in_image, |tier| tier == Tier::Precompiled);
        if is_precompiled { FrameKind::Precompiled } else { FrameKind::Jit }
    }

    /// Identifies a period in which no code was replaced: lookups of one address at two times of the same epoch have the
    /// same result. A failed lookup may still succeed after a poll.
    pub(crate) fn epoch(&self, time: MonotonicTime) -> u32 {
        let maps = self.perf_maps.iter().map(|map| map.names.epoch(time));
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.epoch(time));
        // The parity keeps a time at which all methods are known apart from one before which code was replaced.
        let methods = self.runtime.as_ref().map(|runtime| {
            let is_complete = self.has_all_methods_at(time).into();
            runtime.methods.epoch(time).saturating_mul(2).saturating_add(is_complete)
        });
        let memory = self.method_memory.as_ref().map(|memory| memory.epoch(time));
        maps.chain(dumps).chain(methods).chain(memory).fold(0, u32::saturating_add)
    }

    /// Whether a .NET runtime reported every method that existed at `time`.
    fn has_all_methods_at(&self, time: MonotonicTime) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.methods.completeness.is_complete_at(time))
    }

    /// Whether a .NET runtime had no method at `address` at `time`.
    pub(crate) fn is_stub(&self, address: RuntimeAddress, time: MonotonicTime) -> bool {
        let in_memory = || self.method_memory.as_ref().is_some_and(|memory| memory.is_stub(address.0));
        self.runtime.as_ref().is_some_and(|runtime| runtime.methods.is_stub(address.0, time)) || in_memory()
    }

    /// The method that a thread compiled at `time`. The thread's id is that in its pid namespace.
    pub(crate) fn compiled_method(&self, thread: u64, time: MonotonicTime) -> Option<String> {
        self.runtime.as_ref()?.methods.compiled_method(thread, time)
    }

    /// Retires code that was replaced before a time.
    pub(crate) fn retire_replaced(&mut self, before: MonotonicTime) {
        self.perf_maps.iter_mut().for_each(|map| map.names.retire_replaced(before));
        self.jit_dumps.iter_mut().for_each(|dump| dump.names.retire_replaced(before));
        if let Some(runtime) = &mut self.runtime {
            runtime.methods.retire_replaced(before);
        }
        if let Some(memory) = &mut self.method_memory {
            memory.retire_freed(before);
        }
        // The next poll finds out, and goes on where reading stopped.
        self.is_full = false;
    }

    /// Malformed lines, records and events.
    pub(crate) fn malformed_entries(&self) -> u64 {
        let maps = self.perf_maps.iter().map(|map| map.names.malformed_lines());
        let dumps = self.jit_dumps.iter().map(|dump| dump.names.malformed_records());
        let events = self.runtime.as_ref().map(|runtime| runtime.methods.completeness.malformed_events);
        maps.chain(dumps).chain(events).sum()
    }

    /// The path of the first file that exists and belongs to the process. `process` has the mapped files.
    pub(crate) fn find_file(mut self, process: &Process) -> Option<PathBuf> {
        const MAX_BYTES: usize = 1 << 20;
        process.mapped_files().for_each(|path| self.add_mapped_file(Path::new(path)));
        self.poll(MonotonicTime::ZERO, MAX_BYTES);
        self.files().next().map(|(path, _)| path.to_owned())
    }

    /// The open files, with their paths in the target's root.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &Arc<File>)> {
        let maps = self.perf_maps.iter().map(|map| &map.file);
        let followers = maps.chain(self.jit_dumps.iter().map(|dump| &dump.file));
        followers.filter_map(|follower| Some((follower.path().as_path(), follower.open_file()?)))
    }

    /// Polls one file. Indexes count perf maps first.
    fn poll_file(&mut self, index: usize, access: FileAccess<'_>, now: MonotonicTime) -> bool {
        if let Some(map) = self.perf_maps.get_mut(index) {
            return map.file.poll(access, now, &mut map.names);
        }
        let dump = index.checked_sub(self.perf_maps.len()).and_then(|index| self.jit_dumps.get_mut(index));
        dump.is_some_and(|dump| dump.file.poll(access, now, &mut dump.names))
    }

    /// Why an address has no name.
    fn reason(&self) -> Reason {
        let files = || {
            let maps = self.perf_maps.iter().map(|map| (&map.file, map.names.truncated()));
            let dumps = self.jit_dumps.iter().map(|dump| (&dump.file, dump.names.truncated()));
            maps.chain(dumps)
        };
        let refusals = || files().filter_map(|(file, _)| file.refusal());
        if self.is_full
            || self.is_behind
            || self.method_memory.as_ref().is_some_and(MethodMemory::is_truncated)
            || files().any(|(_, truncated)| truncated)
            || refusals().any(|reason| reason == Reason::TooLarge)
        {
            Reason::TooLarge
        } else if files().any(|(file, _)| file.is_open()) {
            Reason::NoJitEntry
        } else if let Some(reason) = self.runtime.as_ref().and_then(RuntimeNames::reason) {
            reason
        } else {
            let without_map = || self.language.map_or(Reason::NoJitMap, LanguageRuntime::reason_without_map);
            refusals().next().unwrap_or_else(without_map)
        }
    }
}

/// The function at an address.
#[derive(Clone, Debug)]
pub(crate) struct FoundCode {
    pub(crate) symbolized: Symbolized,
    /// The earliest time at which its code may exist.
    pub(crate) exists_from: MonotonicTime,
    /// Whether its code certainly existed at the time of the lookup.
    pub(crate) is_certain: bool,
}

impl FoundCode {
    /// Whether it is another function than a method, written later.
    fn is_later_than(&self, method: &RuntimeMethod) -> bool {
        let is_other = self.symbolized.functions.first().is_none_or(|found| found.name != method.name);
        is_other && self.exists_from > method.exists_from
    }
}

/// The function by a jitdump and a perf map. `None` if neither has one.
fn combined(
    dump: Option<JitSymbol<'_>>,
    map: Option<MappedCode<'_>>,
    time: MonotonicTime,
) -> Option<Result<FoundCode, Reason>> {
    let from_map = |name, code: MappedCode<'_>| FoundCode {
        symbolized: from_perf_map(name),
        exists_from: code.exists_from,
        is_certain: code.is_certain,
    };
    match (dump, map) {
        (Some(symbol), Some(MappedCode { name: Some(name), exists_from, .. }))
            if exists_from > symbol.exists_from && symbol.name.is_some_and(|dumped| dumped != name) =>
        {
            map.map(|code| Ok(from_map(name, code)))
        }
        (Some(symbol), _) => Some(from_jit_dump(&symbol).ok_or(Reason::JitCodeReplaced).map(|symbolized| {
            let exists_from = symbol.exists_from;
            FoundCode { symbolized, exists_from, is_certain: exists_from <= time }
        })),
        (None, Some(code)) => Some(code.name.map(|name| from_map(name, code)).ok_or(Reason::JitCodeReplaced)),
        (None, None) => None,
    }
}

/// The runtime to which the mapped files of a process belong.
pub(crate) fn language_of(process: &Process) -> Option<LanguageRuntime> {
    // A single-file program of .NET has no file of the runtime.
    let is_dotnet = process.mappings().any(|mapping| mapping.backing == Backing::DotnetJit);
    let by_files = process.mapped_files().filter_map(LanguageRuntime::of_module);
    by_files.chain(is_dotnet.then_some(LanguageRuntime::Dotnet)).min()
}

fn from_perf_map(name: &str) -> Symbolized {
    Symbolized::from_managed(SymbolSource::PerfMap, normalize_name(name))
}

/// The function in a jitdump, if it is known.
fn from_jit_dump(symbol: &JitSymbol<'_>) -> Option<Symbolized> {
    let ManagedName { name, tier } = normalize_name(symbol.name?);
    let location = symbol.location.map(|(file, line)| (file.to_owned(), line));
    let function = Function { name: name.into_owned(), location };
    Some(Symbolized { source: SymbolSource::JitDump, functions: vec![function], tier })
}

fn from_runtime(method: RuntimeMethod) -> Symbolized {
    let name = ManagedName { name: method.name.into(), tier: Some(method.tier) };
    Symbolized::from_managed(SymbolSource::RuntimeEvents, name)
}

fn from_memory(method: &FoundMethod) -> FoundCode {
    let name = ManagedName { name: (&*method.name).into(), tier: None };
    let symbolized = Symbolized::from_managed(SymbolSource::RuntimeMemory, name);
    FoundCode { symbolized, exists_from: MonotonicTime::ZERO, is_certain: true }
}

/// The methods that the runtime reported while the capture was taken.
fn captured_names(process: &Process, proc: &ProcFs) -> Option<RuntimeNames> {
    let recording = proc.read(process.pid, RECORDING_FILE).ok()?;
    RuntimeNames::from_recording(&recording)
}

/// The data for connecting to the runtime of a process. `None` is a process whose root is not open.
pub(crate) fn runtime_process(process: &Process, requests: RuntimeRequests) -> Option<RuntimeProcess> {
    let perf_map = if requests.perf_maps { PerfMapPaths::of(process) } else { None };
    let keeps_compilations = requests.compilations;
    RuntimeProcess::of(process).map(|runtime| RuntimeProcess { perf_map, keeps_compilations, ..runtime })
}

impl<T: Default> FollowedFile<T> {
    fn new(path: PathBuf) -> Self {
        Self { file: FileFollower::new(path), names: T::default() }
    }
}

impl FileDecoder for PerfMap {
    fn feed(&mut self, bytes: &[u8], written_after: MonotonicTime) {
        PerfMap::feed(self, bytes, written_after);
    }

    fn end_poll(&mut self, written: Range<MonotonicTime>) {
        PerfMap::end_poll(self, written);
    }

    fn restart(&mut self) {
        PerfMap::restart(self);
    }
}

impl FileDecoder for JitDump {
    fn feed(&mut self, bytes: &[u8], _written_after: MonotonicTime) {
        JitDump::feed(self, bytes);
    }

    fn end_poll(&mut self, _written: Range<MonotonicTime>) {}

    fn restart(&mut self) {
        JitDump::restart(self);
    }
}

#[cfg(test)]
mod tests;
