//! Derives the directories of perf maps, jitdumps and temporary files from the environment of a process.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::JIT_DIRECTORY_VARIABLES;

/// Length of the longest path that the kernel opens (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// The directories of perf maps and jitdumps in the target's root. `environ` is `/proc/PID/environ`.
pub fn jit_file_directories(environ: &[u8]) -> Vec<PathBuf> {
    named_directories(environ, &JIT_DIRECTORY_VARIABLES)
}

/// The directories of temporary files in the target's root.
pub fn temporary_directories(environ: &[u8]) -> Vec<PathBuf> {
    let [.., of_all_programs] = JIT_DIRECTORY_VARIABLES;
    named_directories(environ, &[of_all_programs])
}

fn named_directories(environ: &[u8], variables: &[&str]) -> Vec<PathBuf> {
    let named = variables.iter().filter_map(|variable| {
        environ.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(variable.as_bytes()))
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

/// Checks that the variables that are kept of an environment lead to the same paths.
#[cfg(fuzzing)]
pub fn check_kept(environ: &[u8], kept: &[u8]) {
    let directories = jit_file_directories(environ);
    assert!(directories.len() <= JIT_DIRECTORY_VARIABLES.len() + 1);
    assert!(directories.iter().all(|directory| directory.is_absolute()));
    assert_eq!(jit_file_directories(kept), directories);
    assert_eq!(temporary_directories(kept), temporary_directories(environ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_directory_comes_first() {
        let environ =
            b"PATH=/bin\0TMPDIR=/var/tmp/\0COMPlus_PerfMapJitDumpPath=/old\0DOTNET_PerfMapJitDumpPath=/new\0";
        assert_eq!(jit_file_directories(environ), ["/new", "/old", "/var/tmp", "/tmp"].map(PathBuf::from));
        assert_eq!(jit_file_directories(b""), [PathBuf::from("/tmp")]);
    }

    #[test]
    fn a_directory_in_two_variables_is_listed_once() {
        assert_eq!(jit_file_directories(b"TMPDIR=/tmp/\0TMPDIR=/second"), [PathBuf::from("/tmp")]);
    }

    #[test]
    fn paths_that_are_not_absolute_are_ignored() {
        let long = [&b"TMPDIR=/"[..], &[b'x'; 5000]].concat();
        for environ in [&b"TMPDIR="[..], b"TMPDIR=relative", b"XTMPDIR=/x", b"TMPDIR", &long] {
            assert_eq!(jit_file_directories(environ), [PathBuf::from("/tmp")]);
        }
        assert_eq!(jit_file_directories(b"TMPDIR=/\xff\xfe")[0].as_os_str().as_bytes(), b"/\xff\xfe");
    }
}
