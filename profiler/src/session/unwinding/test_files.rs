//! The files of this machine, for tests.

use std::{path::Path, sync::Arc};

use profiler_processes::{MappedFiles, ProcFs, root_directory::RootDirectory};
use profiler_symbolize::debug_file::DebugDirectories;

pub(super) fn debug_directories() -> Arc<DebugDirectories> {
    Arc::new(DebugDirectories::with_host(RootDirectory::open(Path::new("/")).unwrap()))
}

pub(super) fn mapped_files() -> Arc<MappedFiles> {
    let host = Arc::new(RootDirectory::open(Path::new("/")).unwrap());
    Arc::new(MappedFiles::new(Arc::new(ProcFs::live()), host))
}
