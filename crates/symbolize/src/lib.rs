//! Symbolizes addresses of running processes and of the kernel: native code, JIT code and precompiled .NET code.
//!
//! A [`Symbolizer`] finds the mapping of an address and reads the symbols from the source that fits it:
//!
//! | code | sources |
//! |---|---|
//! | native | ELF symbol tables and DWARF of the file, of its debug file (build id, debug link, `debuginfod` and SSQP symbol servers), of split DWARF |
//! | JIT | perf maps, jitdumps, the diagnostics socket of .NET runtimes |
//! | precompiled .NET (ReadyToRun) | metadata in the images, also composite images and single-file programs |
//! | kernel | the running kernel, `/proc/kallsyms` |
//!
//! Files are opened in the mount namespace of the process, and only if they are the mapped ones. Every source has limits
//! on memory and time, because the target controls the content of the files. An address without a symbol has a
//! [`Reason`].
//!
//! ```
//! use std::{io, path::Path, sync::Arc};
//!
//! use profiler_addresses::RuntimeAddress;
//! use profiler_dotnet_symbols::managed::NameStyle;
//! use profiler_processes::{ProcFs, ProcessFilter, ProcessTable, root_directory::RootDirectory};
//! use profiler_symbolize::{NativeOptions, Symbolizer, debug_file::DebugDirectories};
//!
//! # #[inline(never)]
//! fn function_of_this_program() {}
//!
//! # fn main() -> io::Result<()> {
//! let proc = Arc::new(ProcFs::live());
//! let mut processes = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
//! let key = processes.process_of_sample(std::process::id(), 0, "");
//! let process = processes.get(key).ok_or(io::ErrorKind::NotFound)?;
//!
//! let debug_files = Arc::new(DebugDirectories::with_host(RootDirectory::open(Path::new("/"))?));
//! let options = NativeOptions { inlines: false, lines: false };
//! // Addresses of the kernel are looked up in `/proc/kallsyms` only.
//! let kernel_names = || Err(io::ErrorKind::Unsupported.into());
//! let mut symbolizer = Symbolizer::new(proc, debug_files, options, NameStyle::default(), kernel_names);
//!
//! let address = RuntimeAddress(function_of_this_program as *const () as u64);
//! let code = symbolizer.code_at(process, address, 0);
//! let symbolized = symbolizer.symbolize(code, process, 0);
//! assert!(symbolized.names.unwrap().functions[0].name.ends_with("function_of_this_program"));
//! # Ok(())
//! # }
//! ```
//!
//! * [`Symbolizer`], [`CodeKey`], [`SymbolizedCode`]: from an address to functions
//! * [`native`], [`debug_file`], [`symbol_server`]: ELF files and their debug files
//! * [`kernel`]: the kernel and its modules
//! * [`perf_map`], [`jitdump`], [`diagnostics`]: JIT code
//! * [`symbol_sources`]: which runtime a process has, and which symbol sources are available
//! * [`SymbolDirectories`]: symbolizes frames of a saved profile

mod code;
pub mod code_map;
pub mod debug_file;
mod debug_paths;
pub mod diagnostics;
mod function_names;
mod hexadecimal;
pub mod jit;
pub mod jitdump;
pub mod kernel;
mod module_code;
mod modules;
mod names;
pub mod native;
pub mod perf_map;
mod reasons;
mod resymbolize;
pub mod symbol;
pub mod symbol_server;
pub mod symbol_sources;
mod sys;

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::{ElfAddress, RuntimeAddress};
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{Backing, ProcFs, Process, ProcessKey, ProcessTable, root_directory::RootDirectory};
use profiler_profile::{FrameKind, Reason, SymbolSource};

pub use self::{
    code::{CodeKey, ModuleKey, SymbolizedCode, placeholder},
    native::NativeOptions,
    reasons::lookup_error_reason,
    resymbolize::{OpenDirectoryError, SymbolDirectories},
};
use self::{
    debug_file::{DebugDirectories, DebugFiles},
    diagnostics::{MapPlaces, Room, RuntimeNames, RuntimeProcess},
    jit::{JitNames, JitProcess, places},
    kernel::{KernelSymbolizer, LoadKernelNames},
    modules::Modules,
    symbol::{SymbolHint, Symbolized},
};

/// Memory for the names of JIT code of all processes together.
const MAX_JIT_BYTES: usize = 512 << 20;

/// Runtimes that are listened to at the same time: each takes a thread.
const MAX_LISTENERS: usize = 64;

/// How long the end of a profile waits for what runtimes have to say.
const SETTLE_TIME: Duration = Duration::from_millis(1800);

/// How long the end of a session waits for pending downloads of debug files.
const DOWNLOAD_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Finds the functions at addresses of processes and of the kernel.
///
/// A file is opened at the first sample in one of its mappings and stays open. Its symbols are read at the first lookup
/// and stay in memory.
pub struct Symbolizer {
    proc: Arc<ProcFs>,
    options: NativeOptions,
    style: NameStyle,
    places: Arc<DebugDirectories>,
    modules: Modules,
    kernel: KernelSymbolizer,
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
    /// Creates a symbolizer of the processes in `proc` that searches debug files in `places`.
    pub fn new(
        proc: Arc<ProcFs>,
        places: Arc<DebugDirectories>,
        options: NativeOptions,
        style: NameStyle,
        load_kernel_names: LoadKernelNames,
    ) -> Self {
        let modules = Modules::new(Arc::clone(&proc), Arc::clone(&places.host));
        let kernel = KernelSymbolizer::new(Arc::clone(&proc), load_kernel_names);
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

    /// Sets whether .NET runtimes whose first sample is yet to come are requested to write perf maps.
    pub fn request_perf_maps(&mut self, is_enabled: bool) {
        self.requests_perf_maps = is_enabled;
    }

    /// Identifies the code at an address of a process at a time (`CLOCK_MONOTONIC`). Opens the mapped file if it is not
    /// open yet.
    pub fn code_at(&mut self, process: &Process, address: RuntimeAddress, time_ns: u64) -> CodeKey {
        let mapping = match process.find_mapping(address, time_ns) {
            Ok(mapping) => mapping,
            Err(error) => return CodeKey::Unknown(lookup_error_reason(error), address),
        };
        match &mapping.backing {
            Backing::Jit | Backing::DotnetJit => {
                let epoch = self.jit_code(process).names.epoch(time_ns);
                CodeKey::Jit(process.key, address, epoch)
            }
            Backing::Special(_) => CodeKey::Unknown(Reason::NoSymbols, address),
            Backing::Vdso | Backing::File { .. } => self.modules.code_at(process, mapping, address),
        }
    }

    /// The functions at the code of `process`, innermost first, or the reason for which there is no symbol.
    pub fn symbolize(&mut self, code: CodeKey, process: &Process, time_ns: u64) -> SymbolizedCode {
        let symbolized = self.look_up(code, process, time_ns);
        match symbolized.kind {
            FrameKind::Jit | FrameKind::Precompiled => SymbolizedCode {
                names: symbolized.names.map(|names| styled(self.style, names)),
                ..symbolized
            },
            _ => symbolized,
        }
    }

    fn look_up(&mut self, code: CodeKey, process: &Process, time_ns: u64) -> SymbolizedCode {
        match code {
            CodeKey::Kernel(address) => self.look_up_kernel(address),
            CodeKey::Module(module, address) => {
                let debug_files = self.debug_files(process);
                self.modules.symbolize(module, address, self.options, &debug_files)
            }
            CodeKey::Jit(_, address, _) => SymbolizedCode {
                kind: self.jit_code(process).names.kind(address, time_ns),
                module: None,
                address: ElfAddress(address.0),
                names: self.look_up_jit(process, address, time_ns),
                hint: SymbolHint::default(),
            },
            CodeKey::Unopened(file, offset, reason) => {
                let module = self.modules.unopened_path(file).map(|path| (path, Arc::default()));
                SymbolizedCode {
                    module,
                    ..SymbolizedCode::unsymbolized(FrameKind::Native, ElfAddress(offset.0), reason)
                }
            }
            CodeKey::Unknown(reason, address) => {
                SymbolizedCode::unsymbolized(FrameKind::Native, ElfAddress(address.0), reason)
            }
        }
    }

    /// Whether the debug file of the code is still being downloaded from a symbol server. A later call of
    /// [`symbolize`](Self::symbolize) may find more.
    pub fn awaits_debug_file(&mut self, code: CodeKey, process: &Process) -> bool {
        let CodeKey::Module(module, _) = code else { return false };
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

    /// Number of the period in which the JIT code of a process did not change and that contains `time_ns`; 0 without JIT
    /// code.
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

    /// Number of malformed perf map lines, jitdump records and runtime events.
    pub fn malformed_jit_entries(&self) -> u64 {
        self.jit.values().map(|code| code.names.malformed_entries()).sum()
    }

    /// Number of events that .NET runtimes dropped because their buffers were full.
    pub fn dropped_runtime_events(&self) -> u64 {
        self.jit.values().map(|code| code.names.dropped_events()).sum()
    }

    /// Copies perf maps, jitdumps and runtime events into the capture, when one is recorded.
    #[cfg(feature = "capture")]
    pub fn capture_jit_names(&self, processes: &ProcessTable) {
        if !self.proc.records_capture() {
            return;
        }
        for (key, code) in &self.jit {
            let Some(process) = processes.get(*key) else { continue };
            if let Some(recording) = code.names.runtime_recording()
                && let Err(error) = self.proc.capture_entry(process.pid, diagnostics::RECORDING, &recording)
            {
                log::warn!("the capture lacks the events of the runtime in process {}: {error}", process.pid);
            }
            for (path, file) in code.names.files() {
                if let Err(error) = self.proc.capture_root_file(process.pid, path, file) {
                    log::warn!("the capture lacks `{}` of process {}: {error}", path.display(), process.pid);
                }
            }
        }
    }

    /// Drops the JIT code of the processes that `is_retained` rejects. Files that could not be opened are tried again.
    pub fn retain_processes(&mut self, is_retained: impl Fn(ProcessKey) -> bool) {
        self.jit.retain(|process, _| is_retained(*process));
        self.modules.clear_failures();
    }

    fn look_up_kernel(&mut self, address: RuntimeAddress) -> SymbolizedCode {
        const KERNEL: &str = "[kernel]";
        let found = self.kernel.function(address);
        let module = found.as_ref().ok().and_then(|function| function.module.as_deref());
        let path = module.map_or_else(|| KERNEL.into(), |name| format!("[{name}]").into());
        SymbolizedCode {
            kind: FrameKind::Kernel,
            module: Some((path, Arc::default())),
            address: ElfAddress(address.0),
            names: found.map(|function| Symbolized::new(SymbolSource::Kallsyms, function.name)),
            hint: SymbolHint::default(),
        }
    }

    /// Memory of a .NET runtime contains methods and stubs only: an address that is in none of the methods is in a stub.
    fn look_up_jit(
        &mut self,
        process: &Process,
        address: RuntimeAddress,
        time_ns: u64,
    ) -> Result<Symbolized, Reason> {
        let names = &self.jit_code(process).names;
        names.lookup(address, time_ns).map_err(|reason| match process.find_mapping(address, time_ns) {
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
        #[cfg(feature = "capture")]
        let recorded = (!proc.is_live()).then(|| {
            let recording = proc.read(process.pid, diagnostics::RECORDING).ok();
            recording.map(|text| RuntimeNames::recorded(&text))
        });
        #[cfg(not(feature = "capture"))]
        let recorded = None;
        let runtime = recorded.unwrap_or_else(|| {
            runtime_of(process, requests_perf_map).map(|runtime| RuntimeNames::new(runtime, room.clone()))
        });
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
