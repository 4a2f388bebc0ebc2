//! Runtime events: what the runtime of a process reported beside the samples.

use crate::{ProcessId, StackId, StringId, ThreadId};

/// An event that a runtime reported: a garbage collection, an exception, an adjustment of its thread pool.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeEvent {
    /// The start of the event, nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// How long it took, nanoseconds; 0 for an event without a duration.
    pub duration_ns: u64,
    /// The process of the runtime.
    pub process: ProcessId,
    /// The thread that reported the event; `None` where its id is unknown.
    pub thread: Option<ThreadId>,
    /// What happened.
    pub kind: RuntimeEventKind,
    /// The provider's name and the event's: `Microsoft-Windows-DotNETRuntime/GCStart`.
    pub name: StringId,
    /// The stack of the thread, as the runtime captured it.
    pub stack: Option<StackId>,
    /// The decoded payload, in the order of the event's definition.
    pub fields: Box<[EventField]>,
}

/// A field of a [`RuntimeEvent`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventField {
    /// The name, as the event's definition spells it.
    pub name: StringId,
    /// The value.
    pub value: FieldValue,
}

/// The value of an [`EventField`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue {
    /// A number that is never negative; a truth value is 0 or 1.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(StringId),
}

/// The kind of a [`RuntimeEvent`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuntimeEventKind {
    /// A garbage collection, from its start to its end.
    GarbageCollection,
    /// All managed threads were suspended, from the request to the restart.
    Suspension,
    /// The sizes of the heap after a garbage collection.
    HeapSizes,
    /// The thread pool changed its number of workers.
    PoolAdjustment,
    /// An exception was thrown.
    Exception,
    /// A thread waited for a lock.
    Contention,
    /// A sampled allocation.
    Allocation,
    /// A method was compiled.
    Compilation,
    /// A module was loaded.
    ModuleLoad,
    /// The value of a counter or a meter.
    Counter,
    /// An HTTP request that the process served or sent, from its start to its end.
    Request,
    /// An event of another provider.
    Other,
}

impl RuntimeEventKind {
    /// Every kind, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::GarbageCollection,
        Self::Suspension,
        Self::HeapSizes,
        Self::PoolAdjustment,
        Self::Exception,
        Self::Contention,
        Self::Allocation,
        Self::Compilation,
        Self::ModuleLoad,
        Self::Counter,
        Self::Request,
        Self::Other,
    ];

    /// The name in outputs: `garbage collection`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GarbageCollection => "garbage collection",
            Self::Suspension => "suspension",
            Self::HeapSizes => "heap sizes",
            Self::PoolAdjustment => "thread pool adjustment",
            Self::Exception => "exception",
            Self::Contention => "lock contention",
            Self::Allocation => "allocation",
            Self::Compilation => "compilation",
            Self::ModuleLoad => "module load",
            Self::Counter => "counter",
            Self::Request => "request",
            Self::Other => "event",
        }
    }
}

impl RuntimeEvent {
    /// The value of the field with a name.
    #[must_use]
    pub fn field(&self, profile: &crate::Profile, name: &str) -> Option<FieldValue> {
        self.fields.iter().find(|field| profile.string(field.name) == name).map(|field| field.value)
    }

    /// Whether a thread pool got workers because those that it had did not proceed: no work item was taken from its queue for a
    /// time (`Starvation`), or workers waited for tasks (`CooperativeBlocking`).
    #[must_use]
    pub fn is_pool_starvation(&self, profile: &crate::Profile) -> bool {
        // The value map ThreadAdjustmentReasonMap (dotnet/runtime, src/coreclr/vm/ClrEtwAll.man).
        const REASONS: [&str; 2] = ["Starvation", "CooperativeBlocking"];
        self.kind == RuntimeEventKind::PoolAdjustment
            && matches!(self.field(profile, "Reason"), Some(FieldValue::Text(text)) if REASONS.contains(&profile.string(text)))
    }

    /// The end of the event, nanoseconds since the start of sampling.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.time_ns.saturating_add(self.duration_ns)
    }
}
