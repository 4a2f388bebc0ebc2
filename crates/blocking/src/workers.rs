//! Worker threads: one for each operation that runs, abandoned when the operation does not end in time.

use std::{
    cell::Cell,
    collections::HashSet,
    io,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Object, budget::WaitBudget, deadline};

/// Operations that have not ended in time. Each holds a thread. Beyond it, all operations fail.
const MAX_BLOCKED: usize = 256;

/// Operations on the paths below one directory, or on the files of one file system, that have not ended in time. Beyond it,
/// operations on the others fail too, and those on other directories and file systems do not.
const MAX_BLOCKED_OF_OWNER: usize = 16;

/// How long a worker waits for its next operation.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// The stack of a worker. Pages that are never used take no memory.
const STACK_BYTES: usize = 512 << 10;

/// The workers of this process.
pub(crate) static WORKERS: LazyLock<Workers> = LazyLock::new(|| Workers::new(IDLE_TIME));

thread_local! {
    /// Whether this thread is a worker: it runs nested operations itself.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

type Job = Box<dyn FnOnce() + Send>;

/// A set of workers. Those of the process are [`WORKERS`].
pub(crate) struct Workers {
    state: Arc<Mutex<WorkersState>>,
    idle_time: Duration,
}

/// A worker thread.
#[derive(Clone)]
struct Worker {
    jobs: SyncSender<Job>,
    /// 0 until the thread runs.
    tid: Arc<AtomicI32>,
}

struct WorkersState {
    /// Workers without an operation; the last one has waited for the shortest time.
    idle: Vec<Worker>,
    /// The objects of operations that did not end in time.
    blocked: HashSet<Object>,
    budget: WaitBudget,
}

/// Makes the calling thread a worker.
#[cfg(fuzzing)]
pub(crate) fn become_worker() {
    IS_WORKER.set(true);
}

impl Workers {
    /// Workers that end after `idle_time` without an operation.
    fn new(idle_time: Duration) -> Self {
        let budget = WaitBudget::new(Instant::now());
        let state = WorkersState { idle: Vec::new(), blocked: HashSet::new(), budget };
        Self { state: Arc::new(Mutex::new(state)), idle_time }
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        object: Object,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if IS_WORKER.get() {
            return operation();
        }
        let limit = self.limit(object)?;
        let (reply, replied) = sync_channel(1);
        let state = Arc::clone(&self.state);
        let job = move || {
            // The caller may have stopped waiting.
            let _ = reply.send(operation());
            lock(&state).blocked.remove(&object);
        };
        let worker = self.start(Box::new(job))?;
        let begin = Instant::now();
        let mut result = replied.recv_timeout(limit);
        // On a busy machine, a worker waits for a CPU.
        while matches!(result, Err(RecvTimeoutError::Timeout)) && worker.waits_for_cpu() {
            let left = deadline::left_for_this_thread(Instant::now());
            if left.is_zero() {
                break;
            }
            result = replied.recv_timeout(limit.min(left));
        }
        let mut state = self.lock();
        state.budget.spend(begin.elapsed());
        // The worker locks the state after it has replied.
        match result.or_else(|_| replied.try_recv()) {
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the operation panicked")),
            Err(TryRecvError::Empty) => {
                state.blocked.insert(object);
                deadline::add_blocked(begin.elapsed(), Instant::now());
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// The time to wait for an operation on an object.
    fn limit(&self, object: Object) -> io::Result<Duration> {
        let mut state = self.lock();
        let now = Instant::now();
        let limit = state.budget.limit(now).min(deadline::left_for_this_thread(now));
        if limit.is_zero() || state.is_blocked(object) {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(limit)
        }
    }

    /// Gives a job to an idle worker or to a new one.
    fn start(&self, job: Job) -> io::Result<Worker> {
        let Some(worker) = self.lock().idle.pop() else { return self.start_in_new_worker(job) };
        // It takes a job before it ends, since it is no longer among the idle ones.
        worker.jobs.try_send(job).map_err(|_| io::Error::other("an idle worker has ended"))?;
        Ok(worker)
    }

    fn start_in_new_worker(&self, job: Job) -> io::Result<Worker> {
        let (sender, jobs) = sync_channel(1);
        let worker = Worker { jobs: sender, tid: Arc::default() };
        let (state, idle_time) = (Arc::clone(&self.state), self.idle_time);
        let thread = thread::Builder::new().name("blocking".to_owned()).stack_size(STACK_BYTES);
        let own = worker.clone();
        thread.spawn(move || own.work(job, &jobs, &state, idle_time))?;
        Ok(worker)
    }

    fn lock(&self) -> MutexGuard<'_, WorkersState> {
        lock(&self.state)
    }
}

impl WorkersState {
    fn is_blocked(&self, object: Object) -> bool {
        let of_owner = || self.blocked.iter().filter(|blocked| blocked.owner == object.owner).count();
        self.blocked.len() >= MAX_BLOCKED
            || self.blocked.contains(&object)
            || of_owner() >= MAX_BLOCKED_OF_OWNER
    }
}

impl Worker {
    fn work(self, first: Job, jobs: &Receiver<Job>, state: &Mutex<WorkersState>, idle_time: Duration) {
        IS_WORKER.set(true);
        self.tid.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            lock(state).idle.push(self.clone());
            next = jobs.recv_timeout(idle_time).ok().or_else(|| self.last_job(jobs, state));
        }
    }

    /// Removes this worker from the idle ones. Where it is not among them any more, a job follows.
    fn last_job(&self, jobs: &Receiver<Job>, state: &Mutex<WorkersState>) -> Option<Job> {
        let mut state = lock(state);
        let own = state.idle.iter().position(|idle| Arc::ptr_eq(&idle.tid, &self.tid));
        let removed = own.map(|own| state.idle.remove(own));
        drop(state);
        if removed.is_some() { None } else { jobs.recv().ok() }
    }

    /// Whether the thread runs or waits for a CPU, and not for its operation (proc_pid_stat(5)).
    fn waits_for_cpu(&self) -> bool {
        let tid = self.tid.load(Ordering::Acquire);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        // It has not begun to run.
        tid == 0 || stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('R'))
    }
}

fn lock(state: &Mutex<WorkersState>) -> MutexGuard<'_, WorkersState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::Deadline;

    #[test]
    fn an_operation_that_does_not_end_costs_one_wait_until_it_ends() {
        let workers = Workers::new(IDLE_TIME);
        let (end, ends) = channel::<()>();
        let object = Object::process(7);
        let deadline = Deadline::of_this_thread();
        deadline.set(Instant::now() + Duration::from_millis(50));
        let error = workers.run(object, move || ends.recv().map_err(io::Error::other)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        deadline.clear();
        let unused = || -> io::Result<()> { panic!("the object is blocked") };
        assert_eq!(workers.run(object, unused).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(workers.run(Object::process(8), || Ok(5)).unwrap(), 5, "another object");
        end.send(()).unwrap();
        while workers.lock().blocked.contains(&object) {
            thread::yield_now();
        }
        assert_eq!(workers.run(object, || Ok(6)).unwrap(), 6);
    }

    #[test]
    fn operations_share_a_worker_and_run_nested_ones_themselves() {
        let workers = Workers::new(IDLE_TIME);
        let own_id = || Ok(thread::current().id());
        let run = |_| {
            let id = workers.run(Object::process(1), own_id).unwrap();
            // The worker is idle a moment after its reply.
            while workers.lock().idle.is_empty() {
                thread::yield_now();
            }
            id
        };
        assert_eq!((0..100).map(run).collect::<HashSet<_>>().len(), 1);
        let nested = move || Ok((thread::current().id(), WORKERS.run(Object::process(2), own_id)?));
        let (outer, inner) = workers.run(Object::process(1), nested).unwrap();
        assert_eq!(outer, inner);
    }

    #[test]
    fn a_worker_that_ends_takes_no_operation_with_it() {
        let workers = Workers::new(Duration::ZERO);
        for number in 0..2_000 {
            assert_eq!(workers.run(Object::process(1), move || Ok(number)).unwrap(), number);
        }
    }

    #[test]
    fn the_number_of_blocked_operations_is_limited() {
        let workers = Workers::new(IDLE_TIME);
        let mut ends = Vec::new();
        let deadline = Deadline::of_this_thread();
        for pid in 0..=MAX_BLOCKED as u32 {
            deadline.set(Instant::now() + Duration::from_millis(1));
            let (end, wait) = channel::<()>();
            ends.push(end);
            let result = workers.run(Object::process(pid), move || wait.recv().map_err(io::Error::other));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(workers.lock().blocked.len(), MAX_BLOCKED);
    }

    #[test]
    fn the_blocked_operations_of_one_owner_are_limited_and_others_go_on() {
        let workers = Workers::new(IDLE_TIME);
        let mut ends = Vec::new();
        let deadline = Deadline::of_this_thread();
        for inode in 0..2 * MAX_BLOCKED_OF_OWNER as u64 {
            deadline.set(Instant::now() + Duration::from_millis(1));
            let (end, wait) = channel::<()>();
            ends.push(end);
            let object = Object::file_identity(7, inode);
            let result = workers.run(object, move || wait.recv().map_err(io::Error::other));
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        deadline.clear();
        assert_eq!(workers.lock().blocked.len(), MAX_BLOCKED_OF_OWNER);
        assert_eq!(workers.run(Object::file_identity(8, 0), || Ok(5)).unwrap(), 5, "another file system");
    }

    #[test]
    fn an_operation_that_computes_is_not_blocked() {
        let workers = Workers::new(IDLE_TIME);
        workers.lock().budget.spend(Duration::from_secs(3600));
        let computes = || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(400) {}
            Ok(7)
        };
        assert_eq!(workers.run(Object::process(1), computes).unwrap(), 7);
    }

    #[test]
    fn a_panic_of_an_operation_is_an_error() {
        let workers = Workers::new(IDLE_TIME);
        let result = workers.run(Object::process(1), || -> io::Result<()> { panic!("test") });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Other);
        assert!(workers.run(Object::process(1), || Ok(())).is_ok());
    }
}
