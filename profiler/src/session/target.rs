//! Resolves the target that the user named into the filter of the BPF programs.

use std::{
    collections::HashSet,
    ffi::OsString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

#[cfg(feature = "pods")]
use profiler_processes::kubernetes::{Pod, PodSelector, find_pod};
use profiler_processes::{
    Pid, ProcFs, ProcessFilter, Status, Tid,
    cgroup::{self, Cgroup, Container, ContainerScope, Version, find_container},
};
use profiler_sampler::Filter;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{PidfdFlags, pidfd_open},
};

use super::named_process;
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    proc_mount,
    settings::{Target, TargetSettings},
    sys::command::GatedCommand,
};

/// A resolved target.
#[derive(Debug)]
pub(super) struct FoundTarget {
    pub(super) filter: Filter,
    pub(super) process_filter: ProcessFilter,
    pub(super) watch: TargetWatch,
    /// Whether children of the processes become targets.
    pub(super) children: bool,
    /// Processes whose mappings are read before the first sample.
    pub(super) initial_pids: Vec<Pid>,
    /// The target in words.
    pub(super) description: String,
    pub(super) command: Option<GatedCommand>,
}

/// Detects the exit of the target: of processes, threads or a cgroup.
#[derive(Debug, Default)]
pub(super) struct TargetWatch {
    processes: Vec<WatchedProcess>,
    threads: Vec<Tid>,
    cgroup: Option<PathBuf>,
}

/// A target whose resources the kernel measures as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredTarget<'a> {
    /// The id of a process.
    Process(u32),
    /// The directory of a cgroup.
    Cgroup(&'a std::path::Path),
    /// All processes of the machine.
    Machine,
}

/// A process whose exit is detected.
#[derive(Debug)]
struct WatchedProcess {
    pid: Pid,
    pidfd: OwnedFd,
}

impl WatchedProcess {
    fn open(pid: Pid) -> Result<Self> {
        Ok(Self { pid, pidfd: open_pidfd(pid)? })
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl TargetWatch {
    /// Removes the processes that have ended from the targets. Called when sideband events are enabled: these report each
    /// later process with the id of a target, but not one that was started before.
    ///
    /// # Errors
    /// When all processes have ended.
    pub(super) fn remove_ended(&self, filter: &mut ProcessFilter, initial_pids: &mut Vec<Pid>) -> Result<()> {
        let ProcessFilter::Only { pids, .. } = filter else { return Ok(()) };
        for ended in self.processes.iter().filter(|process| process.has_ended()) {
            log::info!("process {} has ended before sampling began", ended.pid);
            pids.remove(&ended.pid);
            initial_pids.retain(|pid| *pid != ended.pid);
            if pids.is_empty() {
                return Err(no_longer_exists(ended.pid));
            }
        }
        Ok(())
    }

    /// Whether all watched processes, threads and cgroups have ended; false where none is watched.
    pub(super) fn have_all_ended(&self) -> bool {
        let proc = ProcFs::live();
        let is_empty = self.processes.is_empty() && self.threads.is_empty() && self.cgroup.is_none();
        !is_empty
            && self.processes.iter().all(WatchedProcess::has_ended)
            && self.threads.iter().all(|tid| !proc.exists(*tid))
            && self.cgroup.as_ref().is_none_or(|directory| !directory.exists())
    }

    /// The processes that are watched.
    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.processes.iter().map(|process| process.pid)
    }

    /// The threads that are watched on their own.
    pub(super) fn tids(&self) -> impl Iterator<Item = Tid> + '_ {
        self.threads.iter().copied()
    }

    /// What is watched, where the kernel measures it as one.
    pub(super) fn measured(&self) -> Option<MeasuredTarget<'_>> {
        match (&self.cgroup, &*self.processes, &*self.threads) {
            (Some(directory), ..) => Some(MeasuredTarget::Cgroup(directory)),
            (None, [process], []) => Some(MeasuredTarget::Process(process.pid.0)),
            (None, [], []) => Some(MeasuredTarget::Machine),
            _ => None,
        }
    }

    /// The processes of a cgroup, or of the host, where the target has no ids. 1,024 at most.
    pub(super) fn unnamed_processes(&self, proc: &ProcFs) -> Vec<Pid> {
        const MAX_PROCESSES: usize = 1 << 10;
        match &self.cgroup {
            Some(directory) => cgroup::processes_in(directory, MAX_PROCESSES),
            None if self.processes.is_empty() && self.threads.is_empty() => {
                proc.processes(MAX_PROCESSES).unwrap_or_default()
            }
            None => Vec::new(),
        }
    }

    /// The file descriptor of a running process, which becomes readable on exit; that of an ended one where all have
    /// ended, perhaps since [`have_all_ended`](Self::have_all_ended), so that waiting for it returns at once.
    pub(super) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        let running = self.processes.iter().find(|process| !process.has_ended());
        running.or(self.processes.last()).map(|process| process.pidfd.as_fd())
    }

    /// The interval at which [`have_all_ended`](Self::have_all_ended) has to be polled: cgroups and threads other than
    /// leaders have no file descriptor to wait for.
    pub(super) fn poll_interval(&self) -> Option<Duration> {
        const INTERVAL: Duration = Duration::from_millis(100);
        (!self.threads.is_empty() || self.cgroup.is_some()).then_some(INTERVAL)
    }
}

/// Resolves the target. Forks the process of a command.
pub(super) fn find(settings: &TargetSettings, proc: &ProcFs) -> Result<FoundTarget> {
    proc_mount::check()?;
    let children = settings.follows_children();
    match &settings.target {
        Target::Pid(pid) => processes(proc, &[Pid(*pid)], children),
        Target::Pids(pids) => processes(proc, &pids.iter().copied().map(Pid).collect::<Vec<_>>(), children),
        Target::ProcessName(name) => processes(proc, &[named_process::find(name)?], children),
        Target::Tid(tid) => threads(proc, vec![Tid(*tid)]),
        Target::Tids(tids) => threads(proc, tids.iter().copied().map(Tid).collect()),
        Target::Everything => Ok(all_processes(Filter::Everything, "everything".to_owned())),
        Target::Cgroup(path) => {
            Ok(cgroup_members(cgroup::resolve(path)?, format!("cgroup {}", path.display())))
        }
        Target::Container(id) => container(proc, id),
        #[cfg(feature = "pods")]
        Target::Pod { name, namespace, container } => {
            let (name, namespace, container) = (name.clone(), namespace.clone(), container.clone());
            pod(proc, &PodSelector { name, namespace, container })
        }
        Target::Command(words) => command(words, children, settings),
    }
}

/// Whether a target is there that is not a command.
pub(crate) fn find_target(settings: &TargetSettings) -> Result<()> {
    find(settings, &ProcFs::live()).map(drop)
}

fn all_processes(filter: Filter, description: String) -> FoundTarget {
    FoundTarget {
        filter,
        process_filter: ProcessFilter::All,
        watch: TargetWatch::default(),
        children: false,
        initial_pids: Vec::new(),
        description,
        command: None,
    }
}

fn cgroup_members(cgroup: Cgroup, description: String) -> FoundTarget {
    let Cgroup { directory, version } = cgroup;
    let watch = TargetWatch { cgroup: Some(directory.clone()), ..TargetWatch::default() };
    let filter = match version {
        Version::V1 { controller } => Filter::CgroupV1 { directory, controller },
        Version::V2 => Filter::CgroupV2(directory),
    };
    FoundTarget { watch, ..all_processes(filter, description) }
}

fn container(proc: &ProcFs, id_prefix: &str) -> Result<FoundTarget> {
    let Container { id, scope } = find_container(proc, id_prefix)?;
    container_members(proc, scope, format!("container {id}"))
}

#[cfg(feature = "pods")]
fn pod(proc: &ProcFs, selector: &PodSelector) -> Result<FoundTarget> {
    let Pod { namespace, name, container, scope } = find_pod(proc, selector)?;
    let container = container.map(|container| format!("container {container} of ")).unwrap_or_default();
    container_members(proc, scope, format!("{container}pod {namespace}/{name}"))
}

fn container_members(proc: &ProcFs, scope: ContainerScope, description: String) -> Result<FoundTarget> {
    match scope {
        ContainerScope::Cgroup(cgroup) => Ok(cgroup_members(cgroup, description)),
        // Their children belong to the container as well.
        ContainerScope::Processes(pids) => Ok(FoundTarget { description, ..processes(proc, &pids, true)? }),
    }
}

fn processes(proc: &ProcFs, pids: &[Pid], children: bool) -> Result<FoundTarget> {
    let mut watch = TargetWatch::default();
    for pid in pids {
        check_process(proc, *pid)?;
        watch.processes.push(WatchedProcess::open(*pid)?);
    }
    Ok(FoundTarget {
        filter: Filter::Processes(pids.to_vec()),
        process_filter: ProcessFilter::Only { pids: pids.iter().copied().collect(), children },
        watch,
        children,
        initial_pids: pids.to_vec(),
        description: describe("pid", pids.iter().copied().map(Tid::leader_of), proc),
        command: None,
    })
}

fn threads(proc: &ProcFs, tids: Vec<Tid>) -> Result<FoundTarget> {
    let pids = tids.iter().map(|tid| thread_group_of(proc, *tid)).collect::<Result<HashSet<Pid>>>()?;
    Ok(FoundTarget {
        filter: Filter::Threads(tids.clone()),
        initial_pids: pids.iter().copied().collect(),
        process_filter: ProcessFilter::Threads { pids, tids: tids.iter().copied().collect() },
        description: describe("thread", tids.iter().copied(), proc),
        watch: TargetWatch { threads: tids, ..TargetWatch::default() },
        children: false,
        command: None,
    })
}

fn command(words: &[OsString], children: bool, settings: &TargetSettings) -> Result<FoundTarget> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the command to start is empty"))?;
    let user = settings.command_user.as_ref();
    let command =
        GatedCommand::spawn(program, arguments, settings.silent_command, user).map_err(|error| {
            let message = format!("failed to start `{}`", program.to_string_lossy());
            Error::with_source(ErrorKind::Io, message, error)
        })?;
    let pid = command.pid();
    Ok(FoundTarget {
        filter: Filter::Processes(vec![pid]),
        process_filter: ProcessFilter::Only { pids: HashSet::from([pid]), children },
        watch: TargetWatch { processes: vec![WatchedProcess::open(pid)?], ..TargetWatch::default() },
        children,
        initial_pids: vec![pid],
        description: words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
        command: Some(command),
    })
}

/// Checks that `pid` is a process that can be sampled.
fn check_process(proc: &ProcFs, pid: Pid) -> Result<()> {
    let status = read_status(proc, Tid::leader_of(pid), "process")?;
    if status.living_threads() == 0 {
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
        log::info!("process {pid} is a kernel thread: its stacks have only kernel frames");
    }
    Ok(())
}

fn thread_group_of(proc: &ProcFs, tid: Tid) -> Result<Pid> {
    Ok(read_status(proc, tid, "thread")?.pid)
}

fn read_status(proc: &ProcFs, tid: Tid, task_kind: &str) -> Result<Status> {
    let text = proc.read_of_thread(tid, "status").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("{task_kind} {tid} does not exist in the profiler's pid namespace");
            Error::new(ErrorKind::NoSuchTarget, message)
        }
        _ => Error::from_io(Operation::ReadProcess, format!("failed to read `/proc/{tid}/status`"), error),
    })?;
    Status::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| {
        Error::new(ErrorKind::InvalidData, format!("failed to understand `/proc/{tid}/status`"))
    })
}

fn open_pidfd(pid: Pid) -> Result<OwnedFd> {
    let id = i32::try_from(pid.0)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or_else(|| no_longer_exists(pid))?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|error| match error {
        rustix::io::Errno::SRCH => no_longer_exists(pid),
        error => Error::with_source(ErrorKind::Io, format!("failed to watch process {pid}"), error),
    })
}

fn no_longer_exists(pid: Pid) -> Error {
    Error::new(ErrorKind::NoSuchTarget, format!("process {pid} does not exist any more"))
}

/// `pid 12 (dotnet), 13 (node)`.
fn describe(task_kind: &str, tids: impl Iterator<Item = Tid>, proc: &ProcFs) -> String {
    let named = tids.map(|tid| {
        let comm = proc.read_of_thread(tid, "comm").unwrap_or_default();
        format!("{tid} ({})", String::from_utf8_lossy(&comm).trim_end())
    });
    format!("{task_kind} {}", named.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves a target without its children. The builder refuses an empty one before.
    fn find_alone(target: &Target) -> Result<FoundTarget> {
        let settings =
            TargetSettings { target: target.clone(), children: Some(false), ..TargetSettings::default() };
        find(&settings, &ProcFs::live())
    }

    fn error(target: &Target) -> Error {
        find_alone(target).unwrap_err()
    }

    #[test]
    fn a_process_that_does_not_exist_is_named_in_the_error() {
        let error = error(&Target::Pid(u32::MAX));
        assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
        assert!(error.to_string().contains(&u32::MAX.to_string()));
    }

    #[test]
    fn a_thread_id_given_as_a_process_is_refused_with_its_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            wait.recv().unwrap_err();
        });
        let tid = u32::try_from(receive.recv().unwrap()).unwrap();
        let error = error(&Target::Pid(tid));
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("thread of process {}", Pid::own())), "{error}");
        let found = find_alone(&Target::Tid(tid)).unwrap();
        assert_eq!(found.initial_pids, [Pid::own()]);
        assert!(!found.watch.have_all_ended());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn the_processes_of_a_target_without_ids_are_listed() {
        let proc = ProcFs::live();
        let everything = find_alone(&Target::Everything).unwrap().watch.unnamed_processes(&proc);
        assert!(everything.contains(&Pid::own()), "{everything:?}");
        let named = find_alone(&Target::Pid(std::process::id())).unwrap();
        assert!(named.watch.unnamed_processes(&proc).is_empty());
    }

    #[test]
    fn a_zombie_is_no_target() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = Pid(child.id());
        let processes = vec![WatchedProcess::open(pid).unwrap()];
        let watch = TargetWatch { processes, ..TargetWatch::default() };
        while !watch.have_all_ended() {
            std::thread::yield_now();
        }
        let ended = watch.pidfd().expect("to be waited for, if it ended since the check");
        assert!(poll(&mut [PollFd::from_borrowed_fd(ended, PollFlags::IN)], None).unwrap() > 0);
        let error = error(&Target::Pid(pid.0));
        assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
        assert!(error.to_string().contains("has ended"), "{error}");
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_has_ended_before_sideband_events_are_enabled_is_no_target() {
        let mut child =
            std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (ended, own) = (Pid(child.id()), Pid::own());
        let mut both = find_alone(&Target::Pids(vec![ended.0, own.0])).unwrap();
        let mut alone = find_alone(&Target::Pid(ended.0)).unwrap();
        alone.watch.remove_ended(&mut alone.process_filter, &mut alone.initial_pids).unwrap();
        assert_eq!(alone.initial_pids, [ended], "it has not ended yet");
        drop(child.stdin.take());
        child.wait().unwrap();
        both.watch.remove_ended(&mut both.process_filter, &mut both.initial_pids).unwrap();
        assert_eq!(both.initial_pids, [own]);
        let ProcessFilter::Only { pids, .. } = &both.process_filter else { panic!("{both:?}") };
        assert_eq!(*pids, HashSet::from([own]));
        let removed = alone.watch.remove_ended(&mut alone.process_filter, &mut alone.initial_pids);
        assert_eq!(removed.unwrap_err().kind(), ErrorKind::NoSuchTarget);
    }

    #[test]
    fn an_empty_command_is_refused() {
        assert_eq!(error(&Target::Command(Vec::new())).kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn the_target_is_described_by_id_and_name() {
        let found = find_alone(&Target::Pid(std::process::id())).unwrap();
        assert!(found.description.starts_with(&format!("pid {} (", Pid::own())));
    }
}
