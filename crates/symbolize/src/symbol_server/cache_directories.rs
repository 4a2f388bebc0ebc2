//! The cache directories of this profiler and of other clients of symbol servers.

use std::{ffi::OsString, path::PathBuf};

/// Directories with downloaded debug files.
#[derive(Debug, PartialEq, Eq)]
pub struct CacheDirectories {
    /// The profiler's own directory; `None` when the user has no home directory.
    pub own: Option<PathBuf>,
    /// The directories of the debuginfod client and of .NET diagnostics tools.
    pub others: Vec<PathBuf>,
}

impl CacheDirectories {
    /// The directories of a user with these environment variables. `own` replaces the default of the own directory.
    pub fn from_environment(own: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = directory("HOME");
        let caches = directory("XDG_CACHE_HOME").or_else(|| home.as_ref().map(|home| home.join(".cache")));
        let in_caches = |name| caches.as_ref().map(|caches| caches.join(name));
        let debuginfod = directory("DEBUGINFOD_CACHE_PATH").or_else(|| in_caches("debuginfod_client"));
        let dotnet = home.as_ref().map(|home| home.join(".dotnet/symbolcache"));
        Self {
            own: own.or_else(|| in_caches("profiler")),
            others: [debuginfod, dotnet].into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(own: Option<&str>, variables: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        let found = CacheDirectories::from_environment(own.map(PathBuf::from), |wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.into())
        });
        (found.own.map(text), found.others.into_iter().map(text).collect())
    }

    #[test]
    fn the_default_directories_are_those_of_each_client() {
        let home = ("HOME", "/u/me");
        let (own, others) = directories(None, &[home]);
        assert_eq!(own.as_deref(), Some("/u/me/.cache/profiler"));
        assert_eq!(others, ["/u/me/.cache/debuginfod_client", "/u/me/.dotnet/symbolcache"]);
        let (own, others) =
            directories(None, &[home, ("XDG_CACHE_HOME", "/c"), ("DEBUGINFOD_CACHE_PATH", "/d")]);
        assert_eq!(own.as_deref(), Some("/c/profiler"));
        assert_eq!(others, ["/d", "/u/me/.dotnet/symbolcache"]);
    }

    #[test]
    fn a_given_directory_replaces_the_default_and_without_a_home_there_is_no_other() {
        assert_eq!(directories(Some("/given"), &[]), (Some("/given".to_owned()), vec![]));
        assert_eq!(directories(None, &[("HOME", ""), ("XDG_CACHE_HOME", "relative")]), (None, vec![]));
    }
}
