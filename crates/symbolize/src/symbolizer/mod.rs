//! Finds the functions at addresses of processes and of the kernel, from the source of symbols that fits each.
//!
//! The parts of [`Symbolizer`] are in files of their own here; the modules beside this folder do not know it.

mod called_functions;
mod compilations;
mod host_file;
mod inherited_code;
mod jit;
mod locks;
mod runtime_memory;
mod symbol_sources;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::{ElfAddress, FileOffset, MonotonicTime, RuntimeAddress};
use profiler_binary_reader::WorkBudget;
use profiler_dotnet_diagnostics::MemoryBudget;
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{
    Backing, FileId, MappedFiles, Pid, ProcFs, Process, ProcessKey, tenants::tenant_of,
};
use profiler_profile::{FrameKind, Reason, SymbolSource};

pub use self::jit::RequestedMethods;
use crate::{
    CodeKey, ModuleKey, NativeOptions, RuntimeRequests, SymbolizedCode,
    debug_file::{DebugDirectories, DebugFiles},
    jit::JitNames,
    kernel::{KernelSymbolizer, LoadKernelNames},
    locks::MutexReadings,
    modules::Modules,
    reasons::{lookup_error_reason, may_be_jit},
    runtime_memory::RuntimeMemory,
    symbol::{SymbolHint, Symbolized},
};

/// How long the end of a session waits for pending downloads of debug files.
const DOWNLOAD_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Finds the functions at addresses of processes and of the kernel.
///
/// A file is opened at the first sample in one of its mappings, and its symbols are read at the first lookup. Both stay until
/// it is idle for some time.
pub struct Symbolizer {
    pub(crate) proc: Arc<ProcFs>,
    options: NativeOptions,
    style: NameStyle,
    places: Arc<DebugDirectories>,
    pub(crate) modules: Modules,
    kernel: KernelSymbolizer,
    pub(crate) jit: HashMap<ProcessKey, JitNames>,
    /// The JIT code of processes that forked others, by process id and start time.
    jit_of_ancestors: HashMap<(Pid, u64), JitNames>,
    runtime_memory: HashMap<ProcessKey, RuntimeMemory>,
    mutexes: MutexReadings,
    /// For the events of all runtimes together.
    event_budget: MemoryBudget,
    runtime_requests: RuntimeRequests,
}

impl Symbolizer {
    /// Creates a symbolizer of the processes in `proc` that searches debug files in `places`.
    pub fn new(
        proc: Arc<ProcFs>,
        places: Arc<DebugDirectories>,
        options: NativeOptions,
        style: NameStyle,
        load_kernel_names: LoadKernelNames,
    ) -> Self {
        let modules = Modules::new(Arc::clone(&proc), options, Arc::clone(&places));
        let kernel = KernelSymbolizer::new(Arc::clone(&proc), load_kernel_names);
        Self {
            proc,
            options,
            style,
            places,
            modules,
            kernel,
            jit: HashMap::new(),
            jit_of_ancestors: HashMap::new(),
            runtime_memory: HashMap::new(),
            mutexes: MutexReadings::default(),
            event_budget: MemoryBudget::default(),
            runtime_requests: RuntimeRequests::default(),
        }
    }

    /// The open files of mappings, for other readers of the same files.
    pub fn mapped_files(&self) -> &Arc<MappedFiles> {
        self.modules.files()
    }

    /// The budget of all files of targets, for [`WorkBudget::limit_time`].
    pub fn work_budget(&self) -> &Arc<WorkBudget> {
        self.modules.budget()
    }

    /// Loads what resolves addresses of the kernel now, and not at the first of them: later, this process may lack the
    /// rights for it.
    pub fn load_kernel_names(&mut self) {
        self.kernel.load_names();
    }

    /// Sets what .NET runtimes are asked for whose first sample is yet to come.
    pub fn set_runtime_requests(&mut self, requests: RuntimeRequests) {
        self.runtime_requests = requests;
    }

    /// Identifies the code at an address of a process at a time. Opens the mapped file if it is not
    /// open yet.
    pub fn code_at(&mut self, process: &Process, address: RuntimeAddress, time: MonotonicTime) -> CodeKey {
        let mapping = match process.find_mapping(address, time) {
            Ok(mapping) => mapping,
            Err(error) => return CodeKey::Unknown(lookup_error_reason(error), address),
        };
        match &mapping.backing {
            Backing::Jit | Backing::DotnetJit => self.jit_code_at(process, address, time),
            Backing::Special(_) => CodeKey::Unknown(Reason::NoSymbols, address),
            Backing::Vdso | Backing::File { .. } => match self.modules.code_at(process, mapping, address) {
                CodeKey::Module(module, address) if self.modules.is_runtime(module) => {
                    CodeKey::Runtime(process.key, module, address)
                }
                CodeKey::Unopened(.., reason) if may_be_jit(reason) => {
                    self.jit_code_at(process, address, time)
                }
                code => code,
            },
        }
    }

    fn jit_code_at(&mut self, process: &Process, address: RuntimeAddress, time: MonotonicTime) -> CodeKey {
        let names = self.jit_names(process);
        names.note(address);
        CodeKey::Jit(process.key, address, names.epoch(time))
    }

    /// The functions at the code of `process`, innermost first, or the reason for which there is no symbol.
    pub fn symbolize(&mut self, code: CodeKey, process: &Process, time: MonotonicTime) -> SymbolizedCode {
        let symbolized = self.look_up(code, process, time);
        match symbolized.kind {
            FrameKind::Jit | FrameKind::Precompiled => SymbolizedCode {
                names: symbolized.names.map(|names| styled(self.style, names)),
                ..symbolized
            },
            _ => symbolized,
        }
    }

    /// Whether JIT code was entered from other code of the same method, which it continues (on-stack replacement).
    pub fn continues_method(
        &mut self,
        code: CodeKey,
        entered_from: CodeKey,
        process: &Process,
        time: MonotonicTime,
    ) -> bool {
        let [new, old] = [code, entered_from].map(|code| self.look_up(code, process, time));
        let names = |code: &SymbolizedCode| code.names.as_ref().ok().map(|names| names.functions.clone());
        new.replaces_on_stack() && !old.replaces_on_stack() && names(&new) == names(&old)
    }

    /// Whether JIT code was entered from other code of the same method, which has called the runtime for its replacement, by the
    /// memory of the process. `call_site` is the address in the calling code.
    pub fn continues_method_in_memory(
        &mut self,
        code: CodeKey,
        (entered_from, call_site): (CodeKey, RuntimeAddress),
        process: &Process,
        time: MonotonicTime,
    ) -> bool {
        let (CodeKey::Jit(_, new, _), CodeKey::Jit(_, old, _)) = (code, entered_from) else { return false };
        let memory = self.jit_names(process).method_memory.as_ref();
        memory.is_some_and(|memory| memory.has_two_codes(new.0, old.0, time))
            && self.calls_patchpoint(process, entered_from, call_site, time)
    }

    fn look_up(&mut self, code: CodeKey, process: &Process, time: MonotonicTime) -> SymbolizedCode {
        match code {
            CodeKey::Kernel(address) => self.symbolize_kernel(address),
            CodeKey::Module(module, address) => self.look_up_in_module(process, module, address),
            CodeKey::Runtime(_, module, address) => self.look_up_in_runtime(process, module, address, time),
            CodeKey::Jit(_, address, _) => self.look_up_jit(process, address, time),
            CodeKey::Unopened(file, offset, reason) => self.unopened(file, offset, reason),
            CodeKey::Unknown(reason, address) => {
                SymbolizedCode::unsymbolized(FrameKind::Native, ElfAddress(address.0), reason)
            }
        }
    }

    /// Looks up JIT code, which can be in a file (memfd_create(2), shm_open(3), a temporary file). Code of a file without an entry
    /// is that of the file.
    fn look_up_jit(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> SymbolizedCode {
        let names = self.symbolize_jit(process, address, time);
        if names.is_err()
            && let Ok(mapping) = process.find_mapping(address, time)
            && matches!(mapping.backing, Backing::File { .. })
            && let CodeKey::Unopened(file, offset, reason) = self.modules.code_at(process, mapping, address)
        {
            return self.unopened(file, offset, reason);
        }
        SymbolizedCode {
            kind: self.jit_names(process).kind(address, time),
            module: None,
            address: ElfAddress(address.0),
            names,
            hint: SymbolHint::default(),
        }
    }

    fn unopened(&self, file: FileId, offset: FileOffset, reason: Reason) -> SymbolizedCode {
        let module = self.modules.unopened_path(file).map(|path| (path, Arc::default()));
        SymbolizedCode {
            module,
            ..SymbolizedCode::unsymbolized(FrameKind::Native, ElfAddress(offset.0), reason)
        }
    }

    /// Whether the debug file of the code is still being downloaded from a symbol server. A later call of
    /// [`symbolize`](Self::symbolize) may find more.
    pub fn awaits_debug_file(&mut self, code: CodeKey, process: &Process) -> bool {
        let (CodeKey::Module(module, _) | CodeKey::Runtime(_, module, _)) = code else { return false };
        if self.places.servers.is_none() {
            return false;
        }
        let debug_files = self.debug_files(process);
        self.modules.awaits_debug_file(module, self.options, &debug_files)
    }

    /// Waits until no download of a debug file is pending, as long as `may_wait` returns true and 30 seconds at most.
    pub fn wait_for_debug_files(&self, may_wait: &dyn Fn() -> bool) {
        if let Some(servers) = &self.places.servers {
            servers.wait(Instant::now() + DOWNLOAD_TIME_LIMIT, may_wait);
        }
    }

    /// Ends an interval: only times from `from` on are looked up from now on. Retires the JIT code of the processes
    /// that `is_retained` rejects, code that was replaced, and idle files. Files that could not be opened are tried
    /// again.
    pub fn end_interval(&mut self, from: MonotonicTime, is_retained: impl Fn(ProcessKey) -> bool) {
        self.runtime_memory.retain(|process, _| is_retained(*process));
        self.mutexes.retain(&is_retained);
        self.retire_jit_names(from, &is_retained);
        self.modules.end_interval();
    }

    fn look_up_in_module(
        &mut self,
        process: &Process,
        module: ModuleKey,
        address: ElfAddress,
    ) -> SymbolizedCode {
        let debug_files = self.debug_files(process);
        self.modules.symbolize(module, address, self.options, &debug_files)
    }

    /// Looks up code of a .NET runtime: in the file, then in the memory of the process.
    fn look_up_in_runtime(
        &mut self,
        process: &Process,
        module: ModuleKey,
        address: ElfAddress,
        time: MonotonicTime,
    ) -> SymbolizedCode {
        let found = self.look_up_in_module(process, module, address);
        let helper = match (&found.names, found.hint.function_start) {
            (Err(_), Some(start)) => self.runtime_helper(process, (module, start), time),
            _ => None,
        };
        match helper {
            Some(helper) => SymbolizedCode { names: Ok(helper), hint: SymbolHint::default(), ..found },
            None => found,
        }
    }

    /// The function at an address of the kernel, or the reason for which there is no symbol.
    pub fn symbolize_kernel(&mut self, address: RuntimeAddress) -> SymbolizedCode {
        const KERNEL: &str = "[kernel]";
        let found = self.kernel.function(address);
        let module = found.as_ref().ok().and_then(|function| function.module.as_deref());
        let path = module.map_or_else(|| KERNEL.into(), |name| format!("[{name}]").into());
        SymbolizedCode {
            kind: FrameKind::Kernel,
            module: Some((path, Arc::default())),
            // Not the address: every user can read outputs, and the kernel hides its addresses (`kptr_restrict`).
            address: ElfAddress(found.as_ref().map_or(0, |function| function.offset)),
            names: found.map(|function| Symbolized::new(SymbolSource::Kallsyms, function.name)),
            hint: SymbolHint::default(),
        }
    }

    fn debug_files(&self, process: &Process) -> DebugFiles {
        DebugFiles {
            target: process.identity.as_ref().and_then(|identity| identity.root.clone()),
            tenant: tenant_of(process),
            shared: Arc::clone(&self.places),
            capture: self.proc.has_capture().then(|| (Arc::clone(&self.proc), process.pid)),
        }
    }
}

/// The names of a managed method in `style`.
fn styled(style: NameStyle, mut names: Symbolized) -> Symbolized {
    for function in &mut names.functions {
        function.name = style.apply(&function.name, names.tier);
    }
    names
}
