//! What code a process has, and where the names of each kind are to come from, before anything is sampled.

mod runtime;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::runtime::RuntimeKind;
use super::{
    CodeKey, ModuleKey, Symbolizer, diagnostics,
    jit::{JitNames, runtime_process},
    modules::What,
    native::NativeModule,
};
use profiler_addresses::RuntimeAddress;
use profiler_processes::{Backing, Mapping, Process};
use profiler_profile::{Reason, SymbolSource};

/// How long a runtime's socket may take to answer.
const CONNECT_TIME: Duration = Duration::from_millis(500);

/// What was found.
#[derive(Debug, Default)]
pub struct Survey {
    pub runtime: Option<Runtime>,
    /// Mappings of code that no file is behind.
    pub jit_mappings: usize,
    /// Whether the runtime can be asked.
    pub socket: Option<Result<(), Reason>>,
    /// A perf map or a jitdump that can be trusted.
    pub jit_file: Option<PathBuf>,
    pub images: Images,
    pub native: Vec<NativeFile>,
    /// Files that could not be opened or understood.
    pub closed: Vec<(Arc<str>, Reason)>,
}

/// A runtime and the file that brings it.
#[derive(Debug)]
pub struct Runtime {
    pub kind: RuntimeKind,
    pub version: Option<String>,
    pub path: Arc<str>,
    /// Of a single-file program: how many assemblies it carries as they are, and compressed.
    pub carried: Option<(usize, usize)>,
}

/// The .NET images whose code is mapped.
#[derive(Debug, Default)]
pub struct Images {
    pub count: usize,
    /// How many of them are composite.
    pub composite: usize,
}

/// A file of native code.
#[derive(Debug)]
pub struct NativeFile {
    pub path: Arc<str>,
    /// Where most of its names come from; `None`: it has none.
    pub source: Option<SymbolSource>,
    pub is_runtime: bool,
}

impl Symbolizer {
    /// Looks at all code that a process has mapped.
    pub fn survey(&mut self, process: &Process) -> Survey {
        let mut survey = Survey::default();
        let mut seen = HashSet::new();
        for mapping in process.mappings() {
            match &mapping.backing {
                Backing::Jit | Backing::DotnetJit => survey.jit_mappings += 1,
                Backing::File { path, .. } => match self.modules.code_at(process, mapping, middle(mapping)) {
                    CodeKey::Module(key, _) if seen.insert(key) => self.look_at(key, process, &mut survey),
                    CodeKey::Closed(.., reason) => survey.closed.push((Arc::clone(path), reason)),
                    _ => {}
                },
                Backing::Vdso | Backing::Special(_) => {}
            }
        }
        survey.socket = runtime_process(process, false).and_then(reach);
        survey.jit_file = self.jit_file(process);
        survey
    }

    fn look_at(&mut self, key: ModuleKey, process: &Process, survey: &mut Survey) {
        let debug_files = self.debug_files(process);
        let Some((path, what)) = self.modules.what(key) else { return };
        match what {
            What::Native(module, bundle) => {
                let runtime = runtime_in(module, &path, bundle);
                let source = module.best_source(&debug_files);
                survey.native.push(NativeFile { path, source, is_runtime: runtime.is_some() });
                survey.runtime = survey.runtime.take().or(runtime);
            }
            What::Image { is_composite } => {
                survey.images.count += 1;
                survey.images.composite += usize::from(is_composite);
            }
        }
    }

    /// The file in which the process's runtime writes what it compiles.
    fn jit_file(&self, process: &Process) -> Option<PathBuf> {
        const ENOUGH_BYTES: usize = 1 << 20;
        let mut names = JitNames::new(process, &self.proc, &self.event_budget, false);
        process.mapped_files().for_each(|path| names.add_mapped_file(Path::new(path)));
        names.poll(0, ENOUGH_BYTES);
        names.files().next().map(|(path, _)| path.to_owned())
    }
}

fn runtime_in(module: &NativeModule, path: &Arc<str>, carried: Option<(usize, usize)>) -> Option<Runtime> {
    let kind = runtime::kind_of(module.elf())?;
    let version = runtime::version_of(module.elf(), Path::new(&**path));
    Some(Runtime { kind, version, path: Arc::clone(path), carried })
}

/// `None` where there is no socket.
fn reach(process: diagnostics::RuntimeProcess) -> Option<Result<(), Reason>> {
    diagnostics::probe(process, Instant::now() + CONNECT_TIME)
}

/// The pages at the ends of a mapping may show other parts of the file.
fn middle(mapping: &Mapping) -> RuntimeAddress {
    RuntimeAddress(mapping.start.0.midpoint(mapping.end.0))
}
