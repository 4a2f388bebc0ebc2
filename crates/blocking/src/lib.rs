//! Operations that another process can block, with a deadline.
//!
//! A profiler opens and reads files that its targets own, and entries of `/proc` that the kernel answers from a target's
//! memory. On a file system in user space (FUSE) each of these waits for the owner of the file system, a signal does not
//! end the wait, and no flag avoids it. [`run`] executes such an operation on a thread of its own. When it takes too
//! long, the caller gets an error and goes on; the thread stays until the operation ends, and further operations on the
//! same object fail at once.
//!
//! [`read_at`] reads a file without another thread when the bytes are in the page cache.
//!
//! ```
//! use profiler_blocking::{Object, run};
//!
//! let object = Object::process(std::process::id());
//! let status = run(object, || std::fs::read_to_string("/proc/self/status"))?;
//! assert!(status.starts_with("Name:"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod budget;
mod deadline;
mod file;
mod object;
mod workers;

use std::io;

use self::workers::WORKERS;
pub use self::{deadline::Deadline, file::read_at, object::Object};

/// Runs an operation on an object that another process can block. The caller waits 0.7 s at most, and less when
/// operations have taken long before, or when its [`Deadline`] comes.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] when the operation did not end in time, or an earlier one on the same object has not ended;
/// else those of the operation, and of starting a thread.
pub fn run<T: Send + 'static>(
    object: Object,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    WORKERS.run(object, operation)
}

/// Runs the operations of the calling thread in this thread from now on, without a deadline.
#[cfg(fuzzing)]
pub fn run_in_this_thread() {
    workers::become_worker();
}
