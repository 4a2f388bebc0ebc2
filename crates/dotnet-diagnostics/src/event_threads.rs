//! Looks up the threads of a process by their ids in its pid namespace, while they exist.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    sync::Arc,
    time::Instant,
};

use profiler_processes::{Pid, Tid, innermost_tid};

/// Threads of a process that are kept, and read at once.
pub(super) const MAX_THREADS: usize = 1 << 14;

/// The pause after a reading of all threads, as a multiple of its time.
const PAUSE_PER_SCAN: u32 = 10;

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventThread {
    /// In the profiler's pid namespace.
    pub tid: Tid,
    /// Empty where the thread ended before it was read.
    pub comm: Arc<str>,
}

/// Reads the threads of a process from `/proc`.
#[derive(Debug)]
pub struct ThreadReader {
    /// In the profiler's pid namespace.
    pid: Pid,
    /// Whether the process has the pid namespace of the profiler.
    shares_namespace: bool,
    next_scan: Option<Instant>,
    /// Ids that are looked up in the next reading.
    awaited: HashSet<u64>,
}

impl ThreadReader {
    /// A reader of a process, whose id in its innermost pid namespace is `namespace_pid`.
    pub fn new(pid: Pid, namespace_pid: u32) -> Self {
        Self { pid, shares_namespace: pid.0 == namespace_pid, next_scan: None, awaited: HashSet::new() }
    }

    /// The threads with these ids, those that are found. Where all threads have to be read, some are found by a later call.
    pub fn look_up(&mut self, ids: HashSet<u64>) -> HashMap<u64, EventThread> {
        if self.shares_namespace {
            return ids.into_iter().filter_map(|id| Some((id, self.thread_with(id)?))).collect();
        }
        self.awaited.extend(ids);
        let begin = Instant::now();
        if self.awaited.is_empty() || self.next_scan.is_some_and(|next| begin < next) {
            return HashMap::new();
        }
        let mut threads = self.scan();
        self.next_scan = Some(Instant::now() + begin.elapsed() * PAUSE_PER_SCAN);
        let awaited = std::mem::take(&mut self.awaited);
        threads.retain(|id, _| awaited.contains(id));
        threads
    }

    /// The thread with an id of the profiler's pid namespace.
    fn thread_with(&self, id: u64) -> Option<EventThread> {
        let tid = Tid(u32::try_from(id).ok()?);
        let status = read_status(&self.tasks().join(tid.to_string())).unwrap_or_default();
        Some(EventThread { tid, comm: comm_of(&status) })
    }

    /// All threads by their ids in the innermost pid namespace.
    fn scan(&self) -> HashMap<u64, EventThread> {
        let mut threads = HashMap::new();
        for task in fs::read_dir(self.tasks()).into_iter().flatten().flatten().take(MAX_THREADS) {
            let tid = task.file_name().to_str().and_then(|name| name.parse().ok()).map(Tid);
            let Some((tid, status)) = tid.zip(read_status(&task.path())) else { continue };
            if let Some(id) = innermost_tid(&status) {
                threads.insert(id.into(), EventThread { tid, comm: comm_of(&status) });
            }
        }
        threads
    }

    fn tasks(&self) -> std::path::PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join("task")
    }
}

fn read_status(task: &Path) -> Option<String> {
    let text = fs::read(task.join("status")).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The name in a `status`, in which the kernel escapes line feeds and backslashes (proc_pid_status(5)).
fn comm_of(status: &str) -> Arc<str> {
    status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default().trim().into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_of_the_same_namespace_has_its_own_id() {
        let thread = std::thread::Builder::new().name("looked-up".to_owned());
        let found = thread.spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let pid = Pid::own();
            let own = ThreadReader::new(pid, pid.0).look_up([u64::from(tid)].into());
            // As of a process in another namespace, all threads are read.
            let mut other = ThreadReader::new(pid, pid.0 + 1);
            let scanned = other.look_up([u64::from(tid)].into());
            other.next_scan = Some(Instant::now() + Duration::from_secs(3600));
            let paused = other.look_up([u64::from(tid)].into());
            other.next_scan = None;
            let later = other.look_up(HashSet::new());
            (tid, own, [scanned, later], paused)
        });
        let (tid, own, scanned, paused) = found.unwrap().join().unwrap();
        let expected = EventThread { tid: Tid(tid), comm: "looked-up".into() };
        assert_eq!(own.get(&u64::from(tid)), Some(&expected));
        for scanned in scanned {
            assert_eq!(scanned.get(&u64::from(tid)), Some(&expected));
        }
        assert!(paused.is_empty(), "the next reading is later");
    }

    #[test]
    fn a_thread_that_has_ended_has_its_id_where_namespaces_are_shared() {
        let gone = u64::from(u32::MAX);
        let found = ThreadReader::new(Pid(1), 1).look_up([gone].into());
        assert_eq!(found[&gone], EventThread { tid: Tid(u32::MAX), comm: "".into() });
        assert!(ThreadReader::new(Pid(1), 1).look_up([u64::MAX].into()).is_empty());
        assert!(ThreadReader::new(Pid(1), 2).look_up([gone].into()).is_empty());
    }
}
