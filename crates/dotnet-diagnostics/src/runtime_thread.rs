//! A thread that talks to a runtime. It is notified through its deadline, and left behind if the runtime blocks it.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    },
    time::{Duration, Instant},
};

use profiler_processes::Pid;

use super::socket::CancellableDeadline;

/// Additional time for the end of a thread after its deadline.
const STOP_GRACE: Duration = Duration::from_millis(100);

/// A thread that talks to the runtime of a process.
#[derive(Debug)]
pub(super) struct RuntimeThread {
    pid: Pid,
    pub(super) deadline: Arc<CancellableDeadline>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
    is_left_behind: bool,
}

impl RuntimeThread {
    /// Starts a thread that runs `run` with its deadline.
    pub(super) fn start(
        name: &str,
        pid: Pid,
        run: impl FnOnce(Arc<CancellableDeadline>) + Send + 'static,
    ) -> io::Result<Self> {
        let deadline = Arc::new(CancellableDeadline::new()?);
        let (running, ended) = channel::<()>();
        let own_deadline = Arc::clone(&deadline);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _running = running;
            run(own_deadline);
        })?;
        Ok(Self { pid, deadline, ended, is_left_behind: false })
    }

    /// Whether the thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits for the end of the thread, until the deadline at most.
    pub(super) fn wait_until(&self, deadline: Instant) {
        // A thread that has ended, or that goes on, is no error.
        let _ = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Waits for the end of a thread that was notified to end by a deadline. One that is blocked is left behind: a peer can make
    /// any system call on a socket wait, by file descriptors that the kernel closes slowly (`SCM_RIGHTS` with `SO_LINGER`).
    pub(super) fn wait_until_ended(&mut self, deadline: Instant) {
        if self.is_left_behind {
            return;
        }
        let left = (deadline + STOP_GRACE).saturating_duration_since(Instant::now());
        if self.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            self.is_left_behind = true;
            log::warn!("the .NET runtime of process {} blocks the end of an EventPipe session", self.pid);
        }
    }
}
