//! Waits in main loops and within work: the same primitives and the same libraries on both sides.

use profiler_profile::{FindingKind, ThreadState};

use super::Threads;
use crate::{WaitCause, Waits};

/// The cause of the wait of the first of two threads; the other one computes.
fn cause(folded: &str) -> WaitCause {
    let mut threads = Threads::wall();
    threads.add(1, ThreadState::Blocked, folded).add(1, ThreadState::OnCpu, "main;compute");
    let profile = threads.profile();
    Waits::of(&profile).cause(&profile.samples()[0]).expect("the thread is blocked")
}

const COND: &str = "pthread_cond_wait@libc.so.6";
const EPOLL: &str = "epoll_wait@libc.so.6";
const MAIN: &str = "_start;__libc_start_main@libc.so.6;main";
const THREAD: &str = "clone3@libc.so.6;start_thread@libc.so.6";

#[test]
fn a_loop_is_idle_where_it_waits_itself_and_not_below_a_callback() {
    for (event_loop, callback) in [
        ("uv_run;uv__io_poll", "uv__stream_io;on_read"),
        ("event_base_loop;epoll_dispatch", "on_read"),
        ("ev_run;epoll_poll", "on_read"),
        ("g_main_loop_run;g_main_context_iteration;g_poll", "on_read"),
        ("tokio::runtime::park::CachedParkThread::park", "shop::handle"),
        ("<tokio::runtime::park::CachedParkThread>::park", "shop::handle"),
        ("erts_schedule;erts_check_io", "shop_nif"),
    ] {
        assert_eq!(cause(&format!("{MAIN};{event_loop};{EPOLL}")), WaitCause::Idle, "{event_loop}");
        let waits_in_callback = cause(&format!("{MAIN};{event_loop};{callback};{COND}"));
        assert_eq!(waits_in_callback, WaitCause::ConditionVariable, "{event_loop}");
    }
}

#[test]
fn a_loop_that_a_method_runs_is_not_the_loop_of_the_thread() {
    let main_loop = format!("{MAIN};node::Start(int, char**);uv_run;uv__io_poll;{EPOLL}");
    let nested = format!(
        "{MAIN};node::Start(int, char**);uv_run;uv__io_poll;on_read;app!handle;node::SyncProcessRunner::Run();uv_run;\
         uv__io_poll;{EPOLL}"
    );
    assert_eq!((cause(&main_loop), cause(&nested)), (WaitCause::Idle, WaitCause::Other));
}

#[test]
fn a_method_between_a_loop_of_a_runtime_and_the_leaf_is_work() {
    let timer = "System.Private.CoreLib!System.Threading.TimerQueue.TimerThread()";
    assert_eq!(cause(&format!("{THREAD};{timer};{COND}")), WaitCause::Idle);
    assert_eq!(cause(&format!("{THREAD};{timer};shop!Shop.Tick();{COND}")), WaitCause::ConditionVariable);
}

#[test]
fn threads_that_wait_in_their_main_loop_are_idle() {
    for folded in [
        format!("{THREAD};bioProcessBackgroundJobs;{COND}"),
        format!("{THREAD};worker_main;wait_for_tasks;{COND}"),
        format!("{MAIN};server_loop;select@libc.so.6"),
        format!("{MAIN};server_loop;ppoll@libc.so.6"),
        format!("{MAIN};run_jobs;__wait4@libc.so.6"),
        format!("{MAIN};pthread_join@libc.so.6"),
        format!("{THREAD};run_commands;read@libc.so.6;anon_pipe_read"),
    ] {
        assert_eq!(cause(&folded), WaitCause::Idle, "{folded}");
    }
}

#[test]
fn functions_that_do_work_or_need_a_resource_are_no_main_loop() {
    for (folded, expected) in [
        (format!("{THREAD};producer;{COND}"), WaitCause::ConditionVariable),
        (format!("{THREAD};run;queue_push;{COND}"), WaitCause::ConditionVariable),
        (format!("{THREAD};run;Pool::acquireConnection(int);{COND}"), WaitCause::ConditionVariable),
        (format!("{THREAD};run;commit_transaction;{COND}"), WaitCause::ConditionVariable),
        (format!("{THREAD};run;take;sem_wait@libc.so.6"), WaitCause::ConditionVariable),
        (format!("{MAIN};fetch_price;poll@libc.so.6"), WaitCause::Other),
        (format!("{MAIN};lock_row;{EPOLL}"), WaitCause::Other),
        (format!("{MAIN};run_query;__wait4@libc.so.6"), WaitCause::ChildProcess),
        // One of the threads of a server, for one descriptor.
        (format!("{THREAD};run;poll@libc.so.6"), WaitCause::Other),
        // The start of the thread is unknown.
        (format!("run;{COND}"), WaitCause::ConditionVariable),
        // Too deep for a main loop.
        (format!("{THREAD};a;b;c;d;e;f;g;h;i;{COND}"), WaitCause::ConditionVariable),
        // An interpreter hides the functions of the program.
        (format!("{MAIN};_PyEval_EvalFrameDefault;{COND}"), WaitCause::ConditionVariable),
        (format!("{MAIN};shop!Shop.Run();{COND}"), WaitCause::ConditionVariable),
    ] {
        assert_eq!(cause(&folded), expected, "{folded}");
    }
}

#[test]
fn a_name_of_a_client_is_a_socket_only_where_the_thread_waits_for_a_descriptor() {
    for client in [
        "mysql_lock_tables(THD*)",
        "mysql_execute_command(THD*, bool)",
        "PQexec",
        "SSL_read",
        "curl_easy_perform",
    ] {
        let waits_in = |primitive: &str| cause(&format!("{THREAD};serve;{client};{primitive}@libc.so.6"));
        assert_eq!(waits_in("poll"), WaitCause::SocketIo, "{client}");
        assert_eq!(waits_in("pthread_cond_timedwait"), WaitCause::ConditionVariable, "{client}");
        assert_eq!(waits_in("pthread_mutex_lock"), WaitCause::Lock, "{client}");
        assert_eq!(waits_in("nanosleep"), WaitCause::Sleep, "{client}");
    }
}

/// A server whose functions have the names of a client, and clients that do not read.
#[test]
fn a_server_that_sends_is_not_its_own_client() {
    let mut threads = Threads::wall();
    let folded =
        format!("{THREAD};handle_one_connection;mysql_select(THD*, List<Item>&);send@libc.so.6;tcp_sendmsg");
    threads.add(6, ThreadState::Blocked, &folded);
    assert_eq!(threads.kinds(), []);
    let client = format!("{THREAD};serve;mysql_real_query;recv@libc.so.6;tcp_recvmsg");
    assert_eq!(Threads::wall().add(6, ThreadState::Blocked, &client).kinds(), [FindingKind::SlowDownstream]);
}

/// The idle samples of a process with these threads: state, stack and ticks of a hundred.
fn idle(parts: &[(ThreadState, &str, u64)]) -> u64 {
    let mut threads = Threads::wall();
    for (state, folded, ticks) in parts {
        threads.add_thread("worker", &[(0, *ticks, Some(*state), folded)]);
    }
    threads.profile().first_ledger().idle
}

#[test]
fn a_process_that_only_sleeps_is_idle() {
    let sleep = format!("{MAIN};run_jobs;nanosleep@libc.so.6");
    let wait = format!("{MAIN};run_jobs;__wait4@libc.so.6");
    let (asleep, on_cpu) = ((ThreadState::Blocked, &*sleep, 100), (ThreadState::OnCpu, "main;compute", 5));
    assert_eq!(idle(&[asleep]), 100);
    assert_eq!(idle(&[asleep, (ThreadState::Blocked, &wait, 100)]), 200);
    assert_eq!(idle(&[asleep, on_cpu]), 100);
    assert_eq!(idle(&[asleep, (ThreadState::OnCpu, "main;compute", 6)]), 0);
    // The owner of a lock, a program that tries again, a method.
    assert_eq!(idle(&[asleep, (ThreadState::Blocked, "main;append;pthread_mutex_lock", 100)]), 0);
    for work in ["main;fetch_again;nanosleep@libc.so.6", "main;shop!Shop.Run();nanosleep@libc.so.6"] {
        assert_eq!(idle(&[(ThreadState::Blocked, work, 100)]), 0, "{work}");
    }
}

const PYTHON: &str =
    "clone3@libc.so.6;start_thread@libc.so.6;thread_run@python3.11;_PyEval_EvalFrameDefault@python3.11";
const QUEUE: &str =
    "lock_PyThread_acquire_lock@python3.11;PyThread_acquire_lock_timed@python3.11;sem_wait@libc.so.6";
const PYTHON_ACCEPT: &str = "_start@python3.11;__libc_start_main@libc.so.6;Py_RunMain@python3.11;\
                             _PyEval_EvalFrameDefault@python3.11;sock_accept@python3.11;accept4@libc.so.6";

/// The stack of `queue.Queue.get` is that of a lock: in a program that rests, with a thread that waits for connections, it is idle.
#[test]
fn workers_of_an_interpreter_are_idle_where_the_program_rests() {
    let blocked = ThreadState::Blocked;
    let worker = format!("{PYTHON};{QUEUE}");
    let park = "clone3@libc.so.6;start_thread@libc.so.6;JavaThread::run()@libjvm.so;jit [JIT 0x0];\
                Unsafe_Park@libjvm.so;pthread_cond_wait@libc.so.6";
    let accept = (blocked, PYTHON_ACCEPT, 100);
    for worker in [&*worker, park] {
        let of_worker = (blocked, worker, 100);
        assert_eq!(idle(&[accept, of_worker, of_worker]), 300, "{worker}");
        assert_eq!(idle(&[accept, of_worker, (ThreadState::OnCpu, PYTHON, 100)]), 100, "one works: {worker}");
        assert_eq!(idle(&[of_worker, of_worker]), 0, "all wait for each other: {worker}");
        // One of many threads has what the others wait for: a connection to a slow service, or a lock under which it sleeps.
        for owner in ["jit [JIT 0x0];recv@libc.so.6;tcp_recvmsg_[k]", "jit [JIT 0x0];nanosleep@libc.so.6"] {
            let mut threads = vec![of_worker; 60];
            threads.extend([accept, (blocked, owner, 100)]);
            assert_eq!(idle(&threads), 100, "{owner}: {worker}");
        }
    }
    // A thread that waits for the interpreter lock, and one with a method that has a name.
    let gil = format!("{PYTHON};take_gil@python3.11;pthread_cond_timedwait@libc.so.6");
    assert_eq!(idle(&[accept, (blocked, &gil, 100)]), 100);
    let named = format!("{PYTHON};jit py::checkout:/app/shop.py;{QUEUE}");
    assert_eq!(idle(&[accept, (blocked, &named, 100)]), 100);
    let lock = "clone3@libc.so.6;start_thread@libc.so.6;JavaThread::run()@libjvm.so;jit [JIT 0x0];\
                ObjectMonitor::enter(JavaThread*)@libjvm.so;pthread_cond_wait@libc.so.6";
    assert_eq!(idle(&[accept, (blocked, lock, 100), (blocked, park, 100)]), 100);
}

/// Of a shell, not of a program that runs one.
#[test]
fn a_shell_that_waits_for_a_command_is_idle() {
    for shell in [
        "reader_loop@bash;execute_command@bash;wait_for@bash",
        "parse_and_execute@bash;execute_command@bash;wait_for@bash",
        "[dash+0x4]@/usr/bin/dash;[dash+0x2]@/usr/bin/dash;[dash+0x2]@/usr/bin/dash",
    ] {
        assert_eq!(
            cause(&format!("{MAIN};{shell};wait3@libc.so.6;__wait4@libc.so.6;do_wait_[k]")),
            WaitCause::Idle
        );
    }
    let server = format!("{MAIN};serve;run_query;do_system@libc.so.6;__waitpid@libc.so.6;do_wait_[k]");
    assert_eq!(cause(&server), WaitCause::ChildProcess);
}

/// A command of the thread itself is a part of its work, in a function of whatever name.
#[test]
fn a_thread_that_waits_for_its_own_command_is_not_idle() {
    let wait = "__waitpid@libc.so.6;__GI___wait4@libc.so.6;kernel_wait4_[k];do_wait_[k]";
    for command in [
        "do_system@libc.so.6",
        "system@ld-musl-x86_64.so.1",
        "__new_pclose@libc.so.6;_IO_new_fclose@libc.so.6;_IO_new_proc_close@libc.so.6",
        // Without symbols, and in a program that contains libc.
        "[libc.so.6+0x4c0f2]@libc.so.6",
        "do_system",
        "std::process::Command::status;<std::sys::process::unix::common::process_inner::Process>::wait",
    ] {
        for loop_of_thread in [format!("{MAIN};run_jobs"), format!("{THREAD};worker")] {
            let folded = format!("{loop_of_thread};{command};{wait}");
            assert_eq!(cause(&folded), WaitCause::ChildProcess, "{folded}");
        }
    }
    let supervisor = format!("{MAIN};run_jobs;wait3@libc.so.6;{wait}");
    assert_eq!(cause(&supervisor), WaitCause::Idle);
    // A function of libc without a symbol through which each call passes that waits: glibc 2.41.
    let cancellable = format!("{MAIN};run_jobs;__wait4@libc.so.6;[libc.so.6+0x9e2e3]@libc.so.6;do_wait_[k]");
    assert_eq!(cause(&cancellable), WaitCause::Idle);
}

/// Output of a command: both of its pipes at a time, or the only one.
#[test]
fn a_thread_that_reads_the_output_of_its_own_command_is_not_idle() {
    for read in ["poll@libc.so.6;do_sys_poll_[k]", "read@libc.so.6;anon_pipe_read_[k]"] {
        let folded = format!("{MAIN};run_jobs;std::process::Command::output;<std::sys::pipe>::read2;{read}");
        assert_ne!(cause(&folded), WaitCause::Idle, "{folded}");
    }
}

/// Names tell a worker from a request under load, too.
#[test]
fn a_worker_of_python_with_names_is_idle() {
    let of = |methods: &str| cause(&format!("{PYTHON};{methods};{QUEUE}"));
    assert_eq!(
        of(
            "jit py::run:/app/shop.py;jit py::get:/usr/lib/python3.12/queue.py;jit py::wait:/usr/lib/python3.12/threading.py"
        ),
        WaitCause::Idle
    );
    assert_eq!(
        of("jit py::put:/usr/lib/python3.12/queue.py;jit py::wait:/usr/lib/python3.12/threading.py"),
        WaitCause::FullQueue
    );
    assert_eq!(of("jit py::get:/usr/lib/python3.12/queue.py"), WaitCause::ConditionVariable, "its lock");
    let poll = "select_poll_poll@python3.12;poll@libc.so.6;do_sys_poll_[k]";
    let select = "jit py::select:/usr/lib/python3.12/selectors.py";
    let of = |method: &str| cause(&format!("{PYTHON};{method};{select};{poll}"));
    assert_eq!(of("jit py::serve_forever:/usr/lib/python3.12/socketserver.py"), WaitCause::Idle);
    assert_eq!(of("jit py::_communicate:/usr/lib/python3.12/subprocess.py"), WaitCause::Other);
}

/// A thread of Rust, with the functions of its standard library as demanglers write them.
const RUST: &str = "clone3@libc.so.6;start_thread@libc.so.6;<std::sys::thread::unix::Thread>::new::thread_start;\
                    core::ops::function::FnOnce::call_once{{vtable.shim}};std::sys::backtrace::__rust_begin_short_backtrace";
const RUST_FUTEX: &str = "syscall@libc.so.6;do_futex_[k];futex_wait_[k]";

#[test]
fn threads_of_rust_have_the_causes_of_its_standard_library() {
    for (folded, expected) in [
        ("shop::work;<std::sys::sync::condvar::futex::Condvar>::wait", WaitCause::Idle),
        ("<std::sys::sync::condvar::futex::Condvar>::wait", WaitCause::Idle),
        ("shop::commit;<std::sys::sync::condvar::futex::Condvar>::wait", WaitCause::ConditionVariable),
        ("shop::append;<std::sys::sync::mutex::futex::Mutex>::lock_contended", WaitCause::Lock),
        ("shop::append;std::sys::sync::mutex::futex::Mutex::lock_contended", WaitCause::Lock),
        ("shop::append;<std::sys::sync::rwlock::futex::RwLock>::write_contended", WaitCause::Lock),
        ("shop::append;<parking_lot::raw_mutex::RawMutex>::lock_slow", WaitCause::Lock),
        (
            "shop::produce;std::sync::mpmc::array::Channel<T>::send;<std::thread::thread::Thread>::park",
            WaitCause::FullQueue,
        ),
        (
            "shop::produce;<std::sync::mpmc::array::Channel<u32>>::send;<std::thread::thread::Thread>::park",
            WaitCause::FullQueue,
        ),
        (
            "shop::take;std::sync::mpmc::list::Channel<T>::recv;<std::thread::thread::Thread>::park",
            WaitCause::Idle,
        ),
    ] {
        assert_eq!(cause(&format!("{RUST};{folded};{RUST_FUTEX}")), expected, "{folded}");
    }
}
