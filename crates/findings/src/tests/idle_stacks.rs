//! Stacks of threads that wait for work beside their neighbours, which wait in the same primitives or libraries for something else.

use profiler_profile::ThreadState;

use super::Threads;
use crate::{
    WaitCause::{
        self, Barrier, ChildProcess, ConditionVariable, Connection, FullQueue, Idle, Lock, Other, Pipe,
        Sleep, SocketIo,
    },
    Waits,
};

const MAIN: &str = "_start;__libc_start_main@libc.so.6;main";
const THREAD: &str = "clone3@libc.so.6;start_thread@libc.so.6";
const CPP: &str = "clone3@libc.so.6;start_thread@libc.so.6;[libstdc++.so.6+0xd4490]@libstdc++.so.6;\
                   std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()";
const COND: &str = "pthread_cond_wait@libc.so.6;__futex_abstimed_wait_common@libc.so.6;futex_do_wait_[k]";
const GLIB: &str = "[libglib-2.0.so.0+0xa8970]@libglib-2.0.so.0";
const DATAGRAM: &str =
    "recvfrom@libc.so.6;__sys_recvfrom_[k];udp_recvmsg_[k];__skb_wait_for_more_packets_[k]";
const READ: &str = "read@libc.so.6;ksys_read_[k]";
/// Debian's interpreter has symbols of exported functions alone.
const PYTHON: &str = "Py_RunMain@python3.11;PyEval_EvalCode@python3.11;_PyEval_EvalFrameDefault@python3.11;[python3.11+0x692080]@python3.11";
const PYTHON_METHODS: &str = "thread_run@python3.12;_PyEval_EvalFrameDefault@python3.12";
const PYTHON_LOCK: &str = "PyThread_acquire_lock_timed@python3.12;sem_wait@libc.so.6";
const JAVA: &str = "JavaThread::run()@libjvm.so;jit void java.lang.Thread.run()";
const PARK: &str =
    "jit void jdk.internal.misc.Unsafe.park(boolean, long);Unsafe_Park@libjvm.so;pthread_cond_wait@libc.so.6";
const GO_WAIT: &str = "syscall.Syscall6;runtime/internal/syscall.Syscall6;do_wait_[k]";

/// The cause of the wait of the first of two threads; the other one computes.
fn cause(folded: &str) -> WaitCause {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, folded).add(1, ThreadState::OnCpu, "main;compute");
    let profile = threads.profile();
    Waits::of(&profile).cause(&profile.samples()[0]).expect("the thread is blocked")
}

fn check(rows: &[(String, WaitCause)]) {
    let wrong = rows.iter().filter(|(folded, expected)| cause(folded) != *expected);
    let wrong: Vec<_> =
        wrong.map(|(folded, expected)| format!("{} for {expected}: {folded}", cause(folded))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn native_threads() {
    check(&[
        // A pool of std::condition_variable, and a caller that waits for the result of one of its tasks.
        (format!("{CPP};Pool::run();std::condition_variable::wait@libstdc++.so.6;{COND}"), Idle),
        (
            format!("{CPP};Pool::submit();std::condition_variable::wait@libstdc++.so.6;{COND}"),
            ConditionVariable,
        ),
        (
            format!(
                "{CPP};std::__atomic_futex_unsigned_base::_M_futex_wait_until@libstdc++.so.6;futex_do_wait_[k]"
            ),
            ConditionVariable,
        ),
        (
            format!(
                "{CPP};serve();std::__atomic_semaphore::_M_acquire();syscall@libc.so.6;futex_do_wait_[k]"
            ),
            ConditionVariable,
        ),
        (
            format!(
                "{THREAD};serve;semop@libc.so.6;__semtimedop@libc.so.6;do_semtimedop_[k];__do_semtimedop_[k]"
            ),
            ConditionVariable,
        ),
        // Without optimization, the functions of the library are there.
        (
            format!(
                "{CPP};void std::__invoke_impl<void, void (Pool::*)(char), Pool*>(std::__invoke_memfun_deref);Pool::run(char);\
                 void std::_V2::condition_variable_any::wait<std::unique_lock<std::mutex> >(std::unique_lock<std::mutex>&);{COND}"
            ),
            Idle,
        ),
        (
            format!(
                "{CPP};asio::io_context::run();asio::detail::scheduler::run(std::error_code&);\
                 void asio::detail::posix_event::wait<asio::detail::conditionally_enabled_mutex::scoped_lock>(int);{COND}"
            ),
            Idle,
        ),
        (format!("{CPP};serve();std::latch::wait() const;syscall@libc.so.6;futex_do_wait_[k]"), Barrier),
        (
            format!(
                "{CPP};serve();void std::__atomic_wait_address<std::__tree_barrier<int>::wait()::{{lambda()#1}}>(int);\
                 syscall@libc.so.6;futex_do_wait_[k]"
            ),
            Barrier,
        ),
        (
            format!("{CPP};serve();__cxa_guard_acquire@libstdc++.so.6;syscall@libc.so.6;futex_do_wait_[k]"),
            Lock,
        ),
        (
            format!("{CPP};serve();pthread_once@libc.so.6;__pthread_once_slow@libc.so.6;futex_do_wait_[k]"),
            Lock,
        ),
        // A pipe, and one on which a caller waits for a response.
        (format!("{THREAD};run_commands;{READ};anon_pipe_read_[k]"), Idle),
        (format!("{THREAD};ask_worker;{READ};anon_pipe_read_[k]"), Pipe),
        // Queues of the kernel, from both sides.
        (format!("{THREAD};serve;__libc_msgrcv@libc.so.6;do_msgrcv_[k]"), Idle),
        (format!("{THREAD};serve;send_reply;__libc_msgsnd@libc.so.6;do_msgsnd_[k]"), Other),
        (format!("{THREAD};serve;mq_timedreceive@libc.so.6;do_mq_timedreceive_[k];wq_sleep_[k]"), Idle),
        (
            format!("{THREAD};fetch_price;mq_timedreceive@libc.so.6;do_mq_timedreceive_[k];wq_sleep_[k]"),
            Other,
        ),
        // Signals, files and completions of others.
        (format!("{THREAD};handle;{READ};vfs_read_[k];signalfd_read_iter_[k]"), Idle),
        (format!("{THREAD};handle;{READ};vfs_read_[k];inotify_read_[k]"), Idle),
        (format!("{THREAD};serve;{READ};vfs_read_[k];eventfd_read_[k]"), Idle),
        (format!("{THREAD};serve;syscall@libc.so.6;__do_sys_io_uring_enter_[k];io_cqring_wait_[k]"), Idle),
        (
            format!(
                "{THREAD};serve;write_row;syscall@libc.so.6;__do_sys_io_uring_enter_[k];io_cqring_wait_[k]"
            ),
            Other,
        ),
        (format!("{THREAD};serve;syscall@libc.so.6;__x64_sys_epoll_pwait2_[k];do_epoll_wait_[k]"), Idle),
        // A timer is a time as well.
        (format!("{THREAD};tick;{READ};vfs_read_[k];timerfd_read_iter_[k]"), Sleep),
        // Locks are not hidden, whatever the program calls them.
        (format!("{CPP};serve();std::mutex::lock();pthread_mutex_lock@libc.so.6;futex_do_wait_[k]"), Lock),
        // musl jumps from `pthread_mutex_lock` to a function with a limit of time.
        (
            "__clone;start;append;__pthread_mutex_timedlock;__timedwait;__timedwait_cp;futex_do_wait_[k]"
                .to_owned(),
            Lock,
        ),
        ("__clone;start;serve;__pthread_cond_timedwait;__timedwait_cp;futex_do_wait_[k]".to_owned(), Idle),
        (format!("{THREAD};serve;malloc;__lock;__futexwait;futex_do_wait_[k]"), Lock),
        // Locks of libraries that wait by the system call themselves.
        (format!("{THREAD};serve;{GLIB};syscall@libc.so.6;futex_do_wait_[k]"), Lock),
        (
            format!("{THREAD};serve;g_mutex_lock;g_mutex_lock_slowpath;syscall@libc.so.6;futex_do_wait_[k]"),
            Lock,
        ),
        (format!("{THREAD};{GLIB};g_cond_wait@libglib-2.0.so.0;syscall@libc.so.6;futex_do_wait_[k]"), Idle),
        (
            format!(
                "{THREAD};serve;absl::lts_2023::Mutex::LockSlowLoop(int);syscall@libc.so.6;futex_do_wait_[k]"
            ),
            Lock,
        ),
        // Datagrams: of any client, and a response.
        (format!("{THREAD};serve;{DATAGRAM}"), Idle),
        (format!("{THREAD};serve;ask_server;{DATAGRAM}"), SocketIo),
        // A pool of a library without symbols.
        (format!("{THREAD};[libuv.so.1+0xad10]@libuv.so.1;uv_cond_wait@libuv.so.1;{COND}"), Idle),
        (format!("{THREAD};fetch_price;uv_cond_wait;{COND}"), ConditionVariable),
        (
            format!(
                "{MAIN};g_main_context_iteration@libglib-2.0.so.0;[libglib-2.0.so.0+0x4]@libglib-2.0.so.0;poll@libc.so.6"
            ),
            Idle,
        ),
    ]);
}

#[test]
fn interpreters_without_symbols() {
    let select = "select@libc.so.6;core_sys_select_[k];do_select_[k]";
    check(&[
        (format!("{MAIN};{PYTHON};epoll_wait@libc.so.6;do_epoll_wait_[k]"), Idle),
        (format!("{MAIN};{PYTHON};{select}"), Idle),
        // A socket with a time limit.
        (format!("{MAIN};{PYTHON};poll@libc.so.6;do_sys_poll_[k]"), Other),
        // A library that the program calls.
        (format!("{MAIN};{PYTHON};fetch@native.so;{select}"), Other),
        // Before 3.11, `time.sleep` waits in `select` as well.
        (format!("{MAIN};_PyEval_EvalFrameDefault@python3.9;[python3.9+0x692080]@python3.9;{select}"), Other),
        (format!("{MAIN};Py_RunMain@python3.9;time_sleep@python3.9;{select}"), Sleep),
        (format!("{MAIN};{PYTHON};pthread_cond_timedwait@libc.so.6;futex_do_wait_[k]"), Lock),
    ]);
}

/// A queue of connections that are free looks like one of work, but for the functions that take from it.
#[test]
fn pools_of_connections() {
    let python = |callers: &str| {
        format!(
            "{THREAD};{PYTHON_METHODS};{callers};jit py::wait:/usr/lib/python3.12/threading.py;{PYTHON_LOCK}"
        )
    };
    let get = "jit py::get:/usr/lib/python3.12/queue.py";
    let java = |callers: &str| format!("{THREAD};{JAVA};{callers};{PARK}");
    let poll = "jit java.lang.Object java.util.concurrent.LinkedBlockingQueue.poll(long, java.util.concurrent.TimeUnit)";
    check(&[
        (python(&format!("jit py::run:/app/shop.py;{get}")), Idle),
        (
            python(
                "jit py::_do_get:/venv/sqlalchemy/pool/impl.py;jit py::get:/venv/sqlalchemy/util/queue.py",
            ),
            Connection,
        ),
        (python(&format!("jit py::get_connection:/venv/redis/connection.py;{get}")), Connection),
        (python(&format!("jit py::_get_conn:/venv/urllib3/connectionpool.py;{get}")), Connection),
        (
            python("jit py::getconn:/venv/psycopg_pool/pool.py;jit py::wait:/venv/psycopg_pool/pool.py"),
            Connection,
        ),
        (python("jit py::put:/usr/lib/python3.12/queue.py"), FullQueue),
        (java(poll), Idle),
        (java("jit java.lang.Object java.util.concurrent.LinkedBlockingQueue.take()"), Idle),
        (java("jit void java.util.concurrent.LinkedBlockingQueue.put(java.lang.Object)"), FullQueue),
        (
            java(
                "jit com.zaxxer.hikari.util.ConcurrentBag$IConcurrentBagEntry \
                 com.zaxxer.hikari.util.ConcurrentBag.borrow(long, java.util.concurrent.TimeUnit);\
                 jit java.lang.Object java.util.concurrent.SynchronousQueue.poll(long, java.util.concurrent.TimeUnit)",
            ),
            Connection,
        ),
        (
            java(
                "jit java.lang.Object org.apache.commons.pool2.impl.GenericObjectPool.borrowObject(long);\
                 jit java.lang.Object org.apache.commons.pool2.impl.LinkedBlockingDeque.pollFirst(long)",
            ),
            Connection,
        ),
        (
            java(
                "jit org.apache.http.pool.PoolEntry \
                 org.apache.http.pool.AbstractConnPool.getPoolEntryBlocking(java.lang.Object)",
            ),
            Connection,
        ),
    ]);
}

#[test]
fn threads_of_go() {
    let read = "os.(*File).Read;internal/poll.(*FD).Read;syscall.read;read_[k];anon_pipe_read_[k]";
    check(&[
        (format!("runtime.main;main.main;{read}"), Idle),
        (format!("runtime.main;main.main;main.fetchPrice;{read}"), Pipe),
        (
            format!("runtime.goexit;main.serve;os/exec.(*Cmd).Output;os.(*Process).wait;{GO_WAIT}"),
            ChildProcess,
        ),
        (format!("runtime.main;main.main;os/exec.(*Cmd).Run;os.(*Process).wait;{GO_WAIT}"), ChildProcess),
        // A supervisor.
        (format!("runtime.main;main.main;os.(*Process).Wait;os.(*Process).wait;{GO_WAIT}"), Idle),
    ]);
}

/// Frames of Go's library are not those of the program.
#[test]
fn a_finding_names_the_function_of_a_program_in_go() {
    let mut threads = Threads::wall();
    let convert = format!("runtime.goexit;main.convert;os/exec.(*Cmd).Run;os.(*Process).wait;{GO_WAIT}");
    for _ in 0..4 {
        threads.add_thread(
            "shop",
            &[(0, 90, Some(ThreadState::Blocked), &convert), (9, 10, Some(ThreadState::OnCpu), "main.parse")],
        );
    }
    threads.add(1, ThreadState::Blocked, "runtime.netpoll;epoll_wait_[k];do_epoll_wait_[k]");
    let [finding] = &threads.findings()[..] else { panic!("one finding") };
    assert!(finding.evidence.contains("wait for child processes below main.convert ("), "{finding}");
}
