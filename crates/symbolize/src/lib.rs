//! From an address to names: a source for each mapping, and one shape for all their answers.

mod absence;
pub mod code_map;
pub mod debug_file;
mod debug_paths;
pub mod diagnostics;
mod function_names;
mod hexadecimal;
pub mod jit;
pub mod jitdump;
pub mod kernel;
pub mod kernel_code;
mod module_code;
mod modules;
mod names;
pub mod native;
pub mod perf_map;
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
    debug_file::{DebugDirectories, DebugFiles},
    diagnostics::{MapPlaces, Room, RuntimeNames, RuntimeProcess},
    jit::{JitNames, JitProcess, places},
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

/// Memory for the names of JIT code of all processes together.
const MAX_JIT_BYTES: usize = 512 << 20;

/// Runtimes that are listened to at the same time: each takes a thread.
const MAX_LISTENERS: usize = 64;

/// How long the end of a profile waits for what runtimes have to say.
const SETTLE_TIME: Duration = Duration::from_millis(1800);

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
    places: Arc<DebugDirectories>,
    modules: Modules,
    kernel: KernelCode,
    jit: HashMap<ProcessKey, JitCode>,
    room: Room,
    /// Whether runtimes are asked for perf maps.
    requests_perf_maps: bool,
}

/// The code that one process compiles at run time.
struct JitCode {
    names: JitNames,
    root: Option<Arc<RootDirectory>>,
}

impl Symbolizer {
    /// A symbolizer of the processes that `proc` shows, with debug files from `places`.
    pub fn new(
        proc: Arc<ProcFs>,
        places: Arc<DebugDirectories>,
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
            room: Room::default(),
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
                let epoch = self.jit_code(process).names.epoch(time_ns);
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
                kind: self.jit_code(process).names.kind(address, time_ns),
                module: None,
                address: ElfAddress(address.0),
                names: self.jit_names(process, address, time_ns),
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

    /// The span of time in which the process's JIT code, if it has any, stood as it stood at `time_ns`.
    pub fn jit_epoch(&mut self, process: &Process, time_ns: u64) -> u32 {
        self.jit.get_mut(&process.key).map_or(0, |code| code.names.epoch(time_ns))
    }

    /// Reads what the runtimes of the targets wrote since the last time; `now_ns` is the time before the call.
    pub fn poll_jit(&mut self, processes: &ProcessTable, now_ns: u64) {
        let mut used_bytes: usize = self.jit.values().map(|code| code.names.memory_bytes()).sum();
        let mut listeners = self.jit.values().filter(|code| code.names.is_listening()).count();
        for (key, code) in &mut self.jit {
            let Some(root) = &code.root else { continue };
            code.names.advance_perf_map();
            if listeners < MAX_LISTENERS && !code.names.is_listening() {
                code.names.listen();
                listeners += usize::from(code.names.is_listening());
            }
            if let Some(process) = processes.get(*key) {
                process.mapped_files().for_each(|path| code.names.see_mapping(Path::new(path)));
            }
            used_bytes -= code.names.memory_bytes();
            let room_bytes = MAX_JIT_BYTES.saturating_sub(used_bytes);
            while code.names.poll(root, now_ns, room_bytes) {}
            used_bytes += code.names.memory_bytes();
        }
    }

    /// Reads what the runtimes of the targets wrote and told up to now. They are not listened to after the last time.
    pub fn settle_jit(&mut self, processes: &ProcessTable, now_ns: u64, is_last: bool) {
        self.poll_jit(processes, now_ns);
        let until = Instant::now() + SETTLE_TIME;
        self.jit.values_mut().for_each(|code| code.names.ask(is_last, until));
        self.jit.values_mut().for_each(|code| code.names.settle(until));
        if self.requests_perf_maps {
            self.poll_jit(processes, now_ns);
        }
    }

    /// Lines and records of the targets' perf maps and jitdumps, and events of their runtimes, that were no entries.
    pub fn malformed_jit_entries(&self) -> u64 {
        self.jit.values().map(|code| code.names.malformed_entries()).sum()
    }

    /// Events that the runtimes of the targets had to tell and had no room for.
    pub fn dropped_runtime_events(&self) -> u64 {
        self.jit.values().map(|code| code.names.dropped_events()).sum()
    }

    /// Puts what the runtimes of the targets wrote and told into the capture, when one is recorded.
    pub fn keep_jit_names(&self, processes: &ProcessTable) {
        if !self.proc.records_capture() {
            return;
        }
        for (key, code) in &self.jit {
            let Some(process) = processes.get(*key) else { continue };
            if let Some(recording) = code.names.runtime_recording()
                && let Err(error) = self.proc.keep(process.pid, diagnostics::RECORDING, &recording)
            {
                log::warn!("the capture lacks what the runtime of process {} told: {error}", process.pid);
            }
            for (path, file) in code.names.files() {
                if let Err(error) = self.proc.keep_in_root(process.pid, path, file) {
                    log::warn!("the capture lacks `{}` of process {}: {error}", path.display(), process.pid);
                }
            }
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

    /// Where a .NET runtime has nothing but methods and stubs, what is none of its methods is a stub.
    fn jit_names(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time_ns: u64,
    ) -> Result<Symbolized, Reason> {
        let names = &self.jit_code(process).names;
        names.lookup(address, time_ns).map_err(|reason| match process.find(address, time_ns) {
            Ok(mapping) if mapping.backing == Backing::DotnetJit && names.has_all_of(time_ns) => {
                Reason::RuntimeStub
            }
            _ => reason,
        })
    }

    fn jit_code(&mut self, process: &Process) -> &mut JitCode {
        self.jit
            .entry(process.key)
            .or_insert_with(|| JitCode::of(process, &self.proc, &self.room, self.requests_perf_maps))
    }

    fn debug_files(&self, process: &Process) -> DebugFiles {
        DebugFiles {
            target: process.identity.as_ref().and_then(|identity| identity.root.clone()),
            shared: Arc::clone(&self.places),
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

impl JitCode {
    fn of(process: &Process, proc: &ProcFs, room: &Room, requests_perf_map: bool) -> Self {
        let identity = process.identity.as_deref();
        // The files in a capture were checked when it was taken, and belong to whoever copied them.
        let (uid, started_unix_ns) = match identity {
            Some(identity) if proc.is_live() => (identity.status.uid, identity.started_unix_ns),
            _ => (rustix::process::geteuid().as_raw(), 0),
        };
        let owner = JitProcess {
            namespace_pid: identity.map_or(process.pid, |identity| identity.status.innermost_pid),
            uid,
            started_unix_ns,
            environ: identity.map_or(&[], |identity| &identity.environment),
        };
        let root = identity.and_then(|identity| identity.root.clone());
        let runtime = if proc.is_live() {
            runtime_of(process, requests_perf_map).map(|runtime| RuntimeNames::new(runtime, room.clone()))
        } else {
            let recording = proc.read(process.pid, diagnostics::RECORDING).ok();
            recording.map(|text| RuntimeNames::recorded(&text))
        };
        Self { names: JitNames::new(&owner, runtime), root }
    }
}

/// Whom to ask for the names of a process's JIT code.
fn runtime_of(process: &Process, requests_perf_map: bool) -> Option<RuntimeProcess> {
    let identity = process.identity.as_deref()?;
    let namespace_pid = identity.status.innermost_pid;
    let perf_map = requests_perf_map.then(|| MapPlaces {
        paths: places::perf_maps(&identity.environment, namespace_pid),
        started_unix_ns: identity.started_unix_ns,
    });
    Some(RuntimeProcess {
        root: identity.root.clone()?,
        directories: places::temporary_directories(&identity.environment),
        pid: process.pid,
        namespace_pid,
        uid: identity.status.uid,
        start_ticks: identity.start_ticks,
        perf_map,
    })
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
