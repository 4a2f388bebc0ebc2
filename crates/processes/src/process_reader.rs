//! Reads a process from `/proc`.

use std::sync::Arc;

use profiler_addresses::MonotonicTime;

use crate::clock::monotonic_time;

use crate::{
    AddressSpace, Identity, LookupError, Pid, ProcFs, Process, Status, capture::jit_directory_variables,
    cgroup, jit_directories, kubernetes::ContainerNames, maps, program::program_name,
    root_directory::RootDirectories, status,
};
#[cfg(feature = "pods")]
use crate::{kubernetes::KnownNames, process_context::published_service_name, service_name::service_name_of};

/// What `/proc` showed of a process.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) pid: Pid,
    /// When the reading began.
    pub(crate) began: MonotonicTime,
    pub(crate) ended: MonotonicTime,
    /// [`LookupError::ProcessGone`] only when the process did not exist any more.
    pub(crate) identity: Result<Identity, LookupError>,
    pub(crate) comm: Option<String>,
    pub(crate) space: Result<AddressSpace, LookupError>,
}

/// Reads processes. Those with the same root directory share one descriptor of it.
#[derive(Debug)]
pub(crate) struct ProcessReader {
    proc: Arc<ProcFs>,
    roots: RootDirectories,
    /// `None` for a capture, which has no files of a container runtime.
    #[cfg(feature = "pods")]
    names: Option<KnownNames>,
    now: fn() -> MonotonicTime,
}

impl ProcessReader {
    pub(crate) fn new(proc: Arc<ProcFs>) -> Self {
        // A capture has what was read when it was taken, before the later sideband events.
        let now = if proc.is_live() { monotonic_time } else { || MonotonicTime::ZERO };
        Self {
            #[cfg(feature = "pods")]
            names: proc.is_live().then(|| KnownNames::of_node(&proc)),
            proc,
            roots: RootDirectories::default(),
            now,
        }
    }

    /// A reader with another clock.
    #[cfg(test)]
    pub(crate) fn with_clock(proc: Arc<ProcFs>, now: fn() -> MonotonicTime) -> Self {
        Self { now, ..Self::new(proc) }
    }

    /// Where processes are read.
    pub(crate) fn proc(&self) -> &ProcFs {
        &self.proc
    }

    /// The time now.
    pub(crate) fn now(&self) -> MonotonicTime {
        (self.now)()
    }

    /// Reads a process.
    pub(crate) fn read(&mut self, pid: Pid) -> Reading {
        let began = self.now();
        let comm = self.comm(pid);
        let identity = self.identity(pid, comm.as_deref().unwrap_or_default());
        let space = self.address_space(pid);
        Reading { pid, began, ended: self.now(), identity, comm, space }
    }

    /// The service name that a running process publishes in its memory. A capture has no memory.
    #[cfg(feature = "pods")]
    pub(crate) fn published_service_name(&self, process: &Process) -> Option<String> {
        let is_kernel = process.identity.as_ref().is_none_or(|identity| identity.status.kernel_thread);
        if is_kernel || process.has_ended() || self.proc.has_capture() {
            return None;
        }
        let maps = self.proc.read(process.pid, "maps").ok()?;
        published_service_name(&maps, |address, bytes| self.proc.read_memory(process, address, bytes))
    }

    #[cfg(not(feature = "pods"))]
    pub(crate) fn published_service_name(&self, _process: &Process) -> Option<String> {
        None
    }

    fn identity(&mut self, pid: Pid, comm: &str) -> Result<Identity, LookupError> {
        let start_ticks = self.start_ticks(pid)?;
        let environment = self.proc.read(pid, "environ").unwrap_or_default();
        let cgroup = self.proc.read(pid, "cgroup").unwrap_or_default();
        let container = cgroup::container_id_of(&cgroup);
        let executable = self.proc.executable(pid).ok();
        let command_line = || self.proc.read(pid, "cmdline").unwrap_or_default();
        Ok(Identity {
            status: self.status(pid)?,
            start_ticks,
            started_unix_ns: status::ticks_to_unix_ns(start_ticks),
            program: program_name(executable.as_deref(), comm, command_line),
            executable,
            environment: read_jit_directories(&self.proc, pid, &environment),
            #[cfg(feature = "pods")]
            service_name: service_name_of(&environment),
            #[cfg(not(feature = "pods"))]
            service_name: None,
            unit: cgroup::service_of(&cgroup),
            kubernetes: container.as_deref().and_then(|id| self.kubernetes_names(id)),
            container,
            root: self.proc.root(pid).ok().map(|root| self.roots.share(root)),
        })
    }

    #[cfg(feature = "pods")]
    fn kubernetes_names(&mut self, container: &str) -> Option<Arc<ContainerNames>> {
        self.names.as_mut()?.get(container)
    }

    #[cfg(not(feature = "pods"))]
    fn kubernetes_names(&mut self, _container: &str) -> Option<Arc<ContainerNames>> {
        None
    }

    fn status(&self, pid: Pid) -> Result<Status, LookupError> {
        read_status(&self.proc, pid)
    }

    /// The start time, clock ticks since boot.
    fn start_ticks(&self, pid: Pid) -> Result<u64, LookupError> {
        read_start_ticks(&self.proc, pid)
    }

    fn comm(&self, pid: Pid) -> Option<String> {
        let bytes = self.proc.read(pid, "comm").ok()?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }

    /// The executable mappings.
    fn address_space(&self, pid: Pid) -> Result<AddressSpace, LookupError> {
        let text = self.proc.read(pid, "maps").map_err(|error| LookupError::from_io(&error))?;
        // A process that only waits to be collected by its parent has no mappings any more.
        if text.is_empty() && self.status(pid)?.zombie {
            return Err(LookupError::ProcessGone);
        }
        Ok(AddressSpace::from_snapshot(maps::parse_executable(&text)))
    }
}

/// The attributes of a process by which its files about JIT code are found. It is in no table.
pub(crate) fn read_identity(proc: &ProcFs, pid: Pid) -> Option<Identity> {
    let start_ticks = read_start_ticks(proc, pid).ok()?;
    let environment = proc.read(pid, "environ").unwrap_or_default();
    Some(Identity {
        status: read_status(proc, pid).ok()?,
        start_ticks,
        started_unix_ns: status::ticks_to_unix_ns(start_ticks),
        executable: proc.executable(pid).ok(),
        program: None,
        environment: read_jit_directories(proc, pid, &environment),
        service_name: None,
        unit: None,
        container: cgroup::container_id_of(&proc.read(pid, "cgroup").unwrap_or_default()),
        kubernetes: None,
        root: proc.root(pid).ok().map(Arc::new),
    })
}

/// The variables with the directories of JIT files. A relative one is below the working directory.
fn read_jit_directories(proc: &ProcFs, pid: Pid, environment: &[u8]) -> Vec<u8> {
    let variables = jit_directory_variables(environment);
    if jit_directories::are_absolute(&variables) {
        return variables;
    }
    match proc.working_directory(pid) {
        Ok(directory) => jit_directories::made_absolute(&variables, &directory),
        Err(_) => variables,
    }
}

fn read_status(proc: &ProcFs, pid: Pid) -> Result<Status, LookupError> {
    Status::parse(&read_text(proc, pid, "status")?).ok_or(LookupError::NotReadable)
}

fn read_start_ticks(proc: &ProcFs, pid: Pid) -> Result<u64, LookupError> {
    status::parse_start_ticks(&read_text(proc, pid, "stat")?).ok_or(LookupError::NotReadable)
}

fn read_text(proc: &ProcFs, pid: Pid, entry: &str) -> Result<String, LookupError> {
    let bytes = proc.read(pid, entry).map_err(|error| LookupError::from_io(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_with_one_root_directory_share_a_descriptor() {
        let mut reader = ProcessReader::new(Arc::new(ProcFs::live()));
        let mut child =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let own = reader.identity(Pid::own(), "").unwrap().root.unwrap();
        let other = reader.identity(Pid(child.id()), "").unwrap().root.unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(Arc::ptr_eq(&own, &other));
    }

    #[test]
    fn a_capture_keeps_what_was_read_before_the_process_ended() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let directory = tempfile::tempdir().unwrap();
        let recorded = ProcFs::with_capture(std::fs::File::open(directory.path()).unwrap().into());
        let mut reader = ProcessReader::new(Arc::new(recorded));
        let mut child =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(reader.read(Pid(child.id())).space.is_ok());
        drop(child.stdin.take());
        let pid = Pid::from_child(&child);
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert_eq!(reader.read(Pid(child.id())).space.unwrap_err(), LookupError::ProcessGone, "a zombie");
        child.wait().unwrap();

        let mut replay = ProcessReader::new(Arc::new(ProcFs::from_capture(directory.path().to_owned())));
        let reading = replay.read(Pid(child.id()));
        assert!(reading.identity.is_ok() && reading.space.is_ok(), "{reading:?}");
    }

    #[test]
    fn a_process_that_cannot_be_read_has_not_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = ProcessReader::new(Arc::new(ProcFs::from_capture(directory.path().to_owned())));
        let mut identity_error = || reader.identity(Pid(7), "").map(|_| ()).unwrap_err();
        assert_eq!(identity_error(), LookupError::ProcessGone);
        // Captures have regular files only.
        std::fs::create_dir_all(directory.path().join("7/stat")).unwrap();
        assert_eq!(identity_error(), LookupError::NotReadable);
    }
}
