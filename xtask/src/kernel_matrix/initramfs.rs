//! The machines' file system: the profiler, what it profiles, and what a shell script needs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::folder;
use crate::{project, shell, workloads};

const WORKLOADS: [&str; 7] = [
    "shares-static",
    "chain-frameless",
    "unwinding/libraries-musl",
    "syscalls",
    "waits",
    "shortlived",
    "forkstorm",
];

/// Where the kernel and the script mount things.
const MOUNT_POINTS: [&str; 4] = ["proc", "sys", "dev", "tmp"];

/// Makes it anew, and returns its path.
pub(super) fn build(profiler: &Path) -> Result<PathBuf> {
    let root = folder().join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for name in MOUNT_POINTS {
        fs::create_dir_all(root.join(name))?;
    }
    let programs =
        ["busybox", "setpriv"].map(|name| shell::find(name).with_context(|| format!("no {name} here")));
    let workloads = WORKLOADS.map(|name| Ok(workloads::output_folder().join(name)));
    for program in programs.into_iter().chain(workloads).chain([Ok(profiler.to_owned())]) {
        add_program(&root, &program?)?;
    }
    for (name, script) in [("init", include_str!("init.sh")), ("many-cpus", include_str!("many_cpus.sh"))] {
        let init = root.join(name);
        fs::write(&init, script)?;
        project::make_executable(&init)?;
    }
    pack(&root)
}

/// Copies a program to `/bin`, and its libraries to where it looks for them.
fn add_program(root: &Path, program: &Path) -> Result<()> {
    let name = program.file_name().context("a program has a name")?;
    add_file(program, &root.join("bin").join(name))?;
    for library in libraries(program)? {
        let place = library.strip_prefix("/")?;
        add_file(&library, &root.join(place))?;
    }
    Ok(())
}

fn add_file(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    fs::copy(from, to)?;
    Ok(())
}

/// The paths of the libraries that a program is linked with. A static one has none.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("failed to start ldd")?;
    Ok(paths(&String::from_utf8_lossy(&output.stdout)))
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f...)`, or the path alone.
fn paths(ldd: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    ldd.lines().filter(|line| line.contains("(0x")).filter_map(path).collect()
}

fn pack(root: &Path) -> Result<PathBuf> {
    let archive = folder().join("initramfs.cpio");
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"find . | busybox cpio -o -H newc >"$0""#]).arg(&archive).current_dir(root);
    shell::run_quietly(&mut shell)
        .with_context(|| format!("failed to pack {}", project::relative(root).display()))?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_paths_that_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007fe275be9000)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007fe2759da000)\n\t/lib64/ld.so (0x00007fe275beb000)\n";
        assert_eq!(paths(text), ["/lib/libc.so.6", "/lib64/ld.so"].map(PathBuf::from));
        assert!(paths("\tnot a dynamic executable\n").is_empty());
    }
}
