//! The rules by which callers of primitives give the cause of a wait: data alone. `primitives.rs` has the primitives,
//! `cpu_rules.rs` the rules of CPU time.
//!
//! Patterns are those of `pattern.rs`, for names without the assembly: `System.Threading.Monitor.Enter*` matches
//! `System.Private.CoreLib!System.Threading.Monitor.Enter(object)`.

use crate::{
    WaitCause::{
        self, Barrier, ChildProcess, ConditionVariable, Connection, FullQueue, GcSuspension, Idle, Lock,
        NameResolution, Other, Semaphore, Sleep, SocketIo, SyncOverAsync,
    },
    code_rules::GO_LIBRARY,
    primitives::Leaf::{self, Descriptors, Process, Selection, Signal, TimedSignal},
};

/// A rule over the frames of a runtime or a library.
pub(crate) struct Rule {
    pub(crate) cause: WaitCause,
    /// The frame that decides, and frames that must be among its callers, in this order.
    pub(crate) frames: &'static [&'static str],
    /// Whether the runtime itself must wait: a method that it calls waits for something else.
    pub(crate) is_of_runtime: bool,
    /// The primitives in which it waits; empty for any.
    pub(crate) leaves: &'static [Leaf],
    /// The functions through which it reaches the primitive: below any other one, a callback waits. `None` for any but methods
    /// of the application.
    pub(crate) inner: Option<&'static [&'static str]>,
}

const fn rule(cause: WaitCause, frames: &'static [&'static str]) -> Rule {
    Rule { cause, frames, is_of_runtime: false, leaves: &[], inner: None }
}

/// A rule for a function of a runtime that can call methods of the application.
const fn runtime_rule(cause: WaitCause, frames: &'static [&'static str]) -> Rule {
    Rule { is_of_runtime: true, ..rule(cause, frames) }
}

/// A loop that waits for events itself, and runs callbacks.
const fn event_loop(frames: &'static [&'static str], inner: &'static [&'static str]) -> Rule {
    Rule { inner: Some(inner), ..rule(Idle, frames) }
}

/// A library that waits until a socket is ready.
const fn socket(frames: &'static [&'static str]) -> Rule {
    Rule { leaves: &[Descriptors, Selection], ..rule(SocketIo, frames) }
}

/// A function of libc that asks a name server.
const fn names(frames: &'static [&'static str]) -> Rule {
    Rule { leaves: &[Descriptors, Selection], ..rule(NameResolution, frames) }
}

/// Functions of Rust's runtimes and of its standard library between a loop and the system call.
const RUST_RUNTIME: &[&str] = &[
    "tokio::*",
    "mio::*",
    "std::*",
    "core::*",
    "parking_lot*",
    "<tokio::*",
    "<mio::*",
    "<std::*",
    "<core::*",
    "<parking_lot*",
];

/// A function that starts a command and waits for its end.
const fn command(frames: &'static [&'static str]) -> Rule {
    Rule {
        leaves: &[Process, Descriptors, Selection],
        inner: Some(RUST_RUNTIME),
        ..rule(ChildProcess, frames)
    }
}

/// A command of Go: src/os/exec/exec.go.
const GO_COMMAND: Rule = Rule { inner: Some(GO_LIBRARY), ..command(&["os/exec.(*Cmd).*"]) };

/// The global interpreter lock of Python: Python/ceval_gil.h.
const GIL: Rule = rule(Lock, &["take_gil"]);

/// As [`GIL`], in an interpreter without symbols: nothing else in it waits by `pthread_cond_timedwait`.
const STRIPPED_GIL: Rule = Rule { leaves: &[TimedSignal], inner: Some(&[]), ..rule(Lock, &["[*python3*"]) };

/// `select.select` in an interpreter without symbols, from the version on in which `time.sleep` does not use it as well: a list of
/// descriptors. Sockets with a time limit wait in `poll`.
const fn stripped_select(frames: &'static [&'static str]) -> Rule {
    Rule { leaves: &[Selection], inner: Some(&[]), ..rule(Idle, frames) }
}

/// A lock of GLib without symbols: the functions that wait for signals are exported, gthread-posix.c.
const STRIPPED_GLIB_LOCK: Rule =
    Rule { leaves: &[Signal], inner: Some(&[]), ..rule(Lock, &["[libglib-2.0.so*"]) };

/// A shell without symbols: jobs.c of dash.
const STRIPPED_SHELL: Rule = Rule { leaves: &[Process], inner: Some(&[]), ..rule(Idle, &["[dash*"]) };

/// The lock of a row, in a server without names of InnoDB's functions: `lock_wait` has a limit of time.
const ROW_LOCK: Rule = Rule { leaves: &[TimedSignal], ..rule(Other, &["handler::ha_*"]) };

/// An answer to a client that waits until the log has its commit: sql/net_serv.cc of MariaDB.
const PENDING_COMMIT: Rule = Rule { leaves: &[Signal, TimedSignal], ..rule(Other, &["net_real_write"]) };

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
    rule(NameResolution, &["System.Net.NameResolutionPal.*"]),
    rule(Barrier, &["System.Threading.Barrier.SignalAndWait*"]),
    rule(Barrier, &["System.Threading.CountdownEvent.Wait*"]),
    rule(Sleep, &["System.Threading.Thread.Sleep*"]),
    rule(Sleep, &["ThreadNative*Sleep*"]),
    // libuv and node.
    event_loop(&["uv__io_poll"], &[]),
    event_loop(&["uv_run"], &["uv__io_poll"]),
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
    rule(Idle, &["Threads::destroy_vm*"]),
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
    rule(Barrier, &["*java.util.concurrent.CyclicBarrier.dowait*"]),
    // Pools of connections.
    rule(Connection, &["*com.zaxxer.hikari.util.ConcurrentBag.borrow*"]),
    rule(Connection, &["Lcom/zaxxer/hikari/util/ConcurrentBag;::borrow*"]),
    rule(Connection, &["*org.apache.commons.pool2.impl.LinkedBlockingDeque.*"]),
    rule(Connection, &["*org.apache.http.pool.AbstractConnPool.getPoolEntryBlocking*"]),
    rule(Idle, &["*java.util.concurrent.*Blocking*.take*"]),
    rule(Idle, &["*java.util.concurrent.*Blocking*.poll*"]),
    rule(Idle, &["Ljava/util/concurrent/*Blocking*;::take*"]),
    rule(Idle, &["Ljava/util/concurrent/*Blocking*;::poll*"]),
    rule(FullQueue, &["*java.util.concurrent.*Blocking*.put*"]),
    rule(FullQueue, &["Ljava/util/concurrent/*Blocking*;::put*"]),
    // Go.
    rule(Lock, &["runtime.lock2"]),
    rule(Idle, &["runtime.notesleep"]),
    rule(Idle, &["runtime.notetsleep*"]),
    rule(Idle, &["runtime.mPark"]),
    rule(Idle, &["runtime.netpoll"]),
    rule(Idle, &["runtime.sysmon"]),
    // Python.
    GIL,
    STRIPPED_GIL,
    stripped_select(&["[*python3.11*"]),
    stripped_select(&["[*python3.12*"]),
    stripped_select(&["[*python3.13*"]),
    stripped_select(&["[*python3.14*"]),
    // Before 3.11, it calls `select`.
    rule(Sleep, &["pysleep*"]),
    rule(Sleep, &["time_sleep*"]),
    // Condition variables and queues wait for another kind of lock: Modules/_threadmodule.c.
    rule(Lock, &["rlock_acquire*"]),
    socket(&["sock_call_impl"]),
    socket(&["sock_recv*"]),
    socket(&["sock_send*"]),
    socket(&["sock_connect*"]),
    // The method of a queue without a limit, in which producers do not wait: Modules/_queuemodule.c.
    rule(Idle, &["_queue_SimpleQueue_get*"]),
    rule(Idle, &["[_queue.cpython-*"]),
    // Pools of connections: a queue of those that are free, or a condition variable.
    rule(Connection, &["py::wait:*threading.py", "py::get:*queue.py", "py::_do_get:*/sqlalchemy/pool/*"]),
    rule(
        Connection,
        &["py::wait:*threading.py", "py::get:*queue.py", "py::get_connection:*/redis/connection.py"],
    ),
    rule(
        Connection,
        &["py::wait:*threading.py", "py::get:*queue.py", "py::_get_conn:*/urllib3/connectionpool.py"],
    ),
    rule(Connection, &["py::wait:*threading.py", "py::getconn:*/psycopg_pool/*"]),
    // `queue.Queue.get` and `socketserver`, with the names of `-X perf`.
    rule(Idle, &["py::wait:*threading.py", "py::get:*queue.py"]),
    rule(FullQueue, &["py::wait:*threading.py", "py::put:*queue.py"]),
    rule(Idle, &["py::wait:*threading.py", "py::_worker:*thread.py"]),
    rule(Idle, &["py::select:*selectors.py", "py::serve_forever:*socketserver.py"]),
    // `select.select` has a list of descriptors; sockets with a time limit wait in `poll`.
    rule(Idle, &["select_select_impl*"]),
    // Event loops and runtimes in native code.
    STRIPPED_GLIB_LOCK,
    event_loop(&["g_main_context_*"], &["g_main_context_*", "g_poll"]),
    event_loop(&["g_main_loop_run"], &["g_main_context_*", "g_poll"]),
    event_loop(&["event_base_loop"], &["*_dispatch"]),
    event_loop(&["ev_run"], &["*_poll"]),
    event_loop(&["sd_event_*"], &["sd_event_*", "process_epoll"]),
    event_loop(&["tokio::runtime::*park*"], RUST_RUNTIME),
    event_loop(&["<tokio::runtime::*park*"], RUST_RUNTIME),
    event_loop(&["tokio::runtime::blocking::pool::*run*"], RUST_RUNTIME),
    event_loop(&["<tokio::runtime::blocking::pool::*run*"], RUST_RUNTIME),
    // Locks, before which a thread leaves its CPU to others some times: parking_lot.
    rule(Lock, &["*parking_lot::raw_mutex::RawMutex*::lock_slow"]),
    rule(Lock, &["*parking_lot::raw_rwlock::RawRwLock*::lock_*_slow"]),
    // Channels with a limit, and those without one, in which senders do not wait: library/std/src/sync/mpmc of Rust, crossbeam-channel.
    rule(FullQueue, &["*std::sync::mpmc::*::Channel<*::send*"]),
    rule(Idle, &["*std::sync::mpmc::*::Channel<*::recv*"]),
    rule(FullQueue, &["*crossbeam_channel::flavors::*::Channel<*::send*"]),
    rule(Idle, &["*crossbeam_channel::flavors::*::Channel<*::recv*"]),
    event_loop(&["erts_check_io"], &["erts_poll_wait*"]),
    event_loop(&["erts_schedule"], &["erts_*", "ethr_event_*"]),
    event_loop(&["tpool::thread_pool_generic::get_task*"], &["tpool::thread_pool_generic::wait_for_tasks*"]),
    event_loop(&["ap_queue_pop_something"], &[]),
    // Commands of the thread itself: sysdeps/posix/system.c and libio/iopopen.c of the GNU C library, library/std/src/process.rs.
    command(&["system"]),
    command(&["do_system"]),
    command(&["__libc_system"]),
    command(&["pclose"]),
    command(&["_IO_*proc_close*"]),
    command(&["*std::process::Command*::status"]),
    command(&["*std::process::Command*::output"]),
    GO_COMMAND,
    // Shells, for a command: the time is that of its process. jobs.c and eval.c of bash.
    rule(Idle, &["wait_for", "reader_loop"]),
    rule(Idle, &["wait_for", "parse_and_execute"]),
    STRIPPED_SHELL,
    // The name service of libc.
    names(&["getaddrinfo*"]),
    names(&["gethostby*"]),
    names(&["__res_context_send*"]),
    rule(Barrier, &["std::sync::barrier::Barrier::wait"]),
    // The GNU C++ library: barrier, latch.
    rule(Barrier, &["*std::__tree_barrier<*"]),
    rule(Barrier, &["std::barrier<*"]),
    rule(Barrier, &["std::latch::*"]),
    // A result of another thread: std::future of the GNU C++ library.
    rule(ConditionVariable, &["std::__atomic_futex_unsigned_base::*"]),
    socket(&["curl_multi_*"]),
    socket(&["curl_easy_*"]),
    socket(&["PQ*"]),
    socket(&["mysql_*"]),
    socket(&["SSL_*"]),
    // PHP: main/streams, ext/mysqlnd.
    socket(&["_php_stream_*"]),
    socket(&["mysqlnd_*"]),
    // Apache: the next request of a connection.
    rule(Idle, &["apr_wait_for_io_or_timeout", "ap_read_request*"]),
    socket(&["apr_wait_for_io_or_timeout"]),
    // PostgreSQL: src/backend/storage/lmgr, proc.c and lwlock.c.
    rule(Other, &["ProcSleep"]),
    rule(Lock, &["LWLockAcquire*"]),
    rule(Sleep, &["pg_sleep"]),
    // MariaDB: sql/mdl.cc, mysys/thr_lock.c; the main loop of a connection, for its next command.
    rule(Other, &["MDL_wait::timed_wait*"]),
    rule(Other, &["thr_lock"]),
    rule(Other, &["lock_wait(*"]),
    ROW_LOCK,
    PENDING_COMMIT,
    rule(Idle, &["my_net_read_packet*", "do_command*"]),
];

/// Functions in which threads of interpreters and virtual machines wait for locks, for signals and for items of queues alike, as far as
/// their methods have no names. Python: Python/thread_pthread.h. Java: Unsafe.park and Object.wait.
pub(crate) const HIDDEN_WAITS: &[&str] = &["PyThread_acquire_lock_timed", "Unsafe_Park*", "JVM_MonitorWait*"];

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
    "Timer-*",
    // One for each child process of a Java program.
    "process reaper*",
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
    "*std::sys::sync::condvar::*",
    "*parking_lot::condvar::*",
];

/// The first frames of rules for the global interpreter lock of Python.
pub(crate) const GIL_RULES: &[&str] = &[GIL.frames[0], STRIPPED_GIL.frames[0]];

/// The first frames of rules for locks that a transaction of a database holds until it ends: src/backend/storage/lmgr/proc.c of
/// PostgreSQL, sql/mdl.cc, mysys/thr_lock.c and storage/innobase/lock/lock0lock.cc of MariaDB.
pub(crate) const TRANSACTION_LOCK_RULES: &[&str] =
    &["ProcSleep", "MDL_wait::timed_wait*", "thr_lock", "lock_wait(*", ROW_LOCK.frames[0]];

/// The first frames of rules for answers that wait for a commit of another thread.
pub(crate) const COMMIT_RULES: &[&str] = &[PENDING_COMMIT.frames[0]];

/// System calls that wait until data is on a disk.
pub(crate) const SYNCHRONIZATIONS: &[&str] =
    &["do_fsync", "vfs_fsync*", "fsync", "fdatasync", "__fsync", "__fdatasync", "__GI_fsync"];
