//! What to sample: from what the user named to what the kernel side filters by.

use std::{
    collections::HashSet,
    ffi::OsString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sampler::Filter,
    sys::command::GatedCommand,
};
use profiler_processes::{
    ProcFs, ProcessFilter, Status,
    cgroup::{self, Cgroup, Container, Extent, Version, find_container},
};

/// What to sample. Process and thread ids are those of the profiler's own pid namespace.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, with the threads it has and will have.
    Pid(u32),
    /// Several processes.
    Pids(Vec<u32>),
    /// One thread.
    Tid(u32),
    /// Several threads.
    Tids(Vec<u32>),
    /// Everything that runs on this machine, as far as the profiler's pid namespace sees it.
    Everything,
    /// The processes in a cgroup and below it: a directory of the cgroup file system, or a path as
    /// `/proc/PID/cgroup` shows it.
    Cgroup(PathBuf),
    /// The processes of a container, by a prefix of its id as it stands in the cgroup path.
    Container(String),
    /// A command to start, with its arguments. Its descendants are sampled too, unless
    /// [`Builder::children`](crate::Builder::children) turns that off.
    Command(Vec<OsString>),
}

/// A target that was found.
#[derive(Debug)]
pub(super) struct FoundTarget {
    pub(super) filter: Filter,
    pub(super) interest: ProcessFilter,
    pub(super) watched: Watched,
    /// Whether children of the processes are targets too.
    pub(super) children: bool,
    /// Processes whose mappings are read before the first sample.
    pub(super) expected: Vec<u32>,
    /// The target in words.
    pub(super) description: String,
    pub(super) command: Option<GatedCommand>,
}

/// Processes, threads and a cgroup whose end is the session's.
#[derive(Debug, Default)]
pub(super) struct Watched {
    processes: Vec<OwnedFd>,
    threads: Vec<u32>,
    cgroup: Option<PathBuf>,
}

impl Watched {
    /// Whether there was something to watch and all of it has ended.
    pub(super) fn have_all_ended(&self) -> bool {
        let proc = ProcFs::live();
        let is_nothing = self.processes.is_empty() && self.threads.is_empty() && self.cgroup.is_none();
        !is_nothing
            && self.processes.iter().all(has_ended)
            && self.threads.iter().all(|tid| !proc.exists(*tid))
            && self.cgroup.as_ref().is_none_or(|directory| !directory.exists())
    }

    /// Readable when a process has ended.
    pub(super) fn pidfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().filter(|pidfd| !has_ended(pidfd)).map(AsFd::as_fd)
    }

    /// A cgroup, and a thread that is not the first of its process, cannot be waited for: they have to be
    /// looked at.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        const LOOK: Duration = Duration::from_millis(100);
        (!self.threads.is_empty() || self.cgroup.is_some()).then_some(LOOK)
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Finds the target, and starts the command when it is one.
pub(super) fn find(target: &Target, proc: &ProcFs, children: bool, is_silent: bool) -> Result<FoundTarget> {
    match target {
        Target::Pid(pid) => processes(proc, &[*pid], children),
        Target::Pids(pids) => processes(proc, pids, children),
        Target::Tid(tid) => threads(proc, &[*tid]),
        Target::Tids(tids) => threads(proc, tids),
        Target::Everything => Ok(everybody(Filter::Everything, "everything".to_owned())),
        Target::Cgroup(path) => Ok(members(cgroup::resolve(path)?, format!("cgroup {}", path.display()))),
        Target::Container(id) => container(proc, id),
        Target::Command(words) => command(words, children, is_silent),
    }
}

fn everybody(filter: Filter, description: String) -> FoundTarget {
    FoundTarget {
        filter,
        interest: ProcessFilter::All,
        watched: Watched::default(),
        children: false,
        expected: Vec::new(),
        description,
        command: None,
    }
}

fn members(cgroup: Cgroup, description: String) -> FoundTarget {
    let Cgroup { directory, version } = cgroup;
    let watched = Watched { cgroup: Some(directory.clone()), ..Watched::default() };
    let filter = match version {
        Version::V1 { controller } => Filter::CgroupV1 { directory, controller },
        Version::V2 => Filter::CgroupV2(directory),
    };
    FoundTarget { watched, ..everybody(filter, description) }
}

fn container(proc: &ProcFs, id_prefix: &str) -> Result<FoundTarget> {
    let Container { id, extent } = find_container(proc, id_prefix)?;
    let description = format!("container {id}");
    match extent {
        Extent::Cgroup(cgroup) => Ok(members(cgroup, description)),
        // What they start belongs to the container too.
        Extent::Processes(pids) => Ok(FoundTarget { description, ..processes(proc, &pids, true)? }),
    }
}

fn processes(proc: &ProcFs, pids: &[u32], children: bool) -> Result<FoundTarget> {
    let mut watched = Watched::default();
    for pid in pids {
        check_process(proc, *pid)?;
        watched.processes.push(open_pidfd(*pid)?);
    }
    Ok(FoundTarget {
        filter: Filter::Processes(pids.to_vec()),
        interest: ProcessFilter::Only { pids: pids.iter().copied().collect(), children },
        watched,
        children,
        expected: pids.to_vec(),
        description: describe("pid", pids, proc),
        command: None,
    })
}

fn threads(proc: &ProcFs, tids: &[u32]) -> Result<FoundTarget> {
    let pids = tids.iter().map(|tid| process_of(proc, *tid)).collect::<Result<HashSet<u32>>>()?;
    Ok(FoundTarget {
        filter: Filter::Threads(tids.to_vec()),
        expected: pids.iter().copied().collect(),
        interest: ProcessFilter::Only { pids, children: false },
        watched: Watched { threads: tids.to_vec(), ..Watched::default() },
        children: false,
        description: describe("thread", tids, proc),
        command: None,
    })
}

fn command(words: &[OsString], children: bool, is_silent: bool) -> Result<FoundTarget> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the command to start is empty"))?;
    let command = GatedCommand::spawn(program, arguments, is_silent).map_err(|error| {
        let message = format!("failed to start `{}`", program.to_string_lossy());
        Error::with_source(ErrorKind::Io, message, error)
    })?;
    let pid = command.pid();
    Ok(FoundTarget {
        filter: Filter::Processes(vec![pid]),
        interest: ProcessFilter::Only { pids: HashSet::from([pid]), children },
        watched: Watched { processes: vec![open_pidfd(pid)?], ..Watched::default() },
        children,
        expected: vec![pid],
        description: words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
        command: Some(command),
    })
}

/// Whether this is a process that can be sampled.
fn check_process(proc: &ProcFs, pid: u32) -> Result<()> {
    let status = read_status(proc, pid, "process")?;
    if status.zombie {
        let message = format!("process {pid} has ended, only its parent has not collected it yet");
        return Err(Error::new(ErrorKind::NoSuchTarget, message));
    }
    if status.pid != pid {
        let message = format!(
            "{pid} is a thread of process {}: name the process, or sample this thread alone as a thread",
            status.pid
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    if status.kernel_thread {
        log::info!("process {pid} is a kernel thread: its stacks have kernel frames alone");
    }
    Ok(())
}

fn process_of(proc: &ProcFs, tid: u32) -> Result<u32> {
    Ok(read_status(proc, tid, "thread")?.pid)
}

fn read_status(proc: &ProcFs, id: u32, what: &str) -> Result<Status> {
    let text = proc.read(id, "status").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("{what} {id} does not exist in the profiler's pid namespace");
            Error::new(ErrorKind::NoSuchTarget, message)
        }
        _ => Error::from_io(Operation::ReadProcess, format!("failed to read `/proc/{id}/status`"), error),
    })?;
    Status::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
        Error::new(ErrorKind::InvalidData, format!("failed to understand `/proc/{id}/status`"))
    })
}

fn open_pidfd(pid: u32) -> Result<OwnedFd> {
    let gone = || Error::new(ErrorKind::NoSuchTarget, format!("process {pid} does not exist any more"));
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|error| match error {
        rustix::io::Errno::SRCH => gone(),
        error => Error::with_source(ErrorKind::Io, format!("failed to watch process {pid}"), error),
    })
}

/// `pid 12 (dotnet), 13 (node)`.
fn describe(what: &str, ids: &[u32], proc: &ProcFs) -> String {
    let named = ids.iter().map(|id| {
        let comm = proc.read(*id, "comm").unwrap_or_default();
        format!("{id} ({})", String::from_utf8_lossy(&comm).trim_end())
    });
    format!("{what} {}", named.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(target: &Target) -> Error {
        find(target, &ProcFs::live(), false, false).unwrap_err()
    }

    #[test]
    fn a_process_that_does_not_exist_is_named() {
        let error = error(&Target::Pid(u32::MAX));
        assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
        assert!(error.to_string().contains(&u32::MAX.to_string()));
    }

    #[test]
    fn a_thread_where_a_process_belongs_is_told_its_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            wait.recv().unwrap_err();
        });
        let tid = u32::try_from(receive.recv().unwrap()).unwrap();
        let error = error(&Target::Pid(tid));
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("thread of process {}", std::process::id())), "{error}");
        let found = find(&Target::Tid(tid), &ProcFs::live(), false, false).unwrap();
        assert_eq!(found.expected, [std::process::id()]);
        assert!(!found.watched.have_all_ended());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_zombie_is_no_target() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = child.id();
        let pidfd = open_pidfd(pid).unwrap();
        let watched = Watched { processes: vec![pidfd], ..Watched::default() };
        while !watched.have_all_ended() {
            std::thread::yield_now();
        }
        let error = error(&Target::Pid(pid));
        assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
        assert!(error.to_string().contains("has ended"), "{error}");
        child.wait().unwrap();
    }

    #[test]
    fn an_empty_command_is_refused() {
        assert_eq!(error(&Target::Command(Vec::new())).kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn the_target_is_described_by_id_and_name() {
        let found = find(&Target::Pid(std::process::id()), &ProcFs::live(), false, false).unwrap();
        assert!(found.description.starts_with(&format!("pid {} (", std::process::id())));
    }
}
