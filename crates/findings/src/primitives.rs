//! The functions of the kernel and of libc in which threads wait: data alone. Patterns are those of `pattern.rs`.

use self::{
    Leaf::{Descriptors, Process, Selection, Semaphore, Signal, Time, TimedSignal},
    Strength::{Default, Final, Yields},
};
use crate::WaitCause::{
    self, Barrier, ChildProcess, ConditionVariable, FileIo, Idle, Lock, NameResolution, Other, PageFault,
    Pipe, Sleep, SocketIo,
};

/// A rule over the functions of the kernel and of libc in which threads wait.
pub(crate) struct Primitive {
    pub(crate) cause: WaitCause,
    pub(crate) strength: Strength,
    pub(crate) leaf: Leaf,
    pub(crate) functions: &'static [&'static str],
}

/// What ends the wait in a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Input or output of one descriptor, a lock, a page: the primitive alone gives the cause.
    Own,
    /// Readiness of one or many descriptors.
    Descriptors,
    /// As `Descriptors`, by `select`.
    Selection,
    /// A signal of another thread.
    Signal,
    /// As `Signal`, with a limit of time.
    TimedSignal,
    /// A release of a semaphore. It can be a signal, or a place below a limit.
    Semaphore,
    /// The end of a time.
    Time,
    /// Output or the end of another process or thread.
    Process,
}

impl Leaf {
    /// Whether it ends when descriptors are ready.
    pub(crate) fn is_of_descriptors(self) -> bool {
        matches!(self, Self::Descriptors | Self::Selection)
    }
}

/// How a primitive gives the cause.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    /// Whatever its callers are.
    Final,
    /// Where no rule matches a caller.
    Default,
    /// As a default; the thread is in the run queue by its own choice.
    Yields,
}

/// The frame nearest to the leaf that matches decides.
pub(crate) const PRIMITIVES: &[Primitive] = &[
    Primitive {
        cause: PageFault,
        strength: Final,
        leaf: Leaf::Own,
        functions: &["asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault"],
    },
    Primitive {
        cause: FileIo,
        strength: Final,
        leaf: Leaf::Own,
        functions: &[
            "do_fsync",
            "vfs_fsync*",
            "filemap_read",
            "filemap_get_pages",
            "generic_file_*",
            "iomap_*",
            "blkdev_*",
            "ext4_*",
            "xfs_*",
            "btrfs_*",
            "jbd2_*",
            "nfs_*",
            "fuse_*",
            "p9_client_*",
            "iterate_dir",
            "fsync",
            "fdatasync",
        ],
    },
    // A connection that comes is work.
    Primitive {
        cause: Idle,
        strength: Final,
        leaf: Leaf::Own,
        functions: &[
            "inet_csk_accept",
            "unix_accept",
            "__x64_sys_accept*",
            "__arm64_sys_accept*",
            "accept",
            "accept4",
            "__x64_sys_pause",
            "__do_sys_pause",
            "__x64_sys_rt_sigtimedwait",
            "__x64_sys_rt_sigsuspend",
            "__arm64_sys_rt_sigtimedwait",
            "__arm64_sys_rt_sigsuspend",
            "pause",
            "sigwait",
            "sigwaitinfo",
            "sigtimedwait",
            "sigsuspend",
            "inotify_read",
            "signalfd_read*",
        ],
    },
    Primitive {
        cause: SocketIo,
        strength: Final,
        leaf: Leaf::Own,
        functions: &[
            "sock_recvmsg",
            "sock_sendmsg",
            "sock_read_iter",
            "sock_write_iter",
            "__sys_recvfrom",
            "__sys_sendto",
            "__sys_connect",
            "inet_recvmsg",
            "tcp_recvmsg*",
            "tcp_sendmsg*",
            "unix_stream_*",
            "inet_stream_connect",
            "recv",
            "recvfrom",
            "recvmsg",
            "connect",
        ],
    },
    // A datagram: a request of any client, or a response.
    Primitive {
        cause: SocketIo,
        strength: Default,
        leaf: Process,
        functions: &["__skb_wait_for_more_packets", "__skb_recv_udp", "udp_recvmsg", "udpv6_recvmsg"],
    },
    Primitive {
        cause: NameResolution,
        strength: Final,
        leaf: Leaf::Own,
        functions: &["getaddrinfo", "__res_context_send"],
    },
    Primitive {
        cause: Lock,
        strength: Final,
        leaf: Leaf::Own,
        functions: &[
            "pthread_mutex_lock*",
            "__pthread_mutex_lock*",
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "pthread_mutex_timedlock*",
            "pthread_mutex_clocklock",
            // musl: `pthread_mutex_lock` jumps there. Its own locks, as that of `malloc`.
            "__pthread_mutex_timedlock",
            "__lock",
            // A value that another thread initializes.
            "__pthread_once*",
            "__cxa_guard_acquire",
            "g_mutex_lock*",
            "absl::*Mutex::LockSlow*",
            "__lll_lock_wait*",
            "pthread_rwlock_*lock*",
            "__pthread_rwlock_*lock*",
            "___pthread_rwlock_*lock*",
            "pthread_spin_lock",
            // Demanglers write `Mutex::lock_contended` and `<Mutex>::lock_contended`.
            "*std::sys::sync::mutex::futex::Mutex*::lock_contended",
            "*std::sys::sync::rwlock::futex::RwLock*::*_contended",
            "*parking_lot::raw_mutex::RawMutex*::lock_slow",
            "*parking_lot::raw_rwlock::RawRwLock*::lock_*_slow",
            "*parking_lot::raw_rwlock::RawRwLock*::upgrade_slow",
            "mutex_lock*",
            "__mutex_lock*",
            "rwsem_down_*_slowpath",
            "locks_lock_inode_wait",
            "flock",
        ],
    },
    Primitive {
        cause: Sleep,
        strength: Default,
        leaf: Time,
        functions: &[
            "hrtimer_nanosleep",
            "common_nsleep*",
            "nanosleep",
            "__nanosleep",
            "clock_nanosleep*",
            "__clock_nanosleep*",
            "usleep",
            "sleep",
            "timerfd_read*",
        ],
    },
    // A thread that spins, in the run queue by its own choice.
    Primitive {
        cause: Other,
        strength: Yields,
        leaf: Leaf::Own,
        functions: &[
            "do_sched_yield",
            "__do_sys_sched_yield",
            "__x64_sys_sched_yield",
            "__arm64_sys_sched_yield",
            "sched_yield",
            "__sched_yield",
        ],
    },
    // A loop over the events of many descriptors.
    Primitive {
        cause: Idle,
        strength: Default,
        leaf: Descriptors,
        functions: &["do_epoll_wait", "ep_poll", "epoll_wait", "epoll_pwait*", "io_cqring_wait"],
    },
    // One descriptor as well as many.
    Primitive {
        cause: Other,
        strength: Default,
        leaf: Descriptors,
        functions: &["do_sys_poll", "poll", "__poll", "ppoll"],
    },
    Primitive {
        cause: Other,
        strength: Default,
        leaf: Selection,
        functions: &["do_select", "core_sys_select", "select", "__select", "pselect*", "__pselect*"],
    },
    Primitive {
        cause: ConditionVariable,
        strength: Default,
        leaf: TimedSignal,
        functions: &[
            "pthread_cond_timedwait*",
            "__pthread_cond_timedwait*",
            "___pthread_cond_timedwait*",
            "uv_cond_timedwait",
        ],
    },
    Primitive {
        cause: ConditionVariable,
        strength: Default,
        leaf: Signal,
        functions: &[
            "pthread_cond_*wait*",
            "__pthread_cond_*wait*",
            "___pthread_cond_*wait*",
            "*std::sys::sync::condvar::*Condvar*::wait*",
            "*parking_lot::condvar::Condvar*::wait*",
            "uv_cond_wait",
            "eventfd_read",
        ],
    },
    Primitive {
        cause: ConditionVariable,
        strength: Default,
        leaf: Semaphore,
        functions: &[
            "sem_*wait*",
            "__new_sem_*wait*",
            "uv_sem_wait",
            "*std::__atomic_semaphore*_M_acquire*",
            "semop",
            "semtimedop",
            "__semtimedop",
            "__do_semtimedop",
        ],
    },
    Primitive {
        cause: ChildProcess,
        strength: Default,
        leaf: Process,
        functions: &["do_wait", "wait4", "__wait4", "__GI___wait4", "waitpid", "waitid"],
    },
    Primitive { cause: Pipe, strength: Default, leaf: Process, functions: &["anon_pipe_read", "pipe_read"] },
    // Room in a pipe: no thread waits for that in place of work.
    Primitive {
        cause: Pipe,
        strength: Default,
        leaf: Leaf::Own,
        functions: &["anon_pipe_write", "pipe_write"],
    },
    Primitive {
        cause: Barrier,
        strength: Default,
        leaf: Leaf::Own,
        functions: &["pthread_barrier_wait", "__pthread_barrier_wait", "___pthread_barrier_wait"],
    },
    // A terminal, a message of a queue of the kernel, a thread that ends.
    Primitive {
        cause: Other,
        strength: Default,
        leaf: Process,
        functions: &[
            "n_tty_read",
            "do_msgrcv",
            "msgrcv",
            "do_mq_timedreceive",
            "mq_receive",
            "mq_timedreceive",
            "pthread_join",
            "__pthread_clockjoin_ex",
            "__pthread_timedjoin_ex",
        ],
    },
];

/// Where no primitive matches: a program that waits by the system call itself. It can be a lock as well as a signal.
pub(crate) const FUTEX: Primitive = Primitive {
    cause: Other,
    strength: Default,
    leaf: Signal,
    functions: &["futex_wait", "__futex_wait", "futex_do_wait", "futex_wait_queue*"],
};
