//! The directories and servers that are searched for debug files.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_processes::root_directory::RootDirectory;
use profiler_symbolize::{
    debug_file::DebugDirectories,
    symbol_server::{Cache, CacheDirectories, SymbolServers, transport},
};

use crate::{
    error::{Error, ErrorKind, Operation, Result},
    settings::NameSettings,
};

/// The directories that are searched for debug files, besides the root directory of the target.
pub(crate) fn debug_file_directories(settings: &NameSettings) -> Result<Arc<DebugDirectories>> {
    let open = |path: &Path| {
        RootDirectory::open(path).map(Arc::new).map_err(|error| {
            let message = format!("failed to open the directory `{}`", path.display());
            Error::from_io(Operation::OpenFile, message, error)
        })
    };
    let given = settings.debug_directories.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let host = open(Path::new("/"))?;
    let CacheDirectories { own, others } =
        CacheDirectories::from_environment(settings.symbol_cache.clone(), |name| std::env::var_os(name));
    let servers = symbol_servers(settings, own.as_deref())?.map(Arc::new);
    // A user who can write to the profiler's cache could name the functions of all targets.
    let is_refused = |own: &PathBuf| {
        let refused = Cache::check(own).err().filter(|error| error.kind() != io::ErrorKind::NotFound);
        refused
            .inspect(|error| log::warn!("the symbol cache `{}` is not used: {error}", own.display()))
            .is_some()
    };
    let own = own.filter(|own| !is_refused(own));
    // Most of these directories do not exist.
    let caches = own.iter().chain(&others).filter_map(|path| open(path).ok()).collect();
    Ok(Arc::new(DebugDirectories { configured: given, host, caches, servers }))
}

fn symbol_servers(settings: &NameSettings, cache: Option<&Path>) -> Result<Option<SymbolServers>> {
    // A transport reads certificates.
    if settings.symbol_servers.is_empty() {
        return Ok(None);
    }
    let Some(transport) = transport() else { return Ok(None) };
    let Some(directory) = cache else {
        let message = "there is no directory for files of symbol servers: name one, or set HOME";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let cache = Cache::create(directory).map_err(|error| {
        let message = format!("failed to create the symbol cache `{}`", directory.display());
        Error::with_source(ErrorKind::Io, message, error)
    })?;
    let servers = SymbolServers::start(settings.symbol_servers.clone(), transport, cache);
    let failed = |error| Error::with_source(ErrorKind::Io, "failed to start a thread", error);
    servers.map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_directory_that_does_not_exist_is_a_missing_file() {
        let debug_directories = vec!["/typo".into()];
        let settings = NameSettings { debug_directories, ..NameSettings::default() };
        let error = debug_file_directories(&settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        assert!(error.to_string().contains("/typo"), "{error}");
    }
}
