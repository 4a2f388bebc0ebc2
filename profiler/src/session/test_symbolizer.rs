//! A symbolizer for tests, with the debug files of this machine.

use std::{path::Path, sync::Arc};

use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{ProcFs, root_directory::RootDirectory};
use profiler_symbolize::{NativeOptions, Symbolizer, debug_file::DebugDirectories};

use crate::kernel_names;

pub(super) fn symbolizer(proc: Arc<ProcFs>) -> Symbolizer {
    let host = RootDirectory::open(Path::new("/")).unwrap();
    let directories = Arc::new(DebugDirectories::with_host(host));
    let options = NativeOptions::default();
    Symbolizer::new(proc, directories, options, NameStyle::default(), kernel_names::load)
}
