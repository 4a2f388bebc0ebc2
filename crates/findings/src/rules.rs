//! The rules by which frames give the cause of a wait: data alone. `cpu_rules.rs` has those of CPU time.
//!
//! Patterns are those of `pattern.rs`, for names without the assembly: `System.Threading.Monitor.Enter*` matches
//! `System.Private.CoreLib!System.Threading.Monitor.Enter(object)`.

use self::Strength::{Default, Final, Yields};
use crate::WaitCause::{
    self, ChildProcess, ConditionVariable, Connection, FileIo, FullQueue, GcSuspension, Idle, Lock, Other,
    PageFault, Semaphore, Sleep, SocketIo, SyncOverAsync,
};

/// A rule over the functions of the kernel and of libc in which threads wait.
pub(crate) struct Primitive {
    pub(crate) cause: WaitCause,
    pub(crate) strength: Strength,
    pub(crate) functions: &'static [&'static str],
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
        functions: &["asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault"],
    },
    Primitive {
        cause: FileIo,
        strength: Final,
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
        ],
    },
    Primitive {
        cause: SocketIo,
        strength: Final,
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
            "getaddrinfo",
            "__res_context_send",
        ],
    },
    Primitive {
        cause: Lock,
        strength: Final,
        functions: &[
            "pthread_mutex_lock*",
            "__pthread_mutex_lock*",
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "pthread_mutex_timedlock*",
            "pthread_mutex_clocklock",
            "__lll_lock_wait*",
            "pthread_rwlock_*lock*",
            "__pthread_rwlock_*lock*",
            "___pthread_rwlock_*lock*",
            "pthread_spin_lock",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
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
        functions: &[
            "hrtimer_nanosleep",
            "common_nsleep*",
            "nanosleep",
            "__nanosleep",
            "clock_nanosleep*",
            "__clock_nanosleep*",
            "usleep",
            "sleep",
        ],
    },
    // A thread that spins, in the run queue by its own choice.
    Primitive {
        cause: Other,
        strength: Yields,
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
        functions: &["do_epoll_wait", "ep_poll", "epoll_wait", "epoll_pwait*", "io_cqring_wait"],
    },
    // One descriptor as well as many.
    Primitive {
        cause: Other,
        strength: Default,
        functions: &[
            "do_sys_poll",
            "do_select",
            "core_sys_select",
            "poll",
            "__poll",
            "ppoll",
            "select",
            "pselect*",
        ],
    },
    Primitive {
        cause: ConditionVariable,
        strength: Default,
        functions: &[
            "pthread_cond_*wait*",
            "__pthread_cond_*wait*",
            "___pthread_cond_*wait*",
            "sem_*wait*",
            "__new_sem_*wait*",
            "eventfd_read",
        ],
    },
];

/// A rule over the frames of a runtime or a library.
pub(crate) struct Rule {
    pub(crate) cause: WaitCause,
    /// The frame that decides, and frames that must be among its callers, in this order.
    pub(crate) frames: &'static [&'static str],
    /// Whether the runtime itself must wait: a method that it calls waits for something else.
    pub(crate) is_of_runtime: bool,
}

const fn rule(cause: WaitCause, frames: &'static [&'static str]) -> Rule {
    Rule { cause, frames, is_of_runtime: false }
}

/// A rule for a function of a runtime that can call methods of the application.
const fn runtime_rule(cause: WaitCause, frames: &'static [&'static str]) -> Rule {
    Rule { cause, frames, is_of_runtime: true }
}

/// The frame nearest to the leaf that matches decides, and of its rules the first.
pub(crate) const RULES: &[Rule] = &[
    // .NET: its own threads.
    rule(Idle, &["System.Threading.LowLevelLifoSemaphore.Wait*"]),
    rule(Idle, &["CLRLifoSemaphore::Wait*", "ThreadpoolMgr::WorkerThreadStart*"]),
    rule(Idle, &["System.Threading.PortableThreadPool.GateThread.*"]),
    rule(Idle, &["System.Threading.PortableThreadPool.WaitThread.*"]),
    rule(Idle, &["ThreadpoolMgr::GateThreadStart*"]),
    runtime_rule(Idle, &["ThreadpoolMgr::WaitThreadStart*"]),
    runtime_rule(Idle, &["ThreadpoolMgr::TimerThread*"]),
    runtime_rule(Idle, &["ThreadpoolMgr::CompletionPortThreadStart*"]),
    rule(Idle, &["System.Threading.TimerQueue.TimerThread*"]),
    rule(Idle, &["FinalizerThread::WaitForFinalizerEvent*"]),
    runtime_rule(Idle, &["FinalizerThread::FinalizerThreadWorker*"]),
    rule(Idle, &["TieredCompilationManager::BackgroundWorker*"]),
    rule(Idle, &["TieredCompilation::BackgroundWorker*"]),
    rule(Idle, &["*gc_heap::gc_thread_stub*"]),
    rule(Idle, &["*gc_heap::gc_thread_function*"]),
    rule(Idle, &["*gc_heap::bgc_thread_function*"]),
    rule(Idle, &["DiagnosticsServerThread*"]),
    rule(Idle, &["DiagnosticServer::*"]),
    rule(Idle, &["EventPipeSession::ThreadProc*"]),
    rule(Idle, &["DebuggerRCThread::*"]),
    rule(Idle, &["DbgTransportSession::*"]),
    rule(Idle, &["CorUnix::CPalSynchronizationManager::WorkerThread*"]),
    rule(Idle, &["SignalHandlerLoop"]),
    rule(Idle, &["System.Net.Sockets.SocketAsyncEngine.*"]),
    // Without a message. With one, it writes to the standard output, which can wait for a reader.
    rule(Idle, &["System.Threading.Monitor.Wait*", "*.ConsoleLoggerProcessor.ProcessLogQueue*"]),
    rule(Idle, &["Monitor_Wait*", "*.ConsoleLoggerProcessor.ProcessLogQueue*"]),
    rule(Idle, &["Microsoft.Extensions.Logging.Console.ConsoleLoggerProcessor.TryDequeue*"]),
    rule(Idle, &["Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Infrastructure.Heartbeat.*"]),
    // A consumer. Its wait is one at a semaphore, unless a cancellation ends it.
    rule(Idle, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*.TryTake*"]),
    rule(Idle, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*>.Take*"]),
    rule(Idle, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*].Take*"]),
    rule(Idle, &["*BlockingCollection*.TryTake*"]),
    rule(Idle, &["*BlockingCollection*>.Take*"]),
    rule(Idle, &["*BlockingCollection*].Take*"]),
    rule(Idle, &["*BlockingCollection*.GetConsumingEnumerable*"]),
    // The main thread, for the end of the host.
    rule(
        Idle,
        &[
            "System.Threading.Tasks.Task.SpinThenBlockingWait*",
            "Microsoft.Extensions.Hosting.HostingAbstractionsHostExtensions.*",
        ],
    ),
    // The method that the compiler adds to an asynchronous Main.
    rule(
        Idle,
        &[
            "System.Threading.Tasks.Task.SpinThenBlockingWait*",
            "System.Runtime.CompilerServices.TaskAwaiter*.GetResult*",
            "*<Main>(*",
        ],
    ),
    // .NET: what application code waits for.
    rule(GcSuspension, &["Thread::RareDisablePreemptiveGC*"]),
    rule(GcSuspension, &["ThreadSuspend::*"]),
    rule(GcSuspension, &["*gc_heap::wait_for_gc_done*"]),
    // The allocator, until a collection makes space.
    rule(GcSuspension, &["*gc_heap::*allocate_more_space*"]),
    rule(GcSuspension, &["*GCHeap::WaitUntilGCComplete*"]),
    rule(GcSuspension, &["JIT_RareDisable*"]),
    rule(GcSuspension, &["JIT_PollGC*"]),
    // In runtimes without symbols, the helpers that the tables of the runtime name: an allocation waits for collections alone.
    runtime_rule(GcSuspension, &["CORINFO_HELP_NEW*"]),
    runtime_rule(GcSuspension, &["CORINFO_HELP_BOX*"]),
    runtime_rule(GcSuspension, &["CORINFO_HELP_ALLOC_CONTINUATION*"]),
    runtime_rule(GcSuspension, &["READYTORUN_HELPER_New*"]),
    runtime_rule(GcSuspension, &["READYTORUN_HELPER_Box*"]),
    runtime_rule(GcSuspension, &["READYTORUN_FIXUP_New*"]),
    runtime_rule(GcSuspension, &["CORINFO_HELP_STOP_FOR_GC"]),
    runtime_rule(GcSuspension, &["CORINFO_HELP_POLL_GC"]),
    runtime_rule(GcSuspension, &["READYTORUN_HELPER_GCPoll"]),
    // From native code back to managed code: the thread waits for the end of a suspension alone.
    runtime_rule(GcSuspension, &["CORINFO_HELP_JIT_PINVOKE_END"]),
    runtime_rule(GcSuspension, &["CORINFO_HELP_JIT_REVERSE_PINVOKE_ENTER*"]),
    runtime_rule(GcSuspension, &["READYTORUN_HELPER_PInvokeEnd"]),
    runtime_rule(GcSuspension, &["READYTORUN_HELPER_ReversePInvokeEnter"]),
    rule(GcSuspension, &["System.GC.Collect*"]),
    rule(Lock, &["System.Threading.Monitor.Enter*"]),
    rule(Lock, &["System.Threading.Monitor.ReliableEnter*"]),
    rule(Lock, &["System.Threading.Monitor.TryEnter*"]),
    rule(Lock, &["Monitor_Enter*"]),
    rule(Lock, &["Monitor_TryEnter*"]),
    rule(Lock, &["JIT_MonEnter*"]),
    rule(Lock, &["JIT_MonReliableEnter*"]),
    runtime_rule(Lock, &["READYTORUN_HELPER_MonitorEnter"]),
    runtime_rule(Lock, &["CORINFO_HELP_MON_ENTER*"]),
    // Locks of the runtime: of a type initializer that another thread executes, of a type or a method that is loaded.
    runtime_rule(Lock, &["READYTORUN_HELPER_Generic*Base"]),
    runtime_rule(Lock, &["READYTORUN_HELPER_DelayLoad_*"]),
    // These execute no type initializer.
    runtime_rule(Other, &["CORINFO_HELP_*_NOCTOR*"]),
    runtime_rule(Lock, &["CORINFO_HELP_GET*STATIC_BASE*"]),
    runtime_rule(Lock, &["CORINFO_HELP_GETSTATICFIELDADDR*"]),
    runtime_rule(Lock, &["CORINFO_HELP_CLASSINIT_*"]),
    runtime_rule(Lock, &["CORINFO_HELP_INITCLASS"]),
    runtime_rule(Lock, &["CORINFO_HELP_INITINSTCLASS"]),
    runtime_rule(Lock, &["CORINFO_HELP_EE_PRESTUB"]),
    runtime_rule(Lock, &["System.Runtime.CompilerServices.InitHelpers.*"]),
    runtime_rule(Lock, &["System.Runtime.CompilerServices.StaticsHelpers.*"]),
    runtime_rule(Lock, &["MethodTable::DoRunClassInitThrowing*"]),
    runtime_rule(Lock, &["DeadlockAwareLock::*"]),
    runtime_rule(Lock, &["CrstBase::Enter*"]),
    rule(Lock, &["AwareLock::Enter*"]),
    rule(Lock, &["System.Threading.Lock.Enter*"]),
    rule(Lock, &["System.Threading.Lock.TryEnter*"]),
    rule(Lock, &["System.Threading.ReaderWriterLockSlim.TryEnter*"]),
    // The back-off of a spinning thread sleeps.
    rule(Lock, &["System.Threading.Thread.Sleep*", "System.Threading.SpinLock.*"]),
    rule(Lock, &["ThreadNative*Sleep*", "System.Threading.SpinLock.*"]),
    rule(ConditionVariable, &["System.Threading.Thread.Sleep*", "System.Threading.SpinWait.*"]),
    rule(ConditionVariable, &["ThreadNative*Sleep*", "System.Threading.SpinWait.*"]),
    rule(Lock, &["System.Threading.SpinLock.*Enter*"]),
    rule(FullQueue, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*.TryAdd*"]),
    rule(FullQueue, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*>.Add*"]),
    rule(FullQueue, &["System.Threading.SemaphoreSlim.Wait*", "*BlockingCollection*].Add*"]),
    rule(FullQueue, &["*BlockingCollection*.TryAdd*"]),
    rule(FullQueue, &["*BlockingCollection*>.Add*"]),
    rule(FullQueue, &["*BlockingCollection*].Add*"]),
    rule(FullQueue, &["Microsoft.Extensions.Logging.Console.ConsoleLoggerProcessor.Enqueue*"]),
    rule(Connection, &["System.Threading.SemaphoreSlim.Wait*", "MySqlConnector.Core.ConnectionPool.*"]),
    rule(Semaphore, &["System.Threading.SemaphoreSlim.Wait*"]),
    rule(Lock, &["System.Threading.ReaderWriterLock.Acquire*"]),
    rule(Lock, &["System.Threading.ReaderWriterLock.UpgradeTo*"]),
    // Pools of connections, while all are in use.
    rule(
        Connection,
        &[
            "System.Threading.Tasks.Task.SpinThenBlockingWait*",
            "*.WaitWithCancellation*",
            "System.Net.Http.HttpConnectionPool.*",
        ],
    ),
    rule(Connection, &["System.Threading.Tasks.Task.SpinThenBlockingWait*", "Npgsql.PoolingDataSource.*"]),
    rule(Connection, &["System.Threading.WaitHandle.Wait*", "*.ProviderBase.DbConnectionPool.*"]),
    // A loop in parallel waits for its part that other threads execute.
    rule(
        ConditionVariable,
        &["System.Threading.Tasks.Task.SpinThenBlockingWait*", "System.Threading.Tasks.Parallel.*"],
    ),
    rule(ConditionVariable, &["System.Threading.Tasks.Task.SpinThenBlockingWait*", "System.Linq.Parallel.*"]),
    rule(ChildProcess, &["System.Diagnostics.Process.WaitForExit*"]),
    rule(ChildProcess, &["System.Diagnostics.ProcessWaitState.WaitForExit*"]),
    rule(Idle, &["System.Net.HttpListener.GetContext*"]),
    rule(SyncOverAsync, &["System.Threading.Tasks.Task.SpinThenBlockingWait*"]),
    rule(SyncOverAsync, &["System.Threading.Tasks.Task.InternalWaitCore*"]),
    rule(SyncOverAsync, &["System.Threading.Tasks.Task.WaitA*"]),
    rule(SocketIo, &["System.Net.Sockets.Socket*"]),
    rule(SocketIo, &["System.Net.NameResolutionPal.*"]),
    rule(Sleep, &["System.Threading.Thread.Sleep*"]),
    rule(Sleep, &["ThreadNative*Sleep*"]),
    // libuv and node.
    rule(Other, &["uv_run", "node::SyncProcessRunner::*"]),
    rule(Idle, &["uv__io_poll"]),
    rule(Idle, &["uv_run"]),
    rule(Idle, &["uv_cond_wait", "worker"]),
    rule(Idle, &["node::TaskQueue*"]),
    rule(Idle, &["node::*PlatformWorkerThread*"]),
    rule(Idle, &["node::*DelayedTaskScheduler*"]),
    rule(Idle, &["node::inspector::*StartIoThreadMain*"]),
    // Java, as JVMs and agents spell its methods in perf maps.
    rule(Idle, &["*java.util.concurrent.ThreadPoolExecutor.getTask*"]),
    rule(Idle, &["Ljava/util/concurrent/ThreadPoolExecutor;::getTask"]),
    rule(Idle, &["*java.util.concurrent.ForkJoinPool.awaitWork*"]),
    rule(Idle, &["Ljava/util/concurrent/ForkJoinPool;::awaitWork"]),
    rule(Idle, &["*sun.nio.ch.EPoll*"]),
    rule(Idle, &["Lsun/nio/ch/EPoll*"]),
    rule(Idle, &["*java.lang.ref.Reference.waitForReferencePendingList*"]),
    rule(Idle, &["*java.lang.ref.ReferenceQueue.remove*"]),
    rule(Idle, &["*java.util.TimerThread.mainLoop*"]),
    rule(Idle, &["CallJavaMainInNewThread"]),
    rule(Idle, &["GangWorker::loop*"]),
    rule(Idle, &["WorkerThread::run*"]),
    rule(Idle, &["ConcurrentGCThread::run*"]),
    rule(Idle, &["VMThread::wait_for_operation*"]),
    rule(Idle, &["JVM_WaitForReferencePendingList"]),
    rule(Idle, &["signal_thread_entry*"]),
    rule(Idle, &["ServiceThread::service_thread_entry*"]),
    rule(Idle, &["MonitorDeflationThread::*"]),
    rule(Idle, &["CompileQueue::get*"]),
    rule(Idle, &["NMethodSweeper::sweeper_loop*"]),
    rule(Idle, &["NotificationThread::*"]),
    rule(Idle, &["WatcherThread::sleep*"]),
    rule(Sleep, &["JVM_Sleep*"]),
    rule(GcSuspension, &["SafepointSynchronize::block*"]),
    rule(GcSuspension, &["SafepointMechanism::process*"]),
    rule(Lock, &["*java.util.concurrent.locks.*Lock.lock(*"]),
    rule(Lock, &["ObjectMonitor::enter*"]),
    rule(SocketIo, &["*sun.nio.ch.NioSocketImpl.*"]),
    rule(SocketIo, &["*java.net.SocketInputStream.*"]),
    // Go.
    rule(Lock, &["runtime.lock2"]),
    rule(Idle, &["runtime.notesleep"]),
    rule(Idle, &["runtime.notetsleep*"]),
    rule(Idle, &["runtime.mPark"]),
    rule(Idle, &["runtime.netpoll"]),
    rule(Idle, &["runtime.sysmon"]),
    // Python: the global interpreter lock.
    rule(Lock, &["take_gil"]),
    // Event loops and runtimes in native code.
    rule(Idle, &["g_main_context_*"]),
    rule(Idle, &["event_base_loop"]),
    rule(Idle, &["ev_run"]),
    rule(Idle, &["sd_event_*"]),
    rule(Idle, &["tokio::runtime::*park*"]),
    rule(Idle, &["tokio::runtime::blocking::pool::*run*"]),
    rule(SocketIo, &["curl_multi_*"]),
    rule(SocketIo, &["curl_easy_*"]),
    rule(SocketIo, &["PQ*"]),
    rule(SocketIo, &["mysql_*"]),
    rule(SocketIo, &["SSL_*"]),
];

/// Threads of runtimes that wait for work unless they execute code of the application. The kernel cuts names after 15
/// bytes.
pub(crate) const SERVICE_THREADS: &[&str] = &[
    ".NET BGC",
    ".NET DebugPipe",
    ".NET Debugger",
    ".NET EventPipe",
    ".NET Finalizer",
    ".NET Server GC",
    ".NET SigHandler",
    ".NET Sockets",
    ".NET SynchManag",
    ".NET TP Gate",
    ".NET Tiered Com",
    ".NET Timer",
    "Finalizer",
    "Common-Cleaner",
    "Signal Dispatch",
    "V8Worker",
];

/// Frames of workers of the .NET thread pool, whether they have work or not.
pub(crate) const POOL_WORKERS: &[&str] = &[
    "System.Threading.PortableThreadPool.WorkerThread.*",
    "System.Threading.ThreadPoolWorkQueue.Dispatch*",
    "System.Threading._ThreadPoolWaitCallback.*",
    "ThreadpoolMgr::WorkerThreadStart*",
];

/// Frames of threads that request garbage collections of .NET.
pub(crate) const COLLECTION_REQUESTS: &[&str] = &["System.GC.Collect*", "GCInterface_Collect*"];

/// Frames of threads that make .NET compile methods that they generate.
pub(crate) const DYNAMIC_METHODS: &[&str] = &[
    "System.Reflection.Emit.DynamicMethod.*",
    "System.Linq.Expressions.*Compile*",
    "System.Linq.Expressions.Compiler.*",
    "ReflectionInvocation_CompileMethod",
];

/// Frames of functions that throw an exception again: an await, after the task has thrown it.
pub(crate) const RETHROWS: &[&str] = &[
    "System.Runtime.ExceptionServices.ExceptionDispatchInfo.Throw*",
    "System.Runtime.CompilerServices.*TaskAwaiter*.HandleNonSuccess*",
    "System.Runtime.CompilerServices.*TaskAwaiter*.ThrowForNonSuccess*",
    "System.Threading.Tasks.Task.ThrowIfExceptional*",
];

/// Frames of threads that wait for the lock of a file.
pub(crate) const FILE_LOCKS: &[&str] =
    &["flock", "__GI___flock", "lockf*", "locks_lock_inode_wait", "fcntl_setlk*", "do_lock_file_wait"];

/// Frames of threads that log to the console of .NET.
pub(crate) const CONSOLE_LOGGERS: &[&str] =
    &["Microsoft.Extensions.Logging.Console.ConsoleLoggerProcessor.Enqueue*"];

/// Frames of the thread that executes finalizers of .NET.
pub(crate) const FINALIZERS: &[&str] = &["System.GC.RunFinalizers*", "FinalizerThread::Finalize*"];

/// Frames of threads that wait for finalizers of .NET.
pub(crate) const FINALIZER_WAITS: &[&str] =
    &["System.GC.WaitForPendingFinalizers*", "GCInterface_WaitForPendingFinalizers"];

/// Functions of the application or of its libraries that take a lock for their callers.
pub(crate) const LOCK_WRAPPERS: &[&str] =
    &["*mutex*lock*", "*Mutex*ock*", "*_lock", "*_lock_*", "*::lock*", "*acquire*"];

/// Waits on condition variables: the thread releases the lock of the variable meanwhile.
pub(crate) const CONDITION_WAITS: &[&str] = &[
    "System.Threading.Monitor.Wait*",
    "System.Threading.Monitor.ObjWait*",
    "Monitor_Wait*",
    "pthread_cond_*wait*",
    "__pthread_cond_*wait*",
    "___pthread_cond_*wait*",
    "std::condition_variable*::wait*",
    "std::sys::sync::condvar*",
];

/// Clients of other services: below them, a socket is that of a service. Elsewhere, it may be that of a client of this program
/// that sends no request.
pub(crate) const CLIENTS: &[&str] = &[
    "curl_*",
    "PQ*",
    "mysql_*",
    "redisCommand*",
    "mongoc_*",
    "System.Net.Http.*",
    "System.Net.HttpWebRequest.*",
    "System.Net.WebClient.*",
    "System.Net.FtpWebRequest.*",
    "System.Net.Mail.SmtpClient.*",
    "System.Net.Sockets.Socket.Connect*",
    "System.Net.Sockets.TcpClient.Connect*",
    "System.Net.Dns.*",
    "System.Data.*",
    "Microsoft.Data.*",
    "Npgsql.*",
    "MySqlConnector.*",
    "MySql.Data.*",
    "StackExchange.Redis.*",
    "MongoDB.Driver.*",
    "RabbitMQ.Client.*",
    "Grpc.Net.Client.*",
];

/// Assemblies of frameworks: code that the user of the profiler does not write.
pub(crate) const FRAMEWORKS: &[&str] =
    &["System.*", "System", "Microsoft.*", "mscorlib", "netstandard", "WindowsBase"];

/// Modules of libc and of runtimes.
pub(crate) const RUNTIME_MODULES: &[&str] = &[
    "libc.so*",
    "libc-*",
    "libpthread*",
    "ld-*",
    "libstdc++*",
    "libgcc_s*",
    "libcoreclr.so",
    "libclr*.so",
    "libhost*.so",
    "libSystem.*",
    "libjvm.so",
    "dotnet",
    "[vdso]",
];

/// Functions that are not of the application, in whatever module they are: those that start programs and threads, and names that
/// C reserves for the implementation (ISO C11, 7.1.3), which a statically linked program contains: `__libc_pread64`.
pub(crate) const RUNTIME_FUNCTIONS: &[&str] = &["_start", "start_thread", "start", "clone*", "__*"];
