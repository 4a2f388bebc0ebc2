//! The folder of a container, the runtime's state of it and its cgroups. All of it goes when this is dropped.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use profiler_tests::until;
use serde_json::Value;
use tempfile::TempDir;

/// What the containers' scripts use.
const APPLETS: [&str; 8] = ["cat", "chmod", "dirname", "ln", "mkfifo", "readlink", "sh", "unshare"];

/// The runtime's name for the container, in a state folder that no other container shares.
const NAME: &str = "container";

/// What an OCI runtime is given.
#[derive(Debug)]
pub(crate) struct Bundle {
    folder: TempDir,
    /// The cgroup above all of the container's, in each hierarchy.
    cgroups: String,
}

impl Bundle {
    /// Makes it. `config` gives config.json for the cgroup below which the container has to stay.
    pub(crate) fn new(programs: &[PathBuf], owner: Option<u32>, config: impl FnOnce(&str) -> Value) -> Self {
        Self::with_root(|root| make_root(root, programs, owner), config)
    }

    /// Makes a bundle whose root folder `make_root` creates.
    pub(crate) fn with_root(make_root: impl FnOnce(&Path), config: impl FnOnce(&str) -> Value) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroups = format!("/profiler-tests-{}-{number}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        // The first user of a user namespace has to reach its root.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("config.json"), config(&cgroups).to_string()).unwrap();
        make_root(&folder.path().join("root"));
        Self { folder, cgroups }
    }

    /// What runs the container in the foreground.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.runc();
        command.args(["run", "--bundle"]).arg(self.folder.path());
        command.arg("--pid-file").arg(self.pid_file()).arg(NAME);
        command
    }

    /// Runs another program in the running container.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Command {
        let mut command = self.runc();
        command.args(["exec", NAME]).args(arguments);
        command
    }

    /// Waits for the host's id of its first process. The runtime tells it when that runs already.
    pub(crate) fn pid(&self) -> u32 {
        until("the pid file", || fs::read_to_string(self.pid_file()).ok()?.parse().ok())
    }

    /// The cgroup above all of the container's.
    pub(crate) fn cgroups(&self) -> &str {
        &self.cgroups
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.path().join("pid")
    }

    fn runc(&self) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(self.folder.path().join("state"));
        runc
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // Mostly it is gone already, and this says so.
        let _ = self.runc().args(["delete", "--force", NAME]).stderr(Stdio::null()).status();
        for hierarchy in hierarchies() {
            let directory = hierarchy.mount_point.join(self.cgroups.trim_start_matches('/'));
            // The kernel takes a moment to forget processes that have ended.
            until("the cgroups to be empty", || remove_cgroup(&directory).ok());
        }
    }
}

fn make_root(root: &Path, programs: &[PathBuf], owner: Option<u32>) {
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let bin = root.join("bin");
    fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    for applet in APPLETS {
        symlink("busybox", bin.join(applet)).unwrap();
    }
    for program in programs {
        fs::copy(program, bin.join(program.file_name().unwrap())).unwrap();
    }
    if owner.is_some() {
        chown(root, owner, owner).unwrap();
    }
}

/// A mounted cgroup hierarchy.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    pub(crate) mount_point: PathBuf,
    /// The mount options, which name the controllers of a hierarchy of version 1. `None`: version 2.
    controllers: Option<String>,
}

impl Hierarchy {
    /// Whether it is of version 2, or one of the two of version 1 whose cgroups a BPF program can compare.
    pub(crate) fn can_be_filtered_by(&self) -> bool {
        let has = |options: &String| options.split(',').any(|option| ["cpu", "memory"].contains(&option));
        self.controllers.as_ref().is_none_or(has)
    }
}

/// The mounted hierarchies: those of version 1, the one of version 2, or both.
pub(crate) fn hierarchies() -> Vec<Hierarchy> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let hierarchy = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let controllers = match fields[2] {
            "cgroup" => Some(fields[3].to_owned()),
            "cgroup2" => None,
            _ => return None,
        };
        Some(Hierarchy { mount_point: fields[1].into(), controllers })
    };
    mounts.lines().filter_map(hierarchy).collect()
}

/// Removes a cgroup and those below it.
fn remove_cgroup(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}
