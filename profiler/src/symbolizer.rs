//! Symbolizes addresses of processes, of files and of the kernel, without a session.

#[cfg(test)]
mod tests;

use std::{fmt, path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessKey, ProcessTable, Tid, monotonic_time};
use profiler_profile::{FrameKind, Reason, SymbolSource};
use profiler_symbolize::{CodeKey, SymbolizedCode, placeholder, symbol};

use crate::{
    error::{Error, ErrorKind, Operation, Result},
    session::{debug_file_directories, new_symbolizer},
    settings::Settings,
};

/// Finds the functions at addresses of processes, of files and of the kernel, as a session does for its samples: in symbol
/// tables, debug files, perf maps and jitdumps, and in the memory or by the diagnostics socket of a .NET runtime.
/// [`Builder::symbolizer`](crate::Builder::symbolizer) makes one.
///
/// What it has read stays for later calls: files until they are idle for some time, and the methods of processes that run.
///
/// ```no_run
/// use profiler::{Address, Profiler};
///
/// let mut symbolizer = Profiler::builder().inlines(true).symbolizer()?;
/// for symbol in symbolizer.symbolize(1234, &[Address::Instruction(0x7f12_3456_0000)])? {
///     println!("{symbol}");
/// }
/// # Ok::<(), profiler::Error>(())
/// ```
pub struct Symbolizer {
    processes: ProcessTable,
    names: profiler_symbolize::Symbolizer,
}

/// An address to symbolize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Of an instruction: that of the innermost frame of a stack, or the start of a function.
    Instruction(u64),
    /// A return address, which is behind the call instruction: with the line of the call, and in the function of the call where
    /// that is its last instruction.
    Return(u64),
}

/// A function at an address.
pub use profiler_symbolize::symbol::Function;

/// What is at an address.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The functions, innermost first: each but the last is inlined into its successor. Empty where there is no symbol.
    pub functions: Vec<Function>,
    /// Where the name of the last function is from, or why there is no symbol.
    pub source: std::result::Result<SymbolSource, Reason>,
    /// The kind of code.
    pub kind: FrameKind,
    /// The path of the file of the code, in the root directory of its process; that of kernel code is `[kernel]` or its module. JIT
    /// code and unmapped addresses have none.
    pub module: Option<Arc<str>>,
    /// The build id of the file; empty without one.
    pub build_id: Arc<[u8]>,
    /// The address in the file; the address itself without a file; the offset in the function for kernel code.
    pub module_address: ElfAddress,
    /// The address in brackets, for code without a symbol.
    label: String,
}

impl Address {
    /// The address that is looked up.
    fn looked_up(self) -> u64 {
        match self {
            Self::Instruction(address) => address,
            Self::Return(address) => RuntimeAddress(address).call_site().0,
        }
    }
}

impl Symbol {
    /// The name of the innermost function, or the address in brackets where there is no symbol, such as `[libc.so.6+0x1234]`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.functions.first().map_or(&self.label, |function| &function.name)
    }

    fn new(code: SymbolizedCode, label: impl FnOnce(&SymbolizedCode, Reason) -> String) -> Self {
        let label = code.names.as_ref().err().map(|reason| label(&code, *reason)).unwrap_or_default();
        let (functions, source) = match code.names {
            Ok(symbol::Symbolized { functions, source, .. }) => (functions, Ok(source)),
            Err(reason) => (Vec::new(), Err(reason)),
        };
        let (module, build_id) = code.module.unzip();
        Self {
            functions,
            source,
            kind: code.kind,
            module,
            build_id: build_id.unwrap_or_default(),
            module_address: code.address,
            label,
        }
    }
}

impl fmt::Display for Symbol {
    /// The functions, innermost first, with file and line where they are known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.functions.is_empty() {
            return f.write_str(&self.label);
        }
        for (index, Function { name, location }) in self.functions.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", inlined into " };
            write!(f, "{separator}{name}")?;
            match location {
                Some((file, 0)) => write!(f, " at {file}")?,
                Some((file, line)) => write!(f, " at {file}:{line}")?,
                None => {}
            }
        }
        Ok(())
    }
}

impl Symbolizer {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let proc = Arc::new(ProcFs::live());
        let directories = debug_file_directories(&settings.names)?;
        let names = new_symbolizer(settings, Arc::clone(&proc), directories);
        Ok(Self { processes: ProcessTable::new(proc, ProcessFilter::All), names })
    }

    /// The symbols at addresses of a process that runs, in their order. The process id is one of the PID namespace of the caller.
    ///
    /// A JIT runtime that is asked for its methods has a second to answer.
    ///
    /// # Errors
    /// [`NoSuchTarget`](ErrorKind::NoSuchTarget) without such a process. That its memory or its files cannot be read is the
    /// reason of each symbol.
    pub fn symbolize(&mut self, pid: u32, addresses: &[Address]) -> Result<Vec<Symbol>> {
        let pid = Pid(pid);
        if !self.processes.proc().exists(Tid::leader_of(pid)) {
            return Err(Error::new(ErrorKind::NoSuchTarget, format!("process {pid} does not exist")));
        }
        // What it has mapped or executed since the last call.
        let key = self.processes.read_again(pid);
        if self.has_jit_code(key, addresses) {
            self.read_jit_code(key, addresses);
        }
        let symbols = self.look_up(key, addresses);
        let now = monotonic_time();
        self.processes.end_interval(now);
        let processes = &self.processes;
        self.names.end_interval(now, |process| processes.get(process).is_some());
        Ok(symbols)
    }

    /// The symbols at offsets in a file of this host: an ELF file, or a .NET assembly with precompiled code.
    ///
    /// # Errors
    /// When the file cannot be opened. That it is malformed is the reason of each symbol.
    pub fn symbolize_file(&mut self, path: impl AsRef<Path>, offsets: &[Address]) -> Result<Vec<Symbol>> {
        let path = path.as_ref();
        let offsets: Vec<_> = offsets.iter().map(|offset| FileOffset(offset.looked_up())).collect();
        let symbolized = self.names.symbolize_file(path, &offsets).map_err(|error| {
            let message = format!("failed to open `{}`", path.display());
            Error::from_io(Operation::OpenFile, message, error)
        })?;
        let label = |code: &SymbolizedCode, reason| placeholder(code, reason, None);
        Ok(symbolized.into_iter().map(|code| Symbol::new(code, label)).collect())
    }

    /// The symbols at addresses of the running kernel. They need `CAP_SYSLOG`, or `CAP_BPF` and `CAP_PERFMON`.
    pub fn symbolize_kernel(&mut self, addresses: &[Address]) -> Vec<Symbol> {
        let look_up = |address: &Address| {
            let code = self.names.symbolize_kernel(RuntimeAddress(address.looked_up()));
            Symbol::new(code, |code, reason| placeholder(code, reason, None))
        };
        addresses.iter().map(look_up).collect()
    }

    /// Whether one of the addresses is in code that its process compiled, or in a file whose debug file is being downloaded.
    fn has_jit_code(&mut self, key: ProcessKey, addresses: &[Address]) -> bool {
        let Some(process) = self.processes.get(key) else { return false };
        let now = monotonic_time();
        addresses.iter().any(|address| {
            let code = self.names.code_at(process, RuntimeAddress(address.looked_up()), now);
            matches!(code, CodeKey::Jit(..)) || self.names.awaits_debug_file(code, process)
        })
    }

    /// Reads what the runtime of a process has written, and asks it for its methods.
    fn read_jit_code(&mut self, key: ProcessKey, addresses: &[Address]) {
        self.note(key, addresses);
        // The code that can be freed has the names that it has before and after.
        self.names.poll_jit(&self.processes, monotonic_time());
        self.note(key, addresses);
        let now = monotonic_time();
        let mut requested = self.names.read_received_methods(&self.processes, now);
        self.names.request_all_methods(&mut requested, &[key].into(), false);
        self.names.receive_all_methods(&requested, &self.processes, now);
        self.names.wait_for_debug_files(&|| true);
    }

    /// Notes that these addresses are looked up next.
    fn note(&mut self, key: ProcessKey, addresses: &[Address]) {
        let Some(process) = self.processes.get(key) else { return };
        let now = monotonic_time();
        for address in addresses {
            self.names.code_at(process, RuntimeAddress(address.looked_up()), now);
        }
    }

    fn look_up(&mut self, key: ProcessKey, addresses: &[Address]) -> Vec<Symbol> {
        let Some(process) = self.processes.get(key) else { return Vec::new() };
        let now = monotonic_time();
        let look_up = |address: &Address| {
            let address = RuntimeAddress(address.looked_up());
            let code = self.names.code_at(process, address, now);
            let code = self.names.symbolize(code, process, now);
            let mapping = process.find_mapping(address, now).ok().map(|mapping| &**mapping);
            Symbol::new(code, |code, reason| placeholder(code, reason, mapping))
        };
        addresses.iter().map(look_up).collect()
    }
}

impl fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbolizer").finish_non_exhaustive()
    }
}
