//! Crowds before locks of the kernel, queues and locks without names, and finalizers that do not end.

use profiler_profile::{Finding, FindingKind, ThreadState};

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
