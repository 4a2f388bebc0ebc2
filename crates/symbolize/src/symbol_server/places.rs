//! The directories in which clients of symbol servers keep what they downloaded: ours and others'.

use std::{ffi::OsString, path::PathBuf};

/// Where downloaded debug files may be.
#[derive(Debug, PartialEq, Eq)]
pub struct CacheDirectories {
    /// Ours; none where the user has no home.
    pub own: Option<PathBuf>,
    /// Those of debuginfod's own client and of .NET's tools.
    pub others: Vec<PathBuf>,
}

impl CacheDirectories {
    /// The directories of whoever has these environment variables; `own` is the one the user gave.
    pub fn of(own: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let directory = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = directory("HOME");
        let caches = directory("XDG_CACHE_HOME").or_else(|| home.as_ref().map(|home| home.join(".cache")));
        let in_caches = |name| caches.as_ref().map(|caches| caches.join(name));
        let of_debuginfod = directory("DEBUGINFOD_CACHE_PATH").or_else(|| in_caches("debuginfod_client"));
        let of_dotnet = home.as_ref().map(|home| home.join(".dotnet/symbolcache"));
        Self {
            own: own.or_else(|| in_caches("profiler")),
            others: [of_debuginfod, of_dotnet].into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(own: Option<&str>, variables: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        let found = CacheDirectories::of(own.map(PathBuf::from), |wanted| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.into())
        });
        (found.own.map(text), found.others.into_iter().map(text).collect())
    }

    #[test]
    fn caches_are_where_their_owners_put_them() {
        let home = ("HOME", "/u/me");
        let (own, others) = of(None, &[home]);
        assert_eq!(own.as_deref(), Some("/u/me/.cache/profiler"));
        assert_eq!(others, ["/u/me/.cache/debuginfod_client", "/u/me/.dotnet/symbolcache"]);
        let (own, others) = of(None, &[home, ("XDG_CACHE_HOME", "/c"), ("DEBUGINFOD_CACHE_PATH", "/d")]);
        assert_eq!(own.as_deref(), Some("/c/profiler"));
        assert_eq!(others, ["/d", "/u/me/.dotnet/symbolcache"]);
    }

    #[test]
    fn what_the_user_gave_goes_first_and_without_a_home_there_is_nothing_else() {
        assert_eq!(of(Some("/given"), &[]), (Some("/given".to_owned()), vec![]));
        assert_eq!(of(None, &[("HOME", ""), ("XDG_CACHE_HOME", "relative")]), (None, vec![]));
    }
}
