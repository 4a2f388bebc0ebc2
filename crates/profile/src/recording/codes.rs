//! Numbers of enum variants in recordings. A number is never reused for another variant.

use crate::{
    EventSessionCause, FindingKind, FoundBy, FrameKind, GcMode, Loss, MissedTick, Proof, Reason,
    RuntimeEventKind, StackEnd, SymbolSource, ThreadState, Whole,
};

/// The kinds of [`Sampling`](crate::Sampling).
pub(super) const AT_FREQUENCY: u64 = 1;
pub(super) const DURATIONS: u64 = 2;
pub(super) const OCCURRENCES: u64 = 3;
pub(super) const SUMS: u64 = 4;
pub(super) const TIMES: u64 = 5;

/// The kinds of [`FieldValue`](crate::FieldValue).
pub(super) const UNSIGNED: u64 = 1;
pub(super) const SIGNED: u64 = 2;
pub(super) const REAL: u64 = 3;
pub(super) const TEXT: u64 = 4;

/// An enum whose variants have fixed numbers in recordings.
pub(super) trait VariantCode: Sized {
    fn code(self) -> u64;
    fn from_code(code: u64) -> Option<Self>;
}

macro_rules! codes {
    ($($name:ident { $($variant:ident = $code:literal),* $(,)? })*) => {
        $(impl VariantCode for $name {
            fn code(self) -> u64 {
                match self { $(Self::$variant => $code),* }
            }

            fn from_code(code: u64) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        })*
    };
}

codes! {
    FrameKind { Kernel = 1, Native = 2, Precompiled = 3, Jit = 4, Inlined = 5, Label = 6, Wait = 7 }
    SymbolSource {
        Kallsyms = 1,
        SymbolTable = 2,
        DynamicSymbols = 3,
        MiniDebugInfo = 4,
        DebugFile = 5,
        Dwarf = 6,
        PerfMap = 7,
        JitDump = 8,
        ReadyToRun = 9,
        RuntimeEvents = 10,
        RuntimeCallTable = 11,
        RuntimeHelper = 12,
        StubCode = 13,
        GoFunctionTable = 14,
        RuntimeMemory = 15,
    }
    MissedTick { Throttled = 1, CpuOnline = 2, NoInterrupt = 3, IdleCpu = 4 }
    Reason {
        NoMapping = 1,
        ProcessGone = 2,
        ProcessNotReadable = 3,
        FileMissing = 4,
        FileNotReadable = 5,
        FileReplaced = 6,
        NotAFile = 7,
        NotElf = 8,
        MalformedFile = 9,
        TooLarge = 10,
        NoSymbols = 11,
        NoSymbolHere = 12,
        NoJitMap = 13,
        JitMapRefused = 14,
        NoJitEntry = 15,
        RuntimeRefused = 16,
        RuntimeNotReachable = 17,
        RuntimeSilent = 18,
        KernelAddressesHidden = 19,
        KernelSymbolsNotReadable = 20,
        OnlyNearestExport = 21,
        NotOnSymbolServer = 22,
        SymbolServerFailed = 23,
        SymbolsOnTheWay = 24,
        RuntimeStub = 25,
        NotResponding = 26,
        TooManyOpenFiles = 27,
        OutOfTime = 28,
        JitCodeUnloaded = 29,
        NoJavaMap = 30,
        NoDotnetMap = 31,
        NoMonoMap = 32,
        NoErlangMap = 33,
        NoNodeMap = 34,
        NoPhpMap = 35,
        NoRubyMap = 36,
        NoLuaJitMap = 37,
        JitCodeReplaced = 38,
    }
    StackEnd {
        Root = 1,
        DepthLimit = 2,
        Unknown = 3,
        NoMapping = 4,
        UnreadableStack = 5,
        UnsupportedRule = 6,
        BrokenFramePointer = 7,
        Backwards = 8,
        Empty = 9,
        OutdatedTable = 10,
        ReturnProbe = 11,
        MappingsLocked = 12,
    }
    FoundBy {
        NotRecorded = 1,
        Sample = 2,
        Kernel = 3,
        Cfi = 4,
        FramePointer = 5,
        SignalFrame = 6,
        EpilogueScan = 7,
        CallInstruction = 8,
        Instructions = 9,
    }
    FindingKind {
        PoolStarvation = 1,
        LockConvoy = 2,
        GcSuspension = 3,
        SlowDownstream = 4,
        RunQueue = 5,
        Disk = 6,
        Compilation = 7,
        GarbageCollection = 8,
        Spinning = 9,
        PageFaults = 10,
        Interrupts = 11,
        CpuQuota = 12,
        GcPauses = 13,
        Exceptions = 14,
        LockContention = 15,
        PoolGrowth = 16,
        FullCollections = 17,
        Deadlock = 18,
        BusyThread = 20,
        HeldLock = 19,
        FullQueue = 21,
        BlockedFinalizer = 22,
        ConnectionLimit = 23,
        ChildProcess = 24,
        BarrierSkew = 25,
    }
    RuntimeEventKind {
        GarbageCollection = 1,
        Suspension = 2,
        HeapSizes = 3,
        PoolAdjustment = 4,
        Exception = 5,
        Contention = 6,
        Allocation = 7,
        Compilation = 8,
        ModuleLoad = 9,
        Counter = 10,
        Request = 11,
        Other = 12,
    }
    Whole {
        TimeOfThreadsWithWork = 1,
        RunnableTime = 2,
        CpuTime = 3,
        TimeOfThread = 4,
        Duration = 5,
        PoolWorkers = 6,
        BlockedTimeOfWorkers = 7,
        RuntimeEvents = 8,
    }
    Proof {
        NewMeasurement = 1,
        LockOwner = 2,
        Peer = 3,
        DiskRequests = 4,
        PoolAdjustments = 5,
        AllRuntimeEvents = 6,
        WaitSamples = 7,
        FurtherReadings = 8,
        Arrival = 9,
        QueueLength = 10,
    }
    GcMode { Cooperative = 1, Preemptive = 2 }
    ThreadState { OnCpu = 1, Runnable = 2, Throttled = 3, Blocked = 4, Disk = 5, Stopped = 6 }
    Loss { RingBufferFull = 1, NoThreadId = 2, MissingStack = 3, Undecodable = 4, OverheadLimit = 5, ThreadRan = 6, TooManyThreads = 7, MissedSwitch = 8, Nested = 9, MemoryLimit = 10 }
    EventSessionCause { Requested = 1, NotDescribed = 2, MemoryNotReadable = 3, DynamicMethods = 4, FreedCode = 5, NoMethodName = 6, UnknownCode = 7 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_reasons_round_trip() {
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        for &cause in EventSessionCause::ALL {
            assert_eq!(EventSessionCause::from_code(cause.code()), Some(cause));
        }
        for &kind in FindingKind::ALL {
            assert_eq!(FindingKind::from_code(kind.code()), Some(kind));
        }
        for &kind in RuntimeEventKind::ALL {
            assert_eq!(RuntimeEventKind::from_code(kind.code()), Some(kind));
        }
        for &whole in Whole::ALL {
            assert_eq!(Whole::from_code(whole.code()), Some(whole));
        }
        for &proof in Proof::ALL {
            assert_eq!(Proof::from_code(proof.code()), Some(proof));
        }
        for &mode in GcMode::ALL {
            assert_eq!(GcMode::from_code(mode.code()), Some(mode));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(FoundBy::from_code(u64::MAX), None);
    }
}
