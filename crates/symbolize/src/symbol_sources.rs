//! Detects the runtime of a process and the available symbol sources of its code, without a sample.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_dotnet_diagnostics::{RuntimeProcess, probe};
use profiler_profile::{EventSessionCause, LanguageRuntime, Reason, SymbolSource};

pub use crate::runtime_detection::RuntimeKind;
use crate::{native::NativeModule, runtime_detection};

/// Time limit of a request to a runtime's diagnostics socket.
const CONNECT_TIME_LIMIT: Duration = Duration::from_millis(500);

/// The runtime and the symbol sources of a process.
#[derive(Debug, Default)]
pub struct ProcessSymbolSources {
    /// The runtime, when the process has one.
    pub runtime: Option<Runtime>,
    /// The runtime to which the mapped files belong, by their names.
    pub language: Option<LanguageRuntime>,
    /// Number of executable mappings without a file.
    pub jit_mappings: usize,
    /// Whether the diagnostics socket of the runtime responds; `None` when there is no socket.
    pub socket: Option<Result<(), Reason>>,
    /// Whether the methods of the runtime can be read from the memory of the process.
    pub has_method_memory: bool,
    /// Why they cannot be read there.
    pub memory_lack: Option<EventSessionCause>,
    /// A perf map or jitdump whose owner and age are those of the process, or of one from whose fork it has code.
    pub jit_file: Option<PathBuf>,
    /// The ReadyToRun images whose code is mapped.
    pub images: ReadyToRunImages,
    /// The ELF files whose code is mapped.
    pub native: Vec<NativeFile>,
    /// Paths of files that could not be opened or parsed.
    pub unopened: Vec<(Arc<str>, Reason)>,
}

/// A runtime and the file that contains it.
#[derive(Debug)]
pub struct Runtime {
    /// The kind of runtime.
    pub kind: RuntimeKind,
    /// Its version, such as `9.0.7`, when it is known.
    pub version: Option<String>,
    /// Path of the file.
    pub path: Arc<str>,
    /// Of a single-file program: the number of its assemblies, uncompressed and compressed.
    pub bundled_assemblies: Option<(usize, usize)>,
}

/// The number of ReadyToRun images (precompiled .NET code) that are mapped.
#[derive(Debug, Default)]
pub struct ReadyToRunImages {
    /// All images.
    pub count: usize,
    /// The composite ones among them.
    pub composite: usize,
}

/// An ELF file whose code is mapped.
#[derive(Debug)]
pub struct NativeFile {
    /// Path of the file.
    pub path: Arc<str>,
    /// The best source of its symbols; `None` when it has no symbols.
    pub source: Option<SymbolSource>,
    /// Whether it contains a runtime.
    pub is_runtime: bool,
}

/// The runtime in a file.
pub(crate) fn detect_runtime(
    module: &NativeModule,
    path: &Arc<str>,
    bundled_assemblies: Option<(usize, usize)>,
) -> Option<Runtime> {
    let kind = runtime_detection::kind_of(module.elf())?;
    let version = runtime_detection::version_of(module.elf(), Path::new(&**path));
    Some(Runtime { kind, version, path: Arc::clone(path), bundled_assemblies })
}

/// Checks that the diagnostics socket of a runtime responds; `None` when there is no socket.
pub(crate) fn check_socket(process: RuntimeProcess) -> Option<Result<(), Reason>> {
    probe(process, Instant::now() + CONNECT_TIME_LIMIT)
}
