//! From an address to names: a source for each mapping, and one shape for all their answers.

mod absence;
mod code_map;
pub mod debug_file;
mod debug_paths;
mod diagnostics;
mod dwarf;
mod dwarf_reader;
mod function_names;
mod hexadecimal;
mod jit;
mod jitdump;
pub mod kernel;
pub mod kernel_code;
mod module_code;
mod modules;
mod names;
pub mod native;
mod perf_map;
mod split_dwarf;
mod supplement;
pub mod survey;
pub mod symbol;
pub mod symbol_server;
mod sys;

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::native::NativeOptions;
pub use self::supplement::{OpenDirectoryError, Symbols};
use self::{
    debug_file::{CommonPlaces, DebugFiles},
    diagnostics::MemoryBudget,
    jit::JitNames,
    kernel_code::{KernelCode, LoadKernelNames},
    modules::Modules,
    symbol::{Nearby, Symbolized},
};
use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{
    Backing, FileId, Mapping, ProcFs, Process, ProcessKey, ProcessTable, root_directory::RootDirectory,
};
use profiler_profile::{FrameKind, Reason, SymbolSource};

/// Entry points of the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzz {
    pub use crate::{
        diagnostics::{decode_reply, decode_stream, read_recording},
        jitdump::check_split as check_split_jitdump,
        perf_map::check_split as check_split_perf_map,
    };
}

/// How long the end of a session waits for debug files that are on their way.
const DOWNLOAD_TIME: Duration = Duration::from_secs(30);

/// What code an address belongs to: the same key, the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeKey {
    /// The kernel's, at a runtime address.
    Kernel(RuntimeAddress),
    /// A module's, at an address of its own.
    Module(ModuleKey, ElfAddress),
    /// Compiled at run time by a process, at a runtime address, in one arrangement of its code.
    Jit(ProcessKey, RuntimeAddress, u32),
    /// A file's that could not be opened or understood, at an offset in it.
    Closed(FileId, FileOffset, Reason),
    /// Nobody's that is known.
    Nowhere(Reason, RuntimeAddress),
}

/// Names an opened module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleKey(u32);

/// What is known of the code at an address.
#[derive(Clone, Debug)]
pub struct SymbolizedCode {
    pub kind: FrameKind,
    /// Path and build id of the file, where there is one.
    pub module: Option<(Arc<str>, Arc<[u8]>)>,
    /// The address in that file; where there is none, the runtime address.
    pub address: ElfAddress,
    /// The names, or why there are none.
    pub names: Result<Symbolized, Reason>,
    /// What is known of the code all the same when it has no name.
    pub nearby: Nearby,
}

impl SymbolizedCode {
    /// An address of which only the kind is known.
    fn unnamed(kind: FrameKind, address: ElfAddress, reason: Reason) -> Self {
        Self { kind, module: None, address, names: Err(reason), nearby: Nearby::default() }
    }
}

/// Finds names. Files are opened at the first sample of their mapping and stay open; what they hold is read
/// at the first look-up and kept.
pub struct Symbolizer {
    proc: Arc<ProcFs>,
    options: NativeOptions,
    style: NameStyle,
    places: Arc<CommonPlaces>,
    modules: Modules,
    kernel: KernelCode,
    jit: HashMap<ProcessKey, JitNames>,
    /// For the method events of all runtimes together.
    event_budget: MemoryBudget,
    /// Whether .NET runtimes are asked for perf maps.
    requests_perf_maps: bool,
}

impl Symbolizer {
    /// A symbolizer of the processes that `proc` shows, with debug files from `places`.
    pub fn new(
        proc: Arc<ProcFs>,
        places: Arc<CommonPlaces>,
        options: NativeOptions,
        style: NameStyle,
        load_kernel_names: LoadKernelNames,
    ) -> Self {
        let modules = Modules::new(Arc::clone(&proc), Arc::clone(&places.host));
        let kernel = KernelCode::new(Arc::clone(&proc), load_kernel_names);
        Self {
            proc,
            options,
            style,
            places,
            modules,
            kernel,
            jit: HashMap::new(),
            event_budget: MemoryBudget::default(),
            requests_perf_maps: false,
        }
    }

    /// Asks the .NET runtimes that are seen from now on for perf maps, when `wanted`.
    pub fn request_perf_maps(&mut self, wanted: bool) {
        self.requests_perf_maps = wanted;
    }

    /// The code at an address of a process at a time. Opens the file at first sight.
    pub fn code_at(&mut self, process: &Process, address: RuntimeAddress, time_ns: u64) -> CodeKey {
        let mapping = match process.find(address, time_ns) {
            Ok(mapping) => mapping,
            Err(reason) => return CodeKey::Nowhere(reason, address),
        };
        match &mapping.backing {
            Backing::Jit | Backing::DotnetJit => {
                let epoch = self.jit_names(process).epoch(time_ns);
                CodeKey::Jit(process.key, address, epoch)
            }
            Backing::Special(_) => CodeKey::Nowhere(Reason::NoSymbols, address),
            Backing::Vdso | Backing::File { .. } => self.modules.code_at(process, mapping, address),
        }
    }

    /// The names of a code.
    pub fn names(&mut self, code: CodeKey, process: &Process, time_ns: u64) -> SymbolizedCode {
        let answer = self.names_of_sources(code, process, time_ns);
        match answer.kind {
            FrameKind::Jit | FrameKind::Precompiled => {
                SymbolizedCode { names: answer.names.map(|names| styled(self.style, names)), ..answer }
            }
            _ => answer,
        }
    }

    fn names_of_sources(&mut self, code: CodeKey, process: &Process, time_ns: u64) -> SymbolizedCode {
        match code {
            CodeKey::Kernel(address) => self.kernel_names(address),
            CodeKey::Module(module, address) => {
                let debug_files = self.debug_files(process);
                self.modules.names(module, address, self.options, &debug_files)
            }
            CodeKey::Jit(_, address, _) => SymbolizedCode {
                kind: self.jit_names(process).kind(address, time_ns),
                module: None,
                address: ElfAddress(address.0),
                names: self.symbolize_jit(process, address, time_ns),
                nearby: Nearby::default(),
            },
            CodeKey::Closed(file, offset, reason) => {
                let module = self.modules.closed_path(file).map(|path| (path, Arc::default()));
                SymbolizedCode {
                    module,
                    ..SymbolizedCode::unnamed(FrameKind::Native, ElfAddress(offset.0), reason)
                }
            }
            CodeKey::Nowhere(reason, address) => {
                SymbolizedCode::unnamed(FrameKind::Native, ElfAddress(address.0), reason)
            }
        }
    }

    /// Whether a code may have a better name a moment later: its debug file is on its way from a symbol server.
    pub fn awaits_debug_file(&mut self, code: CodeKey, process: &Process) -> bool {
        let CodeKey::Module(module, _) = code else { return false };
        if self.places.servers.is_none() {
            return false;
        }
        let debug_files = self.debug_files(process);
        self.modules.awaits_debug_file(module, self.options, &debug_files)
    }

    /// Waits for the debug files that are on their way, as long as `may_wait`.
    pub fn wait_for_debug_files(&self, may_wait: &dyn Fn() -> bool) {
        if let Some(servers) = &self.places.servers {
            servers.wait(Instant::now() + DOWNLOAD_TIME, may_wait);
        }
    }

    /// Forgets what belongs to processes that are gone.
    pub fn forget_processes(&mut self, is_known: impl Fn(ProcessKey) -> bool) {
        self.jit.retain(|process, _| is_known(*process));
        self.modules.forget_failures();
    }

    fn kernel_names(&mut self, address: RuntimeAddress) -> SymbolizedCode {
        const KERNEL: &str = "[kernel]";
        let found = self.kernel.function(address);
        let module = found.as_ref().ok().and_then(|function| function.module.as_deref());
        let path = module.map_or_else(|| KERNEL.into(), |name| format!("[{name}]").into());
        SymbolizedCode {
            kind: FrameKind::Kernel,
            module: Some((path, Arc::default())),
            address: ElfAddress(address.0),
            names: found.map(|function| Symbolized::of(SymbolSource::Kallsyms, function.name)),
            nearby: Nearby::default(),
        }
    }

    fn debug_files(&self, process: &Process) -> DebugFiles {
        DebugFiles {
            target: process.identity.as_ref().and_then(|identity| identity.root.clone()),
            common: Arc::clone(&self.places),
            capture: self.proc.serves_capture().then(|| (Arc::clone(&self.proc), process.pid)),
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

/// What a frame without a symbol is called.
pub fn placeholder(answer: &SymbolizedCode, reason: Reason, mapping: Option<&Mapping>) -> String {
    match (answer.kind, &answer.module) {
        (FrameKind::Kernel, _) if reason == Reason::NoSymbolHere => {
            format!("[kernel 0x{:x}]", answer.address)
        }
        (FrameKind::Kernel, _) => "[kernel]".to_owned(),
        (FrameKind::Jit, _) if reason == Reason::RuntimeStub => "[stub]".to_owned(),
        (FrameKind::Jit, _) => format!("[JIT 0x{:x}]", answer.address),
        // All addresses of a function in one frame: they would take as many in a flame graph.
        (_, Some((path, _))) => {
            let address = answer.nearby.function_start.unwrap_or(answer.address);
            match &answer.nearby.symbol {
                Some(symbol) => format!("[{}+0x{address:x} near {symbol}]", file_name(path)),
                None => format!("[{}+0x{address:x}]", file_name(path)),
            }
        }
        (_, None) => match mapping.map(|mapping| &mapping.backing) {
            Some(Backing::Special(name)) => name.to_string(),
            _ => "[unmapped]".to_owned(),
        },
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
