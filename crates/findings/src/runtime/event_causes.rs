//! What the events of runtimes say about the causes of what samples show.

use std::collections::BTreeSet;

use profiler_profile::{ProcessId, Profile, RuntimeEvent, RuntimeEventKind};

use super::{
    collection_reasons::{CollectionCause, main_cause},
    process_events::ProcessEvents,
};

/// The namespace of methods that a program generates (dotnet/runtime, `src/coreclr/vm/eventtrace.cpp`,
/// `SendMethodJitStartEvent`).
const DYNAMIC_NAMESPACE: &str = "dynamicClass";

/// The processes whose events name a cause.
#[derive(Default)]
pub(crate) struct EventCauses {
    /// Most collections are requested.
    pub(crate) requests_collections: BTreeSet<ProcessId>,
    /// Most compilations are of methods that the program generates.
    pub(crate) compiles_dynamic_methods: BTreeSet<ProcessId>,
}

impl EventCauses {
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut causes = Self::default();
        for events in ProcessEvents::of(profile) {
            if matches!(main_cause(&events), Some((CollectionCause::Request, ..))) {
                causes.requests_collections.insert(events.process);
            }
            let compilations = || events.of_kind(RuntimeEventKind::Compilation);
            let is_dynamic =
                |event: &&RuntimeEvent| events.text(event, "MethodNamespace") == Some(DYNAMIC_NAMESPACE);
            if 2 * compilations().filter(is_dynamic).count() > compilations().count() {
                causes.compiles_dynamic_methods.insert(events.process);
            }
        }
        causes
    }
}
