//! Divides requested events into EventPipe sessions: one for each level of a provider, because it holds for its session, and one
//! for the events whose stacks are captured.
//!
//! Keywords: dotnet/runtime, src/coreclr/vm/ClrEtwAll.man, provider `Microsoft-Windows-DotNETRuntime`.

use std::collections::BTreeMap;

use profiler_dotnet_symbols::eventpipe::{
    code_events::RUNTIME_PROVIDER,
    ipc::{ProviderConfig, SessionConfig},
    runtime_events::{CLIENT_PROVIDER, RuntimeEvent, SERVER_PROVIDER},
};

use profiler_profile::RuntimeEventKind;

use super::listener::RUNDOWN_KEYWORDS;
use crate::event_request::{EventProvider, EventRequest, EventSet};

const GC: u64 = 0x1;
const LOADER: u64 = 0x8;
const JIT: u64 = 0x10;
const CONTENTION: u64 = 0x4000;
const EXCEPTION: u64 = 0x8000;
const THREADING: u64 = 0x1_0000;
/// Since .NET 10.
const ALLOCATION_SAMPLING: u64 = 0x800_0000_0000;

const ERROR: u32 = 2;
const INFORMATIONAL: u32 = 4;
const VERBOSE: u32 = 5;

/// The first version of .NET with sampled allocations (`AllocationSampled`).
const FIRST_WITH_SAMPLED_ALLOCATIONS: u32 = 10;

/// The provider of the counters of the runtime, and its argument for one value each second.
const COUNTER_PROVIDER: &str = "System.Runtime";
const EACH_SECOND: &str = "EventCounterIntervalSec=1";

/// The provider of tasks, and the keyword with which activities follow them (`TplEventSource.Keywords.TasksFlowActivityIds`). No
/// event has the keyword.
const TASK_PROVIDER: &str = "System.Threading.Tasks.TplEventSource";
const TASKS_FLOW_ACTIVITIES: u64 = 0x80;

/// Selects the events without keywords, which all requests of `HttpClient` are, and no other event of their provider.
const UNUSED_KEYWORD: u64 = 0x2;

/// Memory of the target that the runtime may fill with unread events of one session. The listener empties it continuously.
const BUFFER_MIB: u32 = 16;

/// That of a session with a rundown, which the runtime writes at once.
const RUNDOWN_BUFFER_MIB: u32 = 64;

/// The events of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventSession {
    collects_stacks: bool,
    /// By name.
    providers: BTreeMap<String, ProviderEvents>,
    /// What is kept of the events of the sets. Keywords select others as well.
    kinds: Vec<RuntimeEventKind>,
    /// The numbers of the runtime's own events that are kept; empty where all are.
    runtime_events: Vec<u32>,
    /// The providers all of whose events are kept.
    whole_providers: Vec<String>,
    /// Whether it ends with a rundown.
    has_rundown: bool,
}

/// The events of a provider that a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProviderEvents {
    keywords: u64,
    level: u32,
    /// The arguments of the provider.
    filter: &'static str,
}

/// What a set consists of.
struct SetContent {
    providers: Vec<(&'static str, ProviderEvents)>,
    kinds: &'static [RuntimeEventKind],
    collects_stacks: bool,
}

impl EventSession {
    /// All events in one session, whose stream is kept: each provider has the most verbose of its levels. Where stacks are
    /// captured, the session ends with a rundown, whose methods name their addresses. A runtime before .NET 5, whose version is not
    /// known, can block at its end for ever (dotnet/runtime issue 51579), and writes none.
    pub(super) fn of_kept_stream(request: &EventRequest, runtime_version: Option<u32>) -> Self {
        let mut whole = Self::default();
        for session in Self::all(request, runtime_version) {
            whole.collects_stacks |= session.collects_stacks;
            whole.kinds.extend(session.kinds);
            whole.whole_providers.extend(session.whole_providers);
            for (name, events) in session.providers {
                let known = whole.providers.entry(name).or_insert(events);
                known.level = known.level.max(events.level);
                known.add(events);
            }
        }
        whole.has_rundown = whole.collects_stacks && runtime_version.is_some();
        whole
    }

    /// The sessions for these events with a runtime of this version, if it is known.
    pub(super) fn all(request: &EventRequest, runtime_version: Option<u32>) -> Vec<Self> {
        let mut sessions = Vec::new();
        for set in &request.sets {
            let SetContent { providers, kinds, collects_stacks } = content_of(*set, runtime_version);
            for (provider, events) in providers {
                let session = session_with(&mut sessions, provider, events, collects_stacks);
                session.kinds.extend(kinds);
            }
        }
        for EventProvider { name, keywords, level } in &request.providers {
            let events = ProviderEvents { keywords: *keywords, level: *level, filter: "" };
            session_with(&mut sessions, name, events, false).whole_providers.push(name.clone());
        }
        sessions.iter_mut().for_each(Self::select_runtime_events);
        sessions
    }

    /// Selects the runtime's own events that are kept, so that a runtime that can sends no others.
    fn select_runtime_events(&mut self) {
        if !self.whole_providers.iter().any(|whole| whole == RUNTIME_PROVIDER) {
            self.runtime_events = self.kinds.iter().copied().flat_map(RuntimeEvent::numbers).collect();
        }
    }

    /// The configurations of its providers.
    pub(super) fn providers(&self) -> Vec<ProviderConfig<'_>> {
        let mut configs = Vec::with_capacity(self.providers.len());
        for (name, events) in &self.providers {
            let ProviderEvents { keywords, level, filter } = *events;
            let events = if name == RUNTIME_PROVIDER { &self.runtime_events[..] } else { &[] };
            configs.push(ProviderConfig { name, keywords, level, filter, events });
        }
        configs
    }

    /// Whether events of a provider and a kind were requested. A runtime also writes events of `Microsoft-DotNETCore-EventPipe`.
    pub(super) fn keeps_kind(&self, provider: &str, kind: RuntimeEventKind) -> bool {
        self.whole_providers.iter().any(|whole| whole == provider)
            || (self.providers.contains_key(provider) && self.kinds.contains(&kind))
    }

    /// The kinds of the events that it has.
    pub(super) fn kinds(&self) -> Vec<RuntimeEventKind> {
        let is_any = |kind: &RuntimeEventKind| self.kinds.contains(kind) || !self.whole_providers.is_empty();
        RuntimeEventKind::ALL.iter().copied().filter(is_any).collect()
    }

    /// The kind of all its events, where the runtime has no others with its keywords at its level, so that each dropped event is one
    /// of this kind.
    pub(super) fn only_kind(&self) -> Option<RuntimeEventKind> {
        let has_exceptions_alone = self.kinds() == [RuntimeEventKind::Exception] && self.providers.len() == 1;
        has_exceptions_alone.then_some(RuntimeEventKind::Exception)
    }

    /// The configuration of the session with these providers.
    pub(super) fn config<'a>(&self, providers: &'a [ProviderConfig<'a>]) -> SessionConfig<'a> {
        let (buffer_mib, rundown_keywords) =
            if self.has_rundown { (RUNDOWN_BUFFER_MIB, RUNDOWN_KEYWORDS) } else { (BUFFER_MIB, 0) };
        SessionConfig { buffer_mib, rundown_keywords, collects_stacks: self.collects_stacks, providers }
    }

    /// Whether the stacks of its events are kept. Before .NET 9, a runtime captures those of all events.
    pub(super) fn keeps_stacks(&self) -> bool {
        self.collects_stacks
    }
}

/// Adds events of a provider to the session that has the provider at this level or not at all, or to a new one.
fn session_with<'a>(
    sessions: &'a mut Vec<EventSession>,
    provider: &str,
    events: ProviderEvents,
    collects_stacks: bool,
) -> &'a mut EventSession {
    let is_free = |session: &EventSession| {
        let known = session.providers.get(provider);
        session.collects_stacks == collects_stacks && known.is_none_or(|known| known.level == events.level)
    };
    let index = sessions.iter().position(is_free).unwrap_or_else(|| {
        sessions.push(EventSession { collects_stacks, ..EventSession::default() });
        sessions.len() - 1
    });
    let session = &mut sessions[index];
    session.providers.entry(provider.to_owned()).or_insert(events).add(events);
    session
}

impl ProviderEvents {
    /// Adds the keywords and the arguments of others.
    fn add(&mut self, others: Self) {
        self.keywords |= others.keywords;
        if !others.filter.is_empty() {
            self.filter = others.filter;
        }
    }
}

fn content_of(set: EventSet, runtime_version: Option<u32>) -> SetContent {
    let of = |provider, keywords, level, kinds| SetContent {
        providers: vec![(provider, ProviderEvents { keywords, level, filter: "" })],
        kinds,
        collects_stacks: false,
    };
    let of_runtime = |keywords, level, kinds| of(RUNTIME_PROVIDER, keywords, level, kinds);
    let with_stacks = |content| SetContent { collects_stacks: true, ..content };
    match set {
        EventSet::Collections => of_runtime(
            GC,
            INFORMATIONAL,
            &[RuntimeEventKind::GarbageCollection, RuntimeEventKind::Suspension, RuntimeEventKind::HeapSizes],
        ),
        EventSet::ThreadPool => of_runtime(THREADING, INFORMATIONAL, &[RuntimeEventKind::PoolAdjustment]),
        EventSet::Exceptions => with_stacks(of_runtime(EXCEPTION, ERROR, &[RuntimeEventKind::Exception])),
        EventSet::Contentions => of_runtime(CONTENTION, INFORMATIONAL, &[RuntimeEventKind::Contention]),
        EventSet::Allocations if runtime_version >= Some(FIRST_WITH_SAMPLED_ALLOCATIONS) => {
            with_stacks(of_runtime(ALLOCATION_SAMPLING, INFORMATIONAL, &[RuntimeEventKind::Allocation]))
        }
        EventSet::Allocations => with_stacks(of_runtime(GC, VERBOSE, &[RuntimeEventKind::Allocation])),
        EventSet::Compilations => of_runtime(JIT, VERBOSE, &[RuntimeEventKind::Compilation]),
        EventSet::ModuleLoads => of_runtime(LOADER, INFORMATIONAL, &[RuntimeEventKind::ModuleLoad]),
        EventSet::Counters => {
            let events = ProviderEvents { keywords: u64::MAX, level: INFORMATIONAL, filter: EACH_SECOND };
            let providers = vec![(COUNTER_PROVIDER, events)];
            SetContent { providers, kinds: &[RuntimeEventKind::Counter], collects_stacks: false }
        }
        // .NET Core 3.1 writes them at the level verbose.
        EventSet::ServerRequests => of(SERVER_PROVIDER, u64::MAX, VERBOSE, &[RuntimeEventKind::Request]),
        EventSet::ClientRequests => {
            let at_information = |keywords| ProviderEvents { keywords, level: INFORMATIONAL, filter: "" };
            let requests = (CLIENT_PROVIDER, at_information(UNUSED_KEYWORD));
            let activities = (TASK_PROVIDER, at_information(TASKS_FLOW_ACTIVITIES));
            let providers = vec![activities, requests];
            SetContent { providers, kinds: &[RuntimeEventKind::Request], collects_stacks: false }
        }
    }
}

/// Whether the sessions for these events depend on the version of the runtime.
pub(super) fn depend_on_version(request: &EventRequest) -> bool {
    let collects_stacks = |set: &EventSet| content_of(*set, None).collects_stacks;
    request.sets.contains(&EventSet::Allocations)
        || (request.stream.is_some() && request.sets.iter().any(collects_stacks))
}

/// The first number of a version: 9 of `9.0.1+c8acea22`.
pub(super) fn major_version(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether stacks are captured, and the providers with their keywords and levels.
    type Described = (bool, Vec<(String, u64, u32)>);

    fn sessions(sets: &[EventSet], version: Option<u32>) -> Vec<Described> {
        let request = EventRequest { sets: sets.to_vec(), ..EventRequest::default() };
        let described = |session: EventSession| {
            let providers =
                session.providers.into_iter().map(|(name, events)| (name, events.keywords, events.level));
            (session.collects_stacks, providers.collect())
        };
        EventSession::all(&request, version).into_iter().map(described).collect()
    }

    fn runtime(keywords: u64, level: u32) -> Vec<(String, u64, u32)> {
        vec![(RUNTIME_PROVIDER.to_owned(), keywords, level)]
    }

    #[test]
    fn the_default_sets_take_a_session_with_and_one_without_stacks() {
        let expected = [(false, runtime(0x1_4001, 4)), (true, runtime(0x8000, 2))];
        assert_eq!(sessions(EventSet::DEFAULT, None), expected);
    }

    #[test]
    fn allocations_are_sampled_where_the_runtime_can() {
        for version in [None, Some(9)] {
            assert_eq!(sessions(&[EventSet::Allocations], version), [(true, runtime(1, 5))]);
        }
        let expected = [(true, runtime(0x800_0000_0000, 4))];
        assert_eq!(sessions(&[EventSet::Allocations], Some(10)), expected);
        assert_eq!(
            ["9.0.1+c8acea22", "10.0.0-rc.1", "x", ""].map(major_version),
            [Some(9), Some(10), None, None]
        );
    }

    #[test]
    fn a_session_has_each_provider_at_one_level() {
        let [collections, compilations] = [EventSet::Collections, EventSet::Compilations];
        let expected = [(false, runtime(1, 4)), (false, runtime(0x10, 5))];
        assert_eq!(sessions(&[collections, compilations], None), expected);
        let requests = [EventSet::ServerRequests, EventSet::ClientRequests];
        let [(has_stacks, providers)] = &sessions(&[&[collections], &requests[..]].concat(), None)[..] else {
            panic!("one session")
        };
        let providers: Vec<_> =
            providers.iter().map(|(name, keywords, level)| (name.as_str(), *keywords, *level)).collect();
        let expected = [
            ("Microsoft-AspNetCore-Server-Kestrel", u64::MAX, 5),
            (RUNTIME_PROVIDER, 1, 4),
            ("System.Net.Http", 2, 4),
            ("System.Threading.Tasks.TplEventSource", 0x80, 4),
        ];
        assert_eq!((*has_stacks, providers), (false, expected.to_vec()));
    }

    #[test]
    fn a_stream_that_is_kept_has_all_events_in_one_session() {
        let sets = vec![EventSet::Collections, EventSet::Compilations, EventSet::Counters];
        let providers = vec!["Mine".parse().unwrap()];
        let mut request = EventRequest { sets, providers, stream: None };
        let session = EventSession::of_kept_stream(&request, None);
        let configs = session.providers();
        let providers: Vec<_> = configs.iter().map(|one| (one.name, one.keywords, one.level)).collect();
        let expected = [(RUNTIME_PROVIDER, 0x11, 5), ("Mine", u64::MAX, 4), (COUNTER_PROVIDER, u64::MAX, 4)];
        assert_eq!(providers, expected);
        assert_eq!(session.kinds.len(), 5);
        let config = session.config(&configs);
        assert_eq!((config.rundown_keywords, config.collects_stacks, config.buffer_mib), (0, false, 16));
        request.sets.push(EventSet::Exceptions);
        for (version, rundown_keywords, buffer_mib) in [(None, 0, 16), (Some(6), 0x138, 64)] {
            let config = EventSession::of_kept_stream(&request, version).config(&configs);
            assert_eq!((config.rundown_keywords, config.buffer_mib), (rundown_keywords, buffer_mib));
            assert!(config.collects_stacks);
        }
    }

    #[test]
    fn the_events_of_the_runtime_are_selected_unless_all_are_kept() {
        let selected = |sets: &[EventSet], providers: &[&str]| {
            let providers = providers.iter().map(|provider| provider.parse().unwrap()).collect();
            let request = EventRequest { sets: sets.to_vec(), providers, stream: None };
            let sessions = EventSession::all(&request, Some(10));
            sessions.iter().map(|session| session.providers()[0].events.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(selected(&[EventSet::Exceptions], &[]), [[80]]);
        assert_eq!(selected(&[EventSet::ThreadPool], &[]), [[55]]);
        let whole = ["Microsoft-Windows-DotNETRuntime:0x1"];
        assert_eq!(selected(&[EventSet::ThreadPool], &whole), [[0; 0]]);
        let request = EventRequest { sets: vec![EventSet::ThreadPool], ..EventRequest::default() };
        assert_eq!(EventSession::of_kept_stream(&request, None).providers()[0].events, [0; 0]);
    }

    #[test]
    fn a_session_keeps_what_was_requested_of_it() {
        let request = EventRequest {
            sets: vec![EventSet::Collections, EventSet::Allocations],
            ..EventRequest::default()
        };
        let sessions = EventSession::all(&request, None);
        let kinds = |session: &EventSession| session.kinds.clone();
        assert_eq!(
            kinds(&sessions[0]),
            [RuntimeEventKind::GarbageCollection, RuntimeEventKind::Suspension, RuntimeEventKind::HeapSizes]
        );
        assert_eq!(
            kinds(&sessions[1]),
            [RuntimeEventKind::Allocation],
            "collections are in the other session already"
        );
    }

    #[test]
    fn the_keywords_of_a_provider_at_one_level_are_joined() {
        let providers = vec!["Microsoft-Windows-DotNETRuntime:0x8".parse().unwrap(), "Mine".parse().unwrap()];
        let sets = vec![EventSet::Collections, EventSet::Counters];
        let request = EventRequest { sets, providers, stream: None };
        let sessions = EventSession::all(&request, None);
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions[0].whole_providers, [RUNTIME_PROVIDER, "Mine"]);
        let configs = sessions[0].providers();
        let providers: Vec<_> = configs.iter().map(|one| (one.name, one.keywords, one.filter)).collect();
        let expected =
            [(RUNTIME_PROVIDER, 0x9, ""), ("Mine", u64::MAX, ""), (COUNTER_PROVIDER, u64::MAX, EACH_SECOND)];
        assert_eq!(providers, expected);
        let config = sessions[0].config(&configs);
        assert_eq!((config.rundown_keywords, config.collects_stacks), (0, false));
    }
}
