//! Replays a capture whose directory is made from the sections of an input.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
    path::Path,
};

use profiler::{Profile, Profiler};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::{scratch_directory, sections};

/// The files of a capture, by the letter that is the tag of their section: `a` is the first one.
const FILES: [&str; 21] = [
    "events.jsonl",
    "proc/7/maps",
    "proc/7/status",
    "proc/7/stat",
    "proc/7/comm",
    "proc/7/cgroup",
    "proc/7/environ",
    "proc/7/map_files/401000-402000",
    "proc/7/root/app",
    "proc/7/root/app.debug",
    "proc/7/root/seed.dwo",
    "proc/7/root/tmp/perf-7.map",
    "proc/7/root/tmp/jit-7.dump",
    "proc/7/runtime-methods.jsonl",
    "proc/8/maps",
    "proc/8/status",
    "proc/8/stat",
    "proc/8/environ",
    "proc/kallsyms",
    "proc/vdso",
    "proc/7/runtime-memory",
];

const DIRECTORIES: [&str; 4] = ["proc/7/map_files", "proc/7/root/tmp", "proc/7/task/8", "proc/8"];

/// What a section becomes: that of a lower-case letter a file, that of an upper-case letter a symbolic link to the path
/// in the section, and that of another sign a pipe.
#[derive(Clone, Copy)]
enum Kind {
    File,
    Link,
    Pipe,
}

/// Replays a capture. The profile of it can be recorded and read.
pub fn replay(bytes: &[u8]) {
    let directory = scratch_directory();
    write_capture(directory.path(), bytes);
    let options =
        Profiler::builder().inlines(true).lines(true).symbol_cache(directory.path().join("no-cache"));
    let Ok(profile) = profiler::fuzz::replay(options, directory.path()) else { return };
    let mut recording = Vec::new();
    profile.write_recording(&mut recording).expect("writing to memory");
    let read = Profile::read(&*recording).expect("the recording of a profile");
    assert_eq!(format!("{read:?}"), format!("{profile:?}"));
}

/// Writes the first section of each name. No link is on the path of another file, so nothing is written elsewhere.
fn write_capture(directory: &Path, bytes: &[u8]) {
    for name in DIRECTORIES {
        fs::create_dir_all(directory.join(name)).expect("a directory of the capture");
    }
    let mut written = [false; FILES.len()];
    for (tag, content) in sections(bytes) {
        let index = usize::from(tag & 0x1f).wrapping_sub(1) % FILES.len();
        if std::mem::replace(&mut written[index], true) {
            continue;
        }
        write(&directory.join(FILES[index]), kind(tag), content);
    }
}

fn kind(tag: u8) -> Kind {
    match tag >> 5 {
        1 => Kind::Pipe,
        2 => Kind::Link,
        _ => Kind::File,
    }
}

fn write(path: &Path, kind: Kind, content: &[u8]) {
    match kind {
        Kind::File => {
            let file = File::create_new(path).and_then(|mut file| file.write_all(content));
            file.expect("a file of the capture");
        }
        // The bytes need not be a path.
        Kind::Link => drop(symlink(std::ffi::OsStr::from_bytes(content), path)),
        Kind::Pipe => mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("a pipe of the capture"),
    }
}
