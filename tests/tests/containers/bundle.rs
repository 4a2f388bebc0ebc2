//! Creates and removes an OCI bundle: root folder, config.json, state of runc and cgroups.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use profiler_tests::wait_until;
use serde_json::Value;
use tempfile::TempDir;

/// Commands that the scripts of the containers use.
const APPLETS: [&str; 8] = ["cat", "chmod", "dirname", "ln", "mkfifo", "readlink", "sh", "unshare"];

/// The container's name in a state folder of its own.
const NAME: &str = "container";

/// An OCI bundle with its state and cgroups. Dropping it removes all of them.
#[derive(Debug)]
pub(crate) struct Bundle {
    folder: TempDir,
    /// The parent of all cgroups of the container, in each hierarchy.
    cgroups: String,
}

impl Bundle {
    /// Creates a bundle. `config` returns config.json for the parent cgroup that it gets.
    pub(crate) fn new(programs: &[PathBuf], owner: Option<u32>, config: impl FnOnce(&str) -> Value) -> Self {
        Self::with_root(|root| make_root(root, programs, owner), config)
    }

    /// Creates a bundle whose root folder `make_root` creates.
    pub(crate) fn with_root(make_root: impl FnOnce(&Path), config: impl FnOnce(&str) -> Value) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroups = format!("/profiler-tests-{}-{number}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        // The first user of a user namespace needs access to the root folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("config.json"), config(&cgroups).to_string()).unwrap();
        make_root(&folder.path().join("root"));
        Self { folder, cgroups }
    }

    /// The command that runs the container in the foreground.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.runc();
        command.args(["run", "--bundle"]).arg(self.folder.path());
        command.arg("--pid-file").arg(self.pid_file()).arg(NAME);
        command
    }

    /// The command that executes another program in the running container.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Command {
        let mut command = self.runc();
        command.args(["exec", NAME]).args(arguments);
        command
    }

    /// Waits for the host's pid of the first process. The runtime writes it once that process runs.
    pub(crate) fn pid(&self) -> u32 {
        wait_until("the pid file", || fs::read_to_string(self.pid_file()).ok()?.parse().ok())
    }

    /// The parent of all cgroups of the container.
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
        // Fails in the common case that the container is already removed.
        let _ = self.runc().args(["delete", "--force", NAME]).stderr(Stdio::null()).status();
        remove_cgroups(&self.cgroups);
    }
}

/// Removes a cgroup and all cgroups below it from each hierarchy.
pub(crate) fn remove_cgroups(path: &str) {
    for hierarchy in hierarchies() {
        let directory = hierarchy.mount_point.join(path.trim_start_matches('/'));
        // A cgroup is busy until the kernel has released the processes that have exited.
        wait_until("the cgroups to be empty", || remove_cgroup(&directory).ok());
    }
}

/// Fills a root folder with busybox and programs.
pub(crate) fn make_root(root: &Path, programs: &[PathBuf], owner: Option<u32>) {
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
    /// The mount options, which name the controllers of a version 1 hierarchy. `None` for version 2.
    controllers: Option<String>,
}

impl Hierarchy {
    /// Whether a BPF program can compare cgroups of the hierarchy: version 2, or the controllers `cpu` and `memory`
    /// of version 1.
    pub(crate) fn can_be_filtered_by(&self) -> bool {
        let has = |options: &String| options.split(',').any(|option| ["cpu", "memory"].contains(&option));
        self.controllers.as_ref().is_none_or(has)
    }
}

/// All mounted cgroup hierarchies of version 1 and 2.
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

/// Removes a cgroup and all cgroups below it.
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
