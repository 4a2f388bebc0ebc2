//! The symbolizer of a session.

use std::sync::Arc;

use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::ProcFs;
use profiler_symbolize::{NativeOptions, Symbolizer, debug_file::DebugDirectories};

use crate::{kernel_names, settings::Settings};

/// A symbolizer with these settings.
pub(crate) fn new_symbolizer(
    settings: &Settings,
    proc: Arc<ProcFs>,
    directories: Arc<DebugDirectories>,
) -> Symbolizer {
    let names = &settings.names;
    let options = NativeOptions { inlines: names.inlines, lines: names.lines, raw_names: names.raw };
    let style = NameStyle { raw: names.raw, tiers: settings.dotnet.tiers };
    let mut symbolizer = Symbolizer::new(proc, directories, options, style, kernel_names::load);
    symbolizer.set_runtime_requests(settings.dotnet.requests(settings.stacks.uses_unwinder()));
    symbolizer
}
