//! Where a runtime writes its perf map and its jitdump.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Longest path that the kernel opens.
const MAX_PATH_BYTES: usize = 4096;

/// Variables that name a directory, the most specific first: .NET's own, with the prefix of new and of old
/// versions, and the one that all programs share.
const VARIABLES: [&[u8]; 3] = [b"DOTNET_PerfMapJitDumpPath=", b"COMPlus_PerfMapJitDumpPath=", TMPDIR];

const TMPDIR: &[u8] = b"TMPDIR=";

/// The directories, in the target's own root, in which its files may be; `environ` is `/proc/PID/environ`.
pub(super) fn directories(environ: &[u8]) -> Vec<PathBuf> {
    named_directories(environ, &VARIABLES)
}

/// What a .NET runtime writes when it is asked for a perf map, by the id that the process has in its innermost pid
/// namespace: the map, and up to .NET 8 a list of its images, in one of these directories.
pub(crate) fn perf_maps(environ: &[u8], namespace_pid: u32) -> Vec<PathBuf> {
    let names = ["perf", "perfinfo"].map(|kind| format!("{kind}-{namespace_pid}.map"));
    let directories = directories(environ);
    names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name))).collect()
}

/// The directories, in the target's own root, in which its temporary files may be.
pub(crate) fn temporary_directories(environ: &[u8]) -> Vec<PathBuf> {
    named_directories(environ, &[TMPDIR])
}

fn named_directories(environ: &[u8], variables: &[&[u8]]) -> Vec<PathBuf> {
    let named = variables.iter().filter_map(|variable| {
        environ.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(*variable))
    });
    let mut directories = Vec::new();
    for directory in named.chain([&b"/tmp"[..]]) {
        let directory = Path::new(OsStr::from_bytes(directory));
        let known = directories.iter().any(|known| known == directory);
        if directory.is_absolute() && directory.as_os_str().len() <= MAX_PATH_BYTES && !known {
            directories.push(directory.to_owned());
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_directory_comes_first() {
        let environ =
            b"PATH=/bin\0TMPDIR=/var/tmp/\0COMPlus_PerfMapJitDumpPath=/old\0DOTNET_PerfMapJitDumpPath=/new\0";
        assert_eq!(directories(environ), ["/new", "/old", "/var/tmp", "/tmp"].map(PathBuf::from));
        assert_eq!(directories(b""), [PathBuf::from("/tmp")]);
    }

    #[test]
    fn a_directory_named_twice_is_looked_at_once() {
        assert_eq!(directories(b"TMPDIR=/tmp/\0TMPDIR=/second"), [PathBuf::from("/tmp")]);
    }

    #[test]
    fn what_is_no_absolute_path_is_passed_over() {
        let long = [&b"TMPDIR=/"[..], &[b'x'; 5000]].concat();
        for environ in [&b"TMPDIR="[..], b"TMPDIR=relative", b"XTMPDIR=/x", b"TMPDIR", &long] {
            assert_eq!(directories(environ), [PathBuf::from("/tmp")]);
        }
        assert_eq!(directories(b"TMPDIR=/\xff\xfe")[0].as_os_str().as_bytes(), b"/\xff\xfe");
    }
}
