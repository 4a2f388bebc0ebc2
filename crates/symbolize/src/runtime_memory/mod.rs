//! Names of native functions and stubs of a .NET runtime, from the memory of the process in which it runs.
//!
//! * Helpers: the runtime writes their addresses into cells of each precompiled image. The image tells which helper a cell
//!   is for.
//! * Helpers that JIT code calls: the file of the runtime has their functions, and the places of pointers that the runtime
//!   sets. The file of the JIT compiler has their names.
//! * The prestub, which compiles methods: the precodes of methods without code point to it.
//! * Stubs are recognized by their instructions.
//! * The functions that managed code calls are the destinations of its call instructions.
//!
//! A process can write anything into its memory. So these names are used for its own frames alone.

mod called_functions;
mod jit_helpers;
mod search;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use profiler_addresses::{ElfAddress, MonotonicTime, RuntimeAddress};
use profiler_dotnet_symbols::{
    jit_helpers::JitHelpers,
    readytorun::Helper,
    stubs::{MAX_STUB_BYTES, jump_target, stub_name},
};
use profiler_processes::{Mapping, Pid, ProcFs, Process};
use profiler_profile::{Reason, SymbolSource};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::search::Search;
use self::search::{Location, MAX_READ_CELLS};
use crate::{CodeKey, ModuleKey, attempts::Attempts, symbol::Symbolized};

/// The largest write barrier. Its code depends on the garbage collector in use.
const WRITE_BARRIER_BYTES: u64 = 0x100;

/// The unit in which code of stubs is read and kept.
const PAGE_BYTES: u64 = 4 << 10;

/// Pages of stubs that are kept for each process. The stubs of a web server are in ten.
const MAX_PAGES: usize = 64;

/// Allocators are the targets of stubs that the runtime makes at their first use, and some helpers are replaced while the
/// runtime starts. They are searched when an unnamed function is looked up, so often, and not more often than each second.
const MAX_LATER_SEARCHES: u32 = 8;
const LATER_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Stubs whose target is read in one search, for each kind of allocation.
const MAX_STUBS_PER_KIND: usize = 64;

/// The function to which the precodes of methods without code lead.
pub(crate) const PRESTUB: &str = "ThePreStub";

/// What was read of the memory of one process.
#[derive(Debug, Default)]
pub(crate) struct RuntimeMemory {
    /// Native functions by module and start.
    functions: HashMap<(ModuleKey, ElfAddress), Cow<'static, str>>,
    /// The copy of the write barrier in memory without a file, and its name.
    write_barrier: Option<(RuntimeAddress, Cow<'static, str>)>,
    /// The searches for the helpers of an image.
    attempts: Attempts,
    /// The cells of images that these read.
    read_cells: u32,
    /// The searches for the helpers that JIT code calls.
    jit_attempts: Attempts,
    jit_helpers: Arc<JitHelpers>,
    /// The load address of the runtime with these helpers.
    jit_helpers_base: Option<u64>,
    /// The cells of allocations, and what is allocated.
    allocation_cells: Vec<(RuntimeAddress, &'static str)>,
    /// Later searches for allocators and replaced helpers.
    later_searches: u32,
    /// The time from which on they may be searched again.
    next_later_search: MonotonicTime,
    /// Code of stubs, with the address of its first byte, by page. `None` is a page that cannot be read.
    pages: HashMap<u64, Option<(RuntimeAddress, Vec<u8>)>>,
    /// The native functions to which calls of managed code lead, by the code of the call. `None` is a call that leads to no
    /// such function.
    called_functions: HashMap<CodeKey, Option<RuntimeAddress>>,
}

/// The CPU time of this thread.
fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl RuntimeMemory {
    /// The helper or prestub of the runtime that starts at an address of a module.
    pub(crate) fn helper(
        &mut self,
        search: &mut Search<'_>,
        function: (ModuleKey, ElfAddress),
    ) -> Option<Symbolized> {
        self.discard_closed_module(function.0);
        self.find_helpers(search);
        self.find_jit_helpers(search, function.0);
        if !self.functions.contains_key(&function) {
            self.search_later(search);
        }
        let name = self.functions.get(&function)?;
        Some(Symbolized::new(SymbolSource::RuntimeHelper, &**name))
    }

    /// The name of a stub, in place of the reason for which it belongs to no method.
    pub(crate) fn symbolize_stub(
        &mut self,
        search: &mut Search<'_>,
        address: RuntimeAddress,
    ) -> Result<Symbolized, Reason> {
        let process = search.process;
        let mapping = process.find_mapping(address, search.time).map_err(|_| Reason::RuntimeStub)?;
        self.find_helpers(search);
        if let Some(name) = self.write_barrier_at(address) {
            return Ok(Symbolized::new(SymbolSource::RuntimeHelper, name));
        }
        let name = self.stub_at(search.proc, process, mapping, address).ok_or(Reason::RuntimeStub)?;
        Ok(Symbolized::new(SymbolSource::StubCode, format!("stub {name}")))
    }

    /// Whether code is a stub of a known kind, or the write barrier. Nothing of it is kept: the runtime adds stubs to its page.
    pub(crate) fn is_known_stub(&mut self, search: &mut Search<'_>, address: RuntimeAddress) -> bool {
        let process = search.process;
        let Ok(mapping) = process.find_mapping(address, search.time) else { return false };
        let page = read_page(search.proc, process, mapping, address.0 / PAGE_BYTES);
        let is_stub = page.is_some_and(|(start, code)| {
            let position = address.0.checked_sub(start.0).and_then(|position| usize::try_from(position).ok());
            position.is_some_and(|position| stub_name(&code, position).is_some())
        });
        if is_stub {
            return true;
        }
        self.find_helpers(search);
        self.write_barrier_at(address).is_some()
    }

    /// Discards the functions if they are those of a module that was closed and opened again, as `opened`.
    fn discard_closed_module(&mut self, opened: ModuleKey) {
        if !self.functions.is_empty() && !self.functions.keys().any(|(module, _)| *module == opened) {
            self.functions.clear();
            self.attempts.repeat();
            self.jit_attempts.repeat();
        }
    }

    /// Searches the helpers once, and again when the mappings changed, if there were none.
    fn find_helpers(&mut self, search: &mut Search<'_>) {
        let generation = search.process.mapping_generation(search.time);
        // The images would become part of the capture.
        if search.proc.has_capture() || self.read_cells >= MAX_READ_CELLS || !self.attempts.begin(generation)
        {
            return;
        }
        let begin = thread_cpu_time();
        self.add_helpers(search);
        if let Some(Location::Function(module, address)) =
            search.prestub().and_then(|target| search.locate(target))
        {
            self.functions.insert((module, address), PRESTUB.into());
        }
        self.log_cost("helpers", search, begin);
    }

    /// Adds the helpers in the cells of the core library. A compressed single-file program has no file of it.
    fn add_helpers(&mut self, search: &mut Search<'_>) {
        let Some((base, cells)) = search.core_library(&mut self.read_cells) else { return };
        let allocation = |address: ElfAddress| RuntimeAddress(base.wrapping_add(address.0));
        self.allocation_cells =
            cells.allocations.iter().map(|cell| (allocation(cell.address), cell.name)).collect();
        for (helper, target) in search.helpers(base, &cells.helpers) {
            let Some(name) = helper.name() else { continue };
            match search.locate(target) {
                Some(Location::Function(module, address)) => {
                    self.functions.entry((module, address)).or_insert(name.into());
                }
                Some(Location::JitMemory) if helper == Helper::WRITE_BARRIER => {
                    self.write_barrier = Some((target, name.into()));
                }
                _ => continue,
            }
            self.attempts.end();
        }
    }

    /// Searches the functions to which the stubs of allocations jump, and those that the runtime has replaced.
    fn search_later(&mut self, search: &mut Search<'_>) {
        let is_due = search.time >= self.next_later_search && self.later_searches < MAX_LATER_SEARCHES;
        let has_cells = !self.allocation_cells.is_empty() || self.jit_helpers_base.is_some();
        if !is_due || !has_cells {
            return;
        }
        self.later_searches += 1;
        self.next_later_search = search.time.saturating_add(LATER_SEARCH_INTERVAL);
        let begin = thread_cpu_time();
        self.add_allocators(search);
        self.add_helper_pointers(search);
        self.log_cost("allocators", search, begin);
    }

    fn add_allocators(&mut self, search: &mut Search<'_>) {
        let mut stubs_of_kind = HashMap::<&str, usize>::new();
        for (name, stub) in search.contents(&self.allocation_cells) {
            let count = stubs_of_kind.entry(name).or_default();
            // A cell that was not used yet leads to code of the image.
            if *count >= MAX_STUBS_PER_KIND || !search.is_jit_code(stub) {
                continue;
            }
            *count += 1;
            let target = self.jump_target(search, stub).and_then(|target| match search.locate(target)? {
                Location::JitMemory => search.locate(self.jump_target(search, target)?),
                found => Some(found),
            });
            if let Some(Location::Function(module, address)) = target {
                self.functions.entry((module, address)).or_insert(name.into());
            }
        }
    }

    fn log_cost(&self, what: &str, search: &Search<'_>, begin: Duration) {
        let time = thread_cpu_time().saturating_sub(begin);
        let (pid, bytes) = (search.process.pid, self.memory_bytes());
        log::debug!(
            "searched the memory of process {pid} for {what} in {} us of CPU time, keeps {bytes} bytes",
            time.as_micros()
        );
    }

    /// The memory of what was read.
    fn memory_bytes(&self) -> usize {
        let functions = self.functions.capacity() * size_of::<((ModuleKey, ElfAddress), Cow<'_, str>)>();
        let cells = self.allocation_cells.capacity() * size_of::<(RuntimeAddress, &str)>();
        let pages = self.pages.values().flatten().map(|(_, code)| code.capacity());
        let calls = self.called_functions.capacity() * size_of::<(CodeKey, Option<RuntimeAddress>)>();
        functions + cells + pages.sum::<usize>() + calls
    }

    fn jump_target(&mut self, search: &Search<'_>, stub: RuntimeAddress) -> Option<RuntimeAddress> {
        let mapping = search.process.find_mapping(stub, search.time).ok()?;
        let (code, position) = self.code_at(search.proc, search.process, mapping, stub)?;
        jump_target(code.get(position..)?, stub)
    }

    fn write_barrier_at(&self, address: RuntimeAddress) -> Option<&str> {
        let (start, name) = self.write_barrier.as_ref()?;
        let offset = address.0.checked_sub(start.0)?;
        (offset < WRITE_BARRIER_BYTES).then_some(&**name)
    }

    /// The name of the stub at an address in a mapping.
    fn stub_at(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> Option<&'static str> {
        let (code, position) = self.code_at(proc, process, mapping, address)?;
        let name = stub_name(code, position);
        if name.is_none() && log::log_enabled!(log::Level::Debug) {
            log_unknown_stub(process.pid, address, code, position);
        }
        name
    }

    /// The code around an address in a mapping, and the position of the address in it.
    fn code_at(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> Option<(&[u8], usize)> {
        let page = address.0 / PAGE_BYTES;
        if !self.pages.contains_key(&page) {
            if self.pages.len() >= MAX_PAGES {
                return None;
            }
            self.pages.insert(page, read_page(proc, process, mapping, page));
        }
        let (start, code) = self.pages.get(&page)?.as_ref()?;
        Some((code, usize::try_from(address.0.checked_sub(start.0)?).ok()?))
    }
}

/// Logs the code around an address, from which a template of its kind can be made.
fn log_unknown_stub(pid: Pid, address: RuntimeAddress, code: &[u8], position: usize) {
    const AROUND: usize = 48;
    let (before, from) = code.split_at(position.min(code.len()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let before = hex(&before[before.len().saturating_sub(AROUND)..]);
    let from = hex(&from[..from.len().min(AROUND)]);
    log::debug!("unknown stub at {:#x} in process {pid}: {before} {from}", address.0);
}

/// Reads a page of a mapping, with as much around it as a stub can have.
fn read_page(
    proc: &ProcFs,
    process: &Process,
    mapping: &Mapping,
    page: u64,
) -> Option<(RuntimeAddress, Vec<u8>)> {
    let around = MAX_STUB_BYTES as u64;
    let page = page.checked_mul(PAGE_BYTES)?;
    let start = page.saturating_sub(around).max(mapping.start.0);
    let end = page.saturating_add(PAGE_BYTES + around).min(mapping.end.0);
    let start = RuntimeAddress(start);
    let code = proc.read_memory(process, start, usize::try_from(end.checked_sub(start.0)?).ok()?).ok()?;
    Some((start, code))
}
