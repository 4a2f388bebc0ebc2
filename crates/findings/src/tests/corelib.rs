//! The causes of waits in the methods of the core library and of the framework's servers and clients that wait.

use profiler_profile::ThreadState;

use super::Threads;
use crate::{
    WaitCause::{
        self, Barrier, ChildProcess, ConditionVariable, FullQueue, GcSuspension, Idle, Lock, NameResolution,
        Semaphore, Sleep, SocketIo, SyncOverAsync,
    },
    Waits,
};

/// Methods below one of the application, root first, and the cause of their wait.
const WAITS: &[(WaitCause, &[&str])] = &[
    (Lock, &["System.Threading.Monitor.Enter(object)"]),
    (Lock, &["System.Threading.Monitor.Enter(object,ref bool)", "System.Threading.Monitor.ReliableEnter"]),
    (Lock, &["System.Threading.Monitor.TryEnter(object,int)"]),
    (Lock, &["System.Threading.Lock.Enter()", "System.Threading.Lock.TryEnterSlow(int,ThreadId)"]),
    (Lock, &["System.Threading.Lock.EnterScope()", "System.Threading.Lock.EnterAndGetCurrentThreadId()"]),
    (
        Lock,
        &[
            "System.Threading.SpinLock.Enter(ref bool)",
            "System.Threading.SpinLock.ContinueTryEnter(int,ref bool)",
        ],
    ),
    (
        Lock,
        &[
            "System.Threading.SpinLock.ContinueTryEnter(int,ref bool)",
            "System.Threading.SpinWait.SpinOnceCore(int)",
            "System.Threading.Thread.Sleep(int)",
        ],
    ),
    (
        Lock,
        &[
            "System.Threading.ReaderWriterLockSlim.EnterReadLock()",
            "System.Threading.ReaderWriterLockSlim.TryEnterReadLockCore(TimeoutTracker)",
            "System.Threading.WaitHandle.WaitOne(int)",
        ],
    ),
    (
        Lock,
        &[
            "System.Threading.ReaderWriterLockSlim.TryEnterUpgradeableReadLock(TimeoutTracker)",
            "System.Threading.WaitHandle.WaitOne(int)",
        ],
    ),
    (
        Lock,
        &[
            "System.Threading.ReaderWriterLock.AcquireWriterLock(int)",
            "System.Threading.ManualResetEventSlim.Wait(int)",
        ],
    ),
    (
        Lock,
        &[
            "System.Threading.ReaderWriterLock.UpgradeToWriterLock(int)",
            "System.Threading.WaitHandle.WaitOne(int)",
        ],
    ),
    (
        Lock,
        &[
            "System.Lazy<int>.get_Value()",
            "System.Lazy<int>.ExecutionAndPublication(LazyHelper,bool)",
            "System.Threading.Monitor.Enter(object)",
        ],
    ),
    (
        Lock,
        &[
            "System.Collections.Concurrent.ConcurrentDictionary<int,int>.TryAddInternal()",
            "System.Threading.Monitor.Enter(object,ref bool)",
        ],
    ),
    (
        Lock,
        &[
            "System.Console.WriteLine(string)",
            "System.IO.TextWriter.SyncTextWriter.WriteLine(string)",
            "READYTORUN_HELPER_MonitorEnter",
        ],
    ),
    (Lock, &["System.Runtime.CompilerServices.InitHelpers.InitClassSlow(MethodTable*)"]),
    (Lock, &["System.Runtime.CompilerServices.StaticsHelpers.GetNonGCStaticBase(ref byte)"]),
    (
        Semaphore,
        &[
            "System.Threading.SemaphoreSlim.Wait()",
            "System.Threading.SemaphoreSlim.WaitUntilCountOrTimeout(int,uint,CancellationToken)",
            "System.Threading.Monitor.Wait(object,int)",
        ],
    ),
    (
        FullQueue,
        &[
            "System.Collections.Concurrent.BlockingCollection<int>.Add(int)",
            "System.Collections.Concurrent.BlockingCollection<int>.TryAddWithNoTimeValidation(int,int,CancellationToken)",
            "System.Threading.SemaphoreSlim.Wait(int,CancellationToken)",
        ],
    ),
    (
        FullQueue,
        &[
            "System.Collections.Concurrent.BlockingCollection<int>.AddToAny(BlockingCollection<int>[],int)",
            "System.Threading.WaitHandle.WaitAny(WaitHandle[])",
        ],
    ),
    (
        Idle,
        &[
            "System.Collections.Concurrent.BlockingCollection<int>.Take()",
            "System.Collections.Concurrent.BlockingCollection<int>.TryTakeWithNoTimeValidation(ref int,int)",
            "System.Threading.SemaphoreSlim.Wait(int,CancellationToken)",
        ],
    ),
    (
        Idle,
        &[
            "System.Collections.Concurrent.BlockingCollection<int>.TakeFromAny(BlockingCollection<int>[],ref int)",
            "System.Threading.WaitHandle.WaitAny(WaitHandle[])",
        ],
    ),
    (
        Idle,
        &[
            "System.Collections.Concurrent.BlockingCollection<Shop.Address>.Take()",
            "System.Threading.SemaphoreSlim.Wait(int)",
        ],
    ),
    (
        FullQueue,
        &[
            "System.Collections.Concurrent.BlockingCollection<Shop.Taken>.Add(Shop.Taken)",
            "System.Threading.SemaphoreSlim.Wait(int)",
        ],
    ),
    (
        Idle,
        &[
            "System.Collections.Concurrent.BlockingCollection`1[Shop.Address].Take()",
            "System.Threading.SemaphoreSlim.Wait(int)",
        ],
    ),
    (Idle, &["System.Net.HttpListener.GetContext()", "System.Threading.WaitHandle.WaitOne()"]),
    (
        SyncOverAsync,
        &[
            "System.Threading.Tasks.Task.Wait()",
            "System.Threading.Tasks.Task.SpinThenBlockingWait(int,CancellationToken)",
        ],
    ),
    (
        SyncOverAsync,
        &[
            "System.Threading.Tasks.Task<int>.get_Result()",
            "System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken)",
        ],
    ),
    (
        SyncOverAsync,
        &[
            "System.Runtime.CompilerServices.TaskAwaiter.GetResult()",
            "System.Threading.Tasks.Task.InternalWaitCore(int,CancellationToken)",
        ],
    ),
    (
        SyncOverAsync,
        &[
            "System.Threading.Tasks.Task.WaitAll(Task[])",
            "System.Threading.Tasks.Task.WaitAllBlockingCore(List<Task>,int)",
            "System.Threading.ManualResetEventSlim.Wait(int)",
        ],
    ),
    (
        SyncOverAsync,
        &[
            "System.Threading.Tasks.Task.WaitAny(Task[])",
            "System.Threading.Tasks.Task.SpinThenBlockingWait(int)",
        ],
    ),
    (
        ConditionVariable,
        &[
            "System.Threading.Tasks.Parallel.For(int,int,Action<int>)",
            "System.Threading.Tasks.TaskReplicator.Run()",
            "System.Threading.Tasks.Task.SpinThenBlockingWait(int)",
        ],
    ),
    (
        ConditionVariable,
        &[
            "System.Linq.Parallel.QueryTaskGroupState.QueryEnd(bool)",
            "System.Threading.Tasks.Task.SpinThenBlockingWait(int)",
        ],
    ),
    (ConditionVariable, &["System.Threading.Thread.Join()"]),
    (ConditionVariable, &["System.Threading.Monitor.Wait(object)"]),
    (ConditionVariable, &["System.Threading.WaitHandle.WaitOne()"]),
    (ConditionVariable, &["System.Threading.WaitHandle.WaitAll(WaitHandle[])"]),
    (
        ConditionVariable,
        &["System.Threading.ManualResetEventSlim.Wait()", "System.Threading.Monitor.Wait(object,int)"],
    ),
    (Barrier, &["System.Threading.CountdownEvent.Wait()", "System.Threading.ManualResetEventSlim.Wait(int)"]),
    (
        Barrier,
        &["System.Threading.Barrier.SignalAndWait()", "System.Threading.ManualResetEventSlim.Wait(int)"],
    ),
    (
        ConditionVariable,
        &[
            "System.Threading.SpinWait.SpinUntil(Func<bool>)",
            "System.Threading.SpinWait.SpinOnceCore(int)",
            "System.Threading.Thread.Sleep(int)",
        ],
    ),
    (ConditionVariable, &["System.GC.WaitForPendingFinalizers()"]),
    (GcSuspension, &["System.GC.Collect()", "GCInterface_Collect"]),
    (
        ChildProcess,
        &[
            "System.Diagnostics.Process.WaitForExit()",
            "System.Diagnostics.ProcessWaitState.WaitForExit(int)",
            "System.Threading.WaitHandle.WaitOne(int)",
        ],
    ),
    (Sleep, &["System.Threading.Thread.Sleep(int)", "System.Threading.Thread.SleepInternal(int)"]),
    (Sleep, &["System.Threading.Thread.Sleep(TimeSpan)", "ThreadNative_Sleep"]),
    (
        SocketIo,
        &[
            "System.Net.Sockets.NetworkStream.Read(byte[],int,int)",
            "System.Net.Sockets.Socket.Receive(byte[])",
        ],
    ),
    (
        SocketIo,
        &[
            "System.Net.Sockets.Socket.Connect(EndPoint)",
            "System.Net.Sockets.SocketAsyncContext.Connect(Memory<byte>)",
        ],
    ),
    (
        NameResolution,
        &["System.Net.Dns.GetHostAddresses(string)", "System.Net.NameResolutionPal.TryGetAddrInfo(string)"],
    ),
    (
        SocketIo,
        &[
            "System.Net.Http.HttpClient.Send(HttpRequestMessage)",
            "System.Net.Sockets.Socket.Receive(Span<byte>)",
        ],
    ),
];

#[test]
fn each_waiting_method_has_its_cause() {
    for (expected, methods) in WAITS {
        let frames: Vec<_> =
            methods.iter().map(|method| format!("System.Private.CoreLib!{method}")).collect();
        let folded = format!(
            "start_thread@libc.so.6;shop!Shop.Cart.Get();{};pthread_cond_wait@libc.so.6",
            frames.join(";")
        );
        let profile = Threads::wall().add(1, ThreadState::Blocked, &folded).profile();
        let found = Waits::of(&profile).cause(&profile.samples()[0]);
        assert_eq!(found, Some(*expected), "{methods:?}");
    }
}
