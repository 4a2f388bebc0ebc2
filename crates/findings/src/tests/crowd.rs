//! Crowds before locks of the kernel, queues and locks without names, and finalizers that do not end.

use profiler_profile::{Certainty, Finding, FindingKind, Proof, ThreadState};

use super::{HZ, Threads};

const WORK: &str = "main;compute";

/// Eight threads that wait for most of the time, and work after it.
fn crowd(ticks: u64, state: ThreadState, folded: &str) -> Threads {
    let mut threads = Threads::wall();
    for _ in 0..8 {
        let parts =
            [(0, ticks, Some(state), folded), (ticks / HZ, 100 - ticks, Some(ThreadState::OnCpu), WORK)];
        threads.add_thread("worker", &parts);
    }
    threads
}

fn only(mut threads: Threads) -> Finding {
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    finding.clone()
}

#[test]
fn threads_that_map_memory_at_the_same_time_are_found_with_and_without_a_method() {
    for (folded, place) in [
        ("main;grow_heap;mmap64@libc.so.6;do_syscall_64@[kernel];vm_mmap_pgoff@[kernel]", " below grow_heap"),
        ("do_syscall_64@[kernel];__x64_sys_munmap@[kernel];__vm_munmap@[kernel]", ""),
        ("do_syscall_64@[kernel];__vm_munmap@[kernel];down_write_killable@[kernel];schedule@[kernel]", ""),
    ] {
        let finding = only(crowd(50, ThreadState::Disk, folded));
        assert_eq!(finding.kind, FindingKind::LockConvoy);
        let expected = format!(
            "4.0 of 8 threads at a time wait for the lock of the memory map of the process (50 % of the time of threads \
             with work); threads map and unmap memory at the same time{place}"
        );
        assert_eq!(finding.evidence, expected);
        assert_eq!(crowd(19, ThreadState::Disk, folded).kinds(), [], "19 %");
    }
}

#[test]
fn threads_that_write_to_one_file_are_found() {
    let finding = only(crowd(
        50,
        ThreadState::Disk,
        "main;append;__libc_pwrite@libc.so.6;vfs_write@[kernel];shmem_file_write_iter@[kernel]",
    ));
    assert_eq!(finding.kind, FindingKind::LockConvoy);
    assert!(
        finding.evidence.ends_with(
            "that other threads change (50 % of the time of threads with work), most below append"
        )
    );
}

/// The kernel waits in the state disk for much that is no disk.
#[test]
fn a_wait_in_the_state_disk_without_evidence_of_a_file_is_no_finding() {
    for folded in [
        "main;spawn;__vfork@libc.so.6;kernel_clone@[kernel]",
        "main;barrier;syscall@libc.so.6;synchronize_rcu_normal@[kernel]",
        "main;load;do_syscall_64@[kernel];kernfs_iop_lookup@[kernel]",
        "main;load;shmem_get_folio_gfp@[kernel]",
        "main;compute",
        "[unknown]",
    ] {
        assert_eq!(crowd(90, ThreadState::Disk, folded).kinds(), [], "{folded}");
    }
}

const PUT: &str = "main;shop!Shop.Cart.Put();\
    System.Collections.Concurrent!System.Collections.Concurrent.BlockingCollection<int>.TryAddWithNoTimeValidation(int);\
    System.Private.CoreLib!System.Threading.SemaphoreSlim.Wait(int,CancellationToken);\
    System.Private.CoreLib!System.Threading.Monitor.Wait(object,int);pthread_cond_wait@libc.so.6";
const TAKE: &str = "main;shop!Shop.Cart.Take();\
    System.Collections.Concurrent!System.Collections.Concurrent.BlockingCollection<int>.TryTakeWithNoTimeValidation(int);\
    System.Private.CoreLib!System.Threading.SemaphoreSlim.Wait(int,CancellationToken);\
    System.Private.CoreLib!System.Threading.Monitor.Wait(object,int);pthread_cond_wait@libc.so.6";
const LOGGER: &str =
    "Microsoft.Extensions.Logging.Console!Microsoft.Extensions.Logging.Console.ConsoleLoggerProcessor";

#[test]
fn producers_that_wait_for_room_are_found() {
    let finding = only(crowd(60, ThreadState::Blocked, PUT));
    assert_eq!(finding.kind, FindingKind::FullQueue);
    assert_eq!(
        finding.evidence,
        "4.8 of 8 threads at a time wait for room in a full queue (60 % of the time of threads with work), most below \
         Shop.Cart.Put"
    );
    assert_eq!(crowd(49, ThreadState::Blocked, PUT).kinds(), []);
    let wait = "System.Private.CoreLib!System.Threading.Monitor.Wait(object);pthread_cond_wait@libc.so.6";
    for method in ["EnqueueMessage(LogMessageEntry)", "Enqueue(LogMessageEntry)"] {
        let finding = only(crowd(
            60,
            ThreadState::Blocked,
            &format!("main;shop!Shop.Cart.Get();{LOGGER}.{method};{wait}"),
        ));
        assert_eq!(finding.kind, FindingKind::FullQueue);
        assert!(
            finding
                .evidence
                .contains("wait for room in the queue of the console logger, which one thread writes"),
            "{finding}"
        );
        assert!(finding.remedy.starts_with("log less"), "{finding}");
    }
}

#[test]
fn consumers_without_an_item_are_idle() {
    let wait = "System.Private.CoreLib!System.Threading.Monitor.Wait(object);pthread_cond_wait@libc.so.6";
    let logger = format!("main;{LOGGER}.ProcessLogQueue();{LOGGER}.TryDequeue(ref LogMessageEntry);{wait}");
    for folded in [TAKE, &logger] {
        let mut threads = Threads::wall();
        let profile = threads.add(8, ThreadState::Blocked, folded).profile();
        assert_eq!((profile.findings(), profile.first_ledger().idle), (&[][..], 8 * 10 * HZ));
    }
}

#[test]
fn threads_that_wait_for_a_connection_of_a_pool_are_found() {
    let send = "main;shop!Shop.Prices.Fetch();System.Net.Http!System.Net.Http.HttpClient.Send(HttpRequestMessage);\
                System.Net.Http!System.Net.Http.HttpConnectionPool.SendWithVersionDetectionAndRetryAsync(HttpRequestMessage);\
                System.Net.Http!System.Threading.Tasks.TaskCompletionSourceWithCancellation<T>.WaitWithCancellation(CancellationToken);\
                System.Private.CoreLib!System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken);\
                System.Private.CoreLib!System.Threading.Tasks.Task.SpinThenBlockingWait(int,CancellationToken);\
                pthread_cond_wait@libc.so.6";
    let finding = only(crowd(75, ThreadState::Blocked, send));
    assert_eq!(finding.kind, FindingKind::ConnectionLimit);
    assert_eq!(
        finding.evidence,
        "6.0 of 8 threads at a time wait for a connection, as all that the limit of their pool allows are in use (75 % of the time \
         of threads with work), most below Shop.Prices.Fetch"
    );
    assert_eq!(crowd(19, ThreadState::Blocked, send).kinds(), []);
    // A pool of another runtime, whose library takes the connection for the method of the program.
    let hikari = "start_thread@libc.so.6;jit java.util.List com.shop.Orders.find(int);\
                  jit java.sql.Connection com.zaxxer.hikari.pool.HikariPool.getConnection(long);\
                  jit java.lang.Object com.zaxxer.hikari.util.ConcurrentBag.borrow(long, java.util.concurrent.TimeUnit);\
                  jit java.lang.Object java.util.concurrent.SynchronousQueue.poll(long, java.util.concurrent.TimeUnit);\
                  jit void jdk.internal.misc.Unsafe.park(boolean, long);Unsafe_Park@libjvm.so;pthread_cond_timedwait@libc.so.6";
    let finding = only(crowd(75, ThreadState::Blocked, hikari));
    assert_eq!(finding.kind, FindingKind::ConnectionLimit);
    assert!(finding.evidence.ends_with(", most below com.shop.Orders.find"), "{finding}");
    assert_eq!(finding.remedy, "hold connections for a shorter time, or raise the limit of the pool");
}

/// The names of the methods of a runtime can be unknown.
#[test]
fn locks_without_a_method_are_a_convoy() {
    let unnamed =
        "start_thread@libc.so.6;ObjectMonitor::enter(JavaThread*)@libjvm.so;pthread_cond_wait@libc.so.6";
    let finding = only(crowd(50, ThreadState::Blocked, unnamed));
    assert_eq!(finding.kind, FindingKind::LockConvoy);
    assert_eq!(
        finding.evidence,
        "4.0 of 8 threads at a time wait for locks (50 % of the time of threads with work)"
    );
}

const FINALIZER: &str =
    "start_thread@libc.so.6;System.Private.CoreLib!System.GC.RunFinalizers();shop!Shop.Cart.Finalize()";
const SLEEP: &str =
    "System.Private.CoreLib!System.Threading.Thread.Sleep(int);pthread_cond_timedwait@libc.so.6";
const WAIT: &str = "main;shop!Shop.Cart.Clear();System.Private.CoreLib!System.GC.WaitForPendingFinalizers();\
                    pthread_cond_wait@libc.so.6";

#[test]
fn a_finalizer_that_does_not_end_is_found_with_what_it_does() {
    const NATIVE: &str = "start_thread@libc.so.6;[libcoreclr.so]@libcoreclr.so;shop!Shop.Cart.Finalize()";
    for (root, state, callee, activity) in [
        (NATIVE, ThreadState::Blocked, format!(";{SLEEP}"), "(sleeps)"),
        (FINALIZER, ThreadState::Blocked, format!(";{SLEEP}"), "(sleeps)"),
        (FINALIZER, ThreadState::OnCpu, String::new(), "(100 % on a CPU)"),
        (FINALIZER, ThreadState::Blocked, ";pthread_mutex_lock@libc.so.6".to_owned(), "(waits for a lock)"),
    ] {
        let mut threads = Threads::wall();
        let part = (0, 100, Some(state), &*format!("{root}{callee}"));
        threads.add_thread(".NET Finalizer", &[part]).add(2, ThreadState::Blocked, WAIT);
        let finding = only(threads);
        assert_eq!(finding.kind, FindingKind::BlockedFinalizer);
        assert_eq!(
            finding.evidence,
            format!(
                "the finalizer thread is in Shop.Cart.Finalize all the time {activity}, and other finalizers wait for their \
                 turn; 2 threads wait for them in GC.WaitForPendingFinalizers"
            )
        );
    }
}

#[test]
fn a_finalizer_thread_that_proceeds_is_no_finding() {
    let idle = "start_thread@libc.so.6;[libcoreclr.so]@libcoreclr.so;pthread_cond_wait@libc.so.6";
    for parts in [
        vec![(0, 100, Some(ThreadState::Blocked), idle.to_owned())],
        vec![
            (0, 50, Some(ThreadState::Blocked), format!("{FINALIZER};{SLEEP}")),
            (5, 50, Some(ThreadState::Blocked), idle.to_owned()),
        ],
        (0..10)
            .map(|second| {
                (second, HZ, Some(ThreadState::OnCpu), FINALIZER.replace("Cart", &format!("Cart{second}")))
            })
            .collect(),
    ] {
        let parts: Vec<_> =
            parts.iter().map(|(at, ticks, state, folded)| (*at, *ticks, *state, &**folded)).collect();
        let mut threads = Threads::wall();
        threads.add_thread(".NET Finalizer", &parts);
        assert_eq!(threads.kinds(), []);
    }
}

/// Stacks of queues in native code, most of the time of eight threads, and one thread with another stack.
fn queue(folded: &str, other: &str) -> Threads {
    let mut threads = crowd(90, ThreadState::Blocked, folded);
    threads.add(1, ThreadState::Blocked, other);
    threads
}

#[test]
fn threads_that_add_to_a_full_queue_of_native_code_are_found_and_likely() {
    let slow = "start_thread@libc.so.6;write_all;clock_nanosleep@libc.so.6";
    for folded in [
        "start_thread@libc.so.6;handle;queue_push;pthread_cond_wait@libc.so.6",
        "start_thread@libc.so.6;handle;Queue<int>::put(int);std::condition_variable::wait@libstdc++.so.6;pthread_cond_wait@libc.so.6",
        "start_thread@libc.so.6;handle;JobQueue::enqueue(Job);std::condition_variable::wait<JobQueue::enqueue(Job)::$_0>;pthread_cond_wait@libc.so.6",
    ] {
        let finding = only(queue(folded, slow));
        assert_eq!(finding.kind, FindingKind::FullQueue, "{folded}");
        assert_eq!(finding.facts.certainty, Certainty::Likely(Proof::QueueLength), "{folded}");
        assert!(finding.evidence.contains(" wait for room in a full queue ("), "{finding}");
    }
}

/// Another thread waits for an item: the queue is empty, and the threads wait for something else.
#[test]
fn functions_whose_names_say_no_more_than_that_they_add_something_have_no_finding() {
    let slow = "start_thread@libc.so.6;write_all;clock_nanosleep@libc.so.6";
    let push = "start_thread@libc.so.6;handle;queue_push;pthread_cond_wait@libc.so.6";
    let mut consumers = queue(push, "start_thread@libc.so.6;write_all;queue_pop;pthread_cond_wait@libc.so.6");
    assert_eq!(consumers.kinds(), []);
    for folded in [
        "start_thread@libc.so.6;handle;put_object;pthread_cond_wait@libc.so.6",
        "start_thread@libc.so.6;handle;queue_take;pthread_cond_wait@libc.so.6",
        "start_thread@libc.so.6;handle;await_result;pthread_cond_wait@libc.so.6",
    ] {
        assert_eq!(queue(folded, slow).kinds(), [], "{folded}");
    }
}

/// Names of libraries, which say what the thread waits for.
#[test]
fn bounded_channels_of_libraries_have_producers_and_idle_consumers() {
    for (producer, consumer) in [
        (
            "start_thread@libc.so.6;send_all;std::sync::mpmc::array::Channel<T>::send;std::thread::park;syscall@libc.so.6;futex_wait_[k]",
            "start_thread@libc.so.6;write_all;std::sync::mpmc::array::Channel<T>::recv;std::thread::park;syscall@libc.so.6;futex_wait_[k]",
        ),
        (
            "start_thread@libc.so.6;jit void Shop.Cart.add;jit void java.util.concurrent.ArrayBlockingQueue.put;Unsafe_Park@libjvm.so;pthread_cond_wait@libc.so.6",
            "start_thread@libc.so.6;jit void Shop.Cart.write;jit java.lang.Object java.util.concurrent.ArrayBlockingQueue.take;Unsafe_Park@libjvm.so;pthread_cond_wait@libc.so.6",
        ),
        (
            "start_thread@libc.so.6;jit py::handle:shop.py;jit py::put:/usr/lib/python3.12/queue.py;jit py::wait:/usr/lib/python3.12/threading.py;PyThread_acquire_lock_timed@python3.12;sem_wait@libc.so.6",
            "start_thread@libc.so.6;jit py::write:shop.py;jit py::get:/usr/lib/python3.12/queue.py;jit py::wait:/usr/lib/python3.12/threading.py;PyThread_acquire_lock_timed@python3.12;sem_wait@libc.so.6",
        ),
    ] {
        let finding = only(crowd(90, ThreadState::Blocked, producer));
        assert_eq!(finding.kind, FindingKind::FullQueue, "{producer}");
        let method = finding.facts.place.as_ref().map(|place| place.method.as_str());
        assert!(method.is_none_or(|method| !method.contains("std::")), "{method:?}");
        assert_eq!(crowd(90, ThreadState::Blocked, consumer).kinds(), [], "{consumer}");
    }
}
