//! The definitions of the runtime's own events (dotnet/runtime, src/coreclr/vm/ClrEtwAll.man).

use profiler_profile::RuntimeEventKind;

use super::Phase;
use crate::eventpipe::nettrace::FieldType;

/// An event, by its number in the manifest.
pub(super) struct Definition {
    id: u32,
    pub(super) kind: RuntimeEventKind,
    pub(super) phase: Phase,
    /// With the name of the provider.
    pub(super) name: &'static str,
    pub(super) layouts: &'static [(&'static str, Layout)],
}

/// How a field is encoded, and what becomes of it.
pub(super) enum Layout {
    /// The value is kept.
    Kept(FieldType),
    /// The value has one of these names.
    Enumeration(FieldType, &'static [&'static str]),
    /// The value is read and left out.
    Skipped(FieldType),
}

use Layout::{Enumeration, Kept, Skipped};

impl Layout {
    pub(super) fn field_type(&self) -> FieldType {
        match self {
            Kept(field_type) | Enumeration(field_type, _) | Skipped(field_type) => *field_type,
        }
    }
}

const U8: Layout = Kept(FieldType::U8);
const U32: Layout = Kept(FieldType::U32);
const U64: Layout = Kept(FieldType::U64);
const F64: Layout = Kept(FieldType::F64);
const TEXT: Layout = Kept(FieldType::Text);

/// The number of the runtime in its process: the same in all events.
const INSTANCE: (&str, Layout) = ("ClrInstanceID", Skipped(FieldType::U16));

/// The value map `GCReasonMap`.
const COLLECTION_REASONS: &[&str] = &[
    "AllocSmall",
    "Induced",
    "LowMemory",
    "Empty",
    "AllocLarge",
    "OutOfSpaceSOH",
    "OutOfSpaceLOH",
    "InducedNotForced",
    "Internal",
    "InducedLowMemory",
    "InducedCompacting",
    "LowMemoryHost",
    "PMFullGC",
    "LowMemoryHostBlocking",
];

/// The value map `GCTypeMap`.
const COLLECTION_TYPES: &[&str] = &["NonConcurrentGC", "BackgroundGC", "ForegroundGC"];

/// The value map `GCSuspendEEReasonMap`.
const SUSPENSION_REASONS: &[&str] = &[
    "SuspendOther",
    "SuspendForGC",
    "SuspendForAppDomainShutdown",
    "SuspendForCodePitching",
    "SuspendForShutdown",
    "SuspendForDebugger",
    "SuspendForGCPrep",
    "SuspendForDebuggerSweep",
];

/// The value map `ThreadAdjustmentReasonMap`.
const ADJUSTMENT_REASONS: &[&str] = &[
    "Warmup",
    "Initializing",
    "RandomMove",
    "ClimbingMove",
    "ChangePoint",
    "Stabilizing",
    "Starvation",
    "ThreadTimedOut",
    "CooperativeBlocking",
];

/// The value map `GCAllocationKindMap`.
const ALLOCATION_KINDS: &[&str] = &["Small", "Large", "Pinned"];

/// The event with an id.
pub(super) fn definition(id: u32) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.id == id)
}

/// The ids of the events of a kind.
pub(super) fn ids(kind: RuntimeEventKind) -> impl Iterator<Item = u32> {
    DEFINITIONS.iter().filter(move |definition| definition.kind == kind).map(|definition| definition.id)
}

const DEFINITIONS: &[Definition] = &[
    Definition {
        id: 1,
        kind: RuntimeEventKind::GarbageCollection,
        phase: Phase::Begin,
        name: "Microsoft-Windows-DotNETRuntime/GCStart",
        layouts: &[
            ("Count", U32),
            ("Depth", U32),
            ("Reason", Enumeration(FieldType::U32, COLLECTION_REASONS)),
            ("Type", Enumeration(FieldType::U32, COLLECTION_TYPES)),
        ],
    },
    Definition {
        id: 2,
        kind: RuntimeEventKind::GarbageCollection,
        phase: Phase::End,
        name: "Microsoft-Windows-DotNETRuntime/GCEnd",
        layouts: &[("Count", U32), ("Depth", U32)],
    },
    Definition {
        id: 9,
        kind: RuntimeEventKind::Suspension,
        phase: Phase::Begin,
        name: "Microsoft-Windows-DotNETRuntime/GCSuspendEEBegin",
        layouts: &[("Reason", Enumeration(FieldType::U32, SUSPENSION_REASONS)), ("Count", U32)],
    },
    Definition {
        id: 3,
        kind: RuntimeEventKind::Suspension,
        phase: Phase::End,
        name: "Microsoft-Windows-DotNETRuntime/GCRestartEEEnd",
        layouts: &[],
    },
    Definition {
        id: 4,
        kind: RuntimeEventKind::HeapSizes,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/GCHeapStats",
        layouts: &[
            ("GenerationSize0", U64),
            ("TotalPromotedSize0", U64),
            ("GenerationSize1", U64),
            ("TotalPromotedSize1", U64),
            ("GenerationSize2", U64),
            ("TotalPromotedSize2", U64),
            ("GenerationSize3", U64),
            ("TotalPromotedSize3", U64),
            ("FinalizationPromotedSize", U64),
            ("FinalizationPromotedCount", U64),
            ("PinnedObjectCount", U32),
            ("SinkBlockCount", U32),
            ("GCHandleCount", U32),
            INSTANCE,
            ("GenerationSize4", U64),
            ("TotalPromotedSize4", U64),
        ],
    },
    Definition {
        id: 10,
        kind: RuntimeEventKind::Allocation,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/GCAllocationTick",
        layouts: &[
            ("AllocationAmount", Skipped(FieldType::U32)),
            ("AllocationKind", Enumeration(FieldType::U32, ALLOCATION_KINDS)),
            INSTANCE,
            ("AllocationAmount64", U64),
            ("TypeID", Skipped(FieldType::U64)),
            ("TypeName", TEXT),
            ("HeapIndex", U32),
            ("Address", Skipped(FieldType::U64)),
            ("ObjectSize", U64),
        ],
    },
    Definition {
        id: 55,
        kind: RuntimeEventKind::PoolAdjustment,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/ThreadPoolWorkerThreadAdjustmentAdjustment",
        layouts: &[
            ("AverageThroughput", F64),
            ("NewWorkerThreadCount", U32),
            ("Reason", Enumeration(FieldType::U32, ADJUSTMENT_REASONS)),
        ],
    },
    Definition {
        id: 80,
        kind: RuntimeEventKind::Exception,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/ExceptionThrown",
        layouts: &[
            ("ExceptionType", TEXT),
            ("ExceptionMessage", TEXT),
            ("ExceptionEIP", Skipped(FieldType::U64)),
            ("ExceptionHRESULT", U32),
            ("ExceptionFlags", Kept(FieldType::U16)),
        ],
    },
    Definition {
        id: 81,
        kind: RuntimeEventKind::Contention,
        phase: Phase::Begin,
        name: "Microsoft-Windows-DotNETRuntime/ContentionStart",
        layouts: &[
            ("ContentionFlags", U8),
            INSTANCE,
            ("LockID", U64),
            ("AssociatedObjectID", U64),
            ("LockOwnerThreadID", U64),
        ],
    },
    Definition {
        id: 91,
        kind: RuntimeEventKind::Contention,
        phase: Phase::End,
        name: "Microsoft-Windows-DotNETRuntime/ContentionStop",
        layouts: &[("ContentionFlags", U8), INSTANCE, ("DurationNs", F64)],
    },
    Definition {
        id: 143,
        kind: RuntimeEventKind::Compilation,
        phase: Phase::End,
        name: "Microsoft-Windows-DotNETRuntime/MethodLoadVerbose",
        layouts: &[
            ("MethodID", U64),
            ("ModuleID", Skipped(FieldType::U64)),
            ("MethodStartAddress", U64),
            ("MethodSize", U32),
            ("MethodToken", Skipped(FieldType::U32)),
            ("MethodFlags", U32),
        ],
    },
    Definition {
        id: 145,
        kind: RuntimeEventKind::Compilation,
        phase: Phase::Begin,
        name: "Microsoft-Windows-DotNETRuntime/MethodJittingStarted",
        layouts: &[
            ("MethodID", U64),
            ("ModuleID", U64),
            ("MethodToken", Skipped(FieldType::U32)),
            ("MethodILSize", U32),
            ("MethodNamespace", TEXT),
            ("MethodName", TEXT),
            ("MethodSignature", TEXT),
        ],
    },
    Definition {
        id: 152,
        kind: RuntimeEventKind::ModuleLoad,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/ModuleLoad",
        layouts: &[
            ("ModuleID", U64),
            ("AssemblyID", U64),
            ("ModuleFlags", U32),
            ("Reserved1", Skipped(FieldType::U32)),
            ("ModuleILPath", TEXT),
        ],
    },
    Definition {
        id: 303,
        kind: RuntimeEventKind::Allocation,
        phase: Phase::Whole,
        name: "Microsoft-Windows-DotNETRuntime/AllocationSampled",
        layouts: &[
            ("AllocationKind", Enumeration(FieldType::U32, ALLOCATION_KINDS)),
            INSTANCE,
            ("TypeID", Skipped(FieldType::U64)),
            ("TypeName", TEXT),
            ("Address", Skipped(FieldType::U64)),
            ("ObjectSize", U64),
            ("SampledByteOffset", U64),
        ],
    },
];
