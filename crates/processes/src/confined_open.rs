//! Opens paths that are confined to a directory, while other processes rename files.

use std::{io, iter, os::fd::BorrowedFd, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// Beside one process that renames files without pause, one attempt in thirty fails.
const MAX_ATTEMPTS: usize = 64;

/// Opens a path below a directory as `resolve` confines it.
///
/// `openat2` fails with EAGAIN when it resolves `..` while a file is renamed anywhere on the machine (openat2(2)). Any user
/// can cause that, so it is tried again.
///
/// # Errors
/// Those of `openat2`.
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<OwnedFd> {
    let attempt = || openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    let is_final = |result: &rustix::io::Result<_>| !matches!(result, Err(Errno::AGAIN | Errno::INTR));
    let opened = iter::repeat_with(attempt).take(MAX_ATTEMPTS).find(is_final);
    Ok(opened.unwrap_or(Err(Errno::AGAIN))?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::fd::AsFd,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn a_path_is_opened_while_files_are_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("below")).unwrap();
        fs::write(path("file"), "x").unwrap();
        fs::write(path("old"), "x").unwrap();
        let opened = fs::File::open(directory.path()).unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs::rename(path("old"), path("new")).unwrap();
                    fs::rename(path("new"), path("old")).unwrap();
                }
            });
            let open =
                |_| open(opened.as_fd(), Path::new("below/../file"), OFlags::PATH, ResolveFlags::IN_ROOT);
            let failed = (0..20_000).map(open).filter(Result::is_err).count();
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
    }
}
