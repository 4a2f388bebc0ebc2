//! Looks up the methods of one process, as its runtime reported them, by address and time.

#[cfg(feature = "capture")]
mod recording;
#[cfg(not(feature = "capture"))]
#[path = "method_table/no_recording.rs"]
mod recording;

use std::{collections::HashSet, time::Duration};

use profiler_dotnet_symbols::managed::Tier;
use profiler_profile::Reason;

use super::{
    compilations::Compilations,
    method_events::{MethodEvents, Observed, ObservedMethod},
    module_names::ModuleNames,
    report::Report,
};
use profiler_addresses::{CodeMap, Entry, LateEntry, MonotonicTime};
use profiler_binary_reader::{Name, Names};

/// Addresses of stubs that are kept.
const MAX_STUBS: usize = 1 << 14;

/// A method that the runtime reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeMethod {
    /// The normalized name with the module.
    pub name: String,
    /// How its code was compiled.
    pub tier: Tier,
    /// The time from which on its code exists.
    pub exists_from: MonotonicTime,
    /// Whether its code can be unloaded: before that time, another method can have been at its address.
    pub can_be_unloaded: bool,
}

/// All methods of one process.
#[derive(Debug, Default)]
pub struct MethodTable {
    code: CodeMap<StoredMethod>,
    names: Names,
    modules: ModuleNames,
    /// Which methods it lacks.
    pub completeness: Completeness,
    /// Whether a report had all modules of its time. Later modules have events of their own.
    has_all_modules: bool,
    /// Whether a later report can replace methods that the table has.
    is_provisional: bool,
    /// Addresses without a method at a time at which all methods are known.
    stubs: HashSet<u64>,
    /// The time of the last event of a rundown. Events before it can be about methods in it.
    rundown_ended: MonotonicTime,
    /// As in [`Report`].
    complete_since: MonotonicTime,
    /// Whether the runtime has unloaded code.
    unloads_code: bool,
    /// Methods of the current report that began before others that the table has.
    late: Vec<LateEntry<StoredMethod>>,
    compilations: Compilations,
}

/// Which methods the table lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Events that could not be decoded.
    pub malformed_events: u64,
    /// Events that the runtime dropped, and that no rundown replaced.
    pub dropped_events: u64,
    /// Whether methods were discarded because a limit was reached.
    pub truncated: bool,
    /// Why the runtime did not report all methods.
    pub failure: Option<Reason>,
    /// The time before which all methods were reported.
    pub complete_until: MonotonicTime,
}

impl Completeness {
    /// Whether the table has every method that existed at `time`.
    pub fn is_complete_at(&self, time: MonotonicTime) -> bool {
        let lacks_methods =
            self.malformed_events + self.dropped_events > 0 || self.truncated || self.failure.is_some();
        !lacks_methods && time < self.complete_until
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredMethod {
    module_id: u64,
    tier: Tier,
    /// As in [`RuntimeMethod`].
    can_be_unloaded: bool,
    /// Whether only a rundown has it: its time is that from which on it is known to exist.
    began_before: bool,
    /// Without its module.
    name: Name,
}

/// The name of a method without its module, and what else is stored of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewMethod<'a> {
    pub(super) module_id: u64,
    pub(super) tier: Tier,
    pub(super) can_be_unloaded: bool,
    pub(super) name: &'a str,
}

/// The methods of a report that have load events.
struct LoadedMethods<'a>(HashSet<(u64, u32, u64, &'a str)>);

impl<'a> LoadedMethods<'a> {
    fn of(events: &'a MethodEvents) -> Self {
        let loaded =
            events.methods.iter().filter(|method| matches!(method.observed, Observed::Loaded { .. }));
        Self(loaded.map(|method| Self::key(method, events.names.get(method.name))).collect())
    }

    /// Whether a method of a rundown has a load event, with the time from which on it exists.
    fn has_time_of(&self, method: &ObservedMethod, name: &str) -> bool {
        matches!(method.observed, Observed::Existing { .. }) && self.0.contains(&Self::key(method, name))
    }

    fn key<'name>(method: &ObservedMethod, name: &'name str) -> (u64, u32, u64, &'name str) {
        (method.start, method.size_bytes, method.module_id, name)
    }
}

impl MethodTable {
    /// Adds the methods and modules of a report, until the table takes `max_bytes` of memory.
    pub(super) fn add_report(&mut self, report: Report, max_bytes: usize) {
        let Report { mut events, dropped_events, failure, complete_until, .. } = report;
        if self.memory_bytes() < max_bytes {
            self.modules.insert_all(&events.modules);
            self.compilations.add(std::mem::take(&mut events.compilations));
        } else {
            self.completeness.truncated |= !events.compilations.is_empty();
        }
        self.complete_since = report.complete_since;
        self.unloads_code |= events.unloads_code;
        self.add_methods(&events, max_bytes);
        self.has_all_modules |= failure.is_none() && complete_until > MonotonicTime::ZERO;
        let completeness = &mut self.completeness;
        completeness.malformed_events += events.malformed_events;
        completeness.dropped_events += dropped_events;
        completeness.truncated |= events.truncated;
        completeness.failure = failure.or(completeness.failure);
        completeness.complete_until = complete_until;
        self.is_provisional = report.is_provisional;
    }

    fn add_methods(&mut self, events: &MethodEvents, max_bytes: usize) {
        let loaded = LoadedMethods::of(events);
        let mut methods: Vec<_> = events.methods.iter().map(|method| (self.time(method), method)).collect();
        methods.sort_by_key(|(time, _)| *time);
        for (time, method) in methods {
            if let Observed::Existing { at, .. } = method.observed {
                self.rundown_ended = self.rundown_ended.max(at);
            }
            let name = events.names.get(method.name);
            if self.is_known(method, name) || loaded.has_time_of(method, name) {
                continue;
            }
            if self.memory_bytes() < max_bytes {
                self.add_observed(time, method, name);
            } else {
                self.completeness.truncated = true;
            }
        }
        self.add_late_methods();
    }

    /// The time of an event; for a method of a rundown, that from which on it exists, as far as is known.
    fn time(&self, method: &ObservedMethod) -> MonotonicTime {
        match method.observed {
            Observed::Loaded { at } | Observed::Unloaded { at } => at,
            // Since then it has no load event.
            Observed::Existing { from, .. } if self.can_be_unloaded(method) => from.max(self.complete_since),
            Observed::Existing { from, .. } => from,
        }
    }

    fn can_be_unloaded(&self, method: &ObservedMethod) -> bool {
        let is_unloaded = matches!(method.observed, Observed::Unloaded { .. });
        is_unloaded || method.is_dynamic || self.modules.is_collectible(method.module_id)
    }

    /// Whether the table has what an event says.
    fn is_known(&self, method: &ObservedMethod, name: &str) -> bool {
        match method.observed {
            Observed::Existing { .. } => self.newest_same(method, name).is_some(),
            Observed::Loaded { .. } => self
                .newest_same(method, name)
                .is_some_and(|known| !known.can_be_unloaded || !known.began_before),
            Observed::Unloaded { at } => {
                let before = self.code.lookup(method.start, at.saturating_sub(Duration::from_nanos(1)));
                before.is_some_and(|known| self.is_same(&known.payload, method, name))
            }
        }
    }

    /// The newest method at the address of an event, if it is that of the event.
    fn newest_same(&self, method: &ObservedMethod, name: &str) -> Option<StoredMethod> {
        let newest = self.code.newest_exactly(method.start, method.size_bytes.into())?.payload;
        self.is_same(&newest, method, name).then_some(newest)
    }

    fn is_same(&self, known: &StoredMethod, method: &ObservedMethod, name: &str) -> bool {
        known.module_id == method.module_id && self.names.get(known.name) == name
    }

    fn add_observed(&mut self, time: MonotonicTime, method: &ObservedMethod, name: &str) {
        let ObservedMethod { start, size_bytes, module_id, tier, .. } = *method;
        let size = size_bytes.into();
        let new = NewMethod { module_id, tier, can_be_unloaded: self.can_be_unloaded(method), name };
        match (method.observed, self.newest_same(method, name)) {
            (Observed::Loaded { .. }, Some(of_rundown)) => {
                let payload = StoredMethod { began_before: false, ..of_rundown };
                self.late.push(LateEntry { start, size, exists_from: time, payload });
            }
            (Observed::Unloaded { .. }, _) => {
                let exists_from = self.complete_since.min(time);
                let payload = self.store(new, true);
                self.late.extend(payload.map(|payload| LateEntry { start, size, exists_from, payload }));
            }
            (observed, _) => {
                let began_before = matches!(observed, Observed::Existing { .. });
                let payload = self.store(new, began_before);
                self.insert(start, size, time, payload);
            }
        }
    }

    fn add_late_methods(&mut self) {
        let late = std::mem::take(&mut self.late);
        if late.is_empty() {
            return;
        }
        match self.code.with_late_entries(&late, |one, other| one.name == other.name) {
            Ok(code) => self.code = code,
            Err(_) => self.completeness.truncated = true,
        }
    }

    fn insert(
        &mut self,
        start: u64,
        size_bytes: u64,
        exists_from: MonotonicTime,
        method: Option<StoredMethod>,
    ) {
        let is_added =
            method.is_some_and(|method| self.code.insert(start, size_bytes, exists_from, method).is_ok());
        self.completeness.truncated |= !is_added;
    }

    fn store(&mut self, method: NewMethod<'_>, began_before: bool) -> Option<StoredMethod> {
        let NewMethod { module_id, tier, can_be_unloaded, name } = method;
        let name = self.names.push(name.as_bytes());
        self.completeness.truncated |= name.is_none();
        Some(StoredMethod { module_id, tier, can_be_unloaded, began_before, name: name? })
    }

    /// How the code at `address` at `time` was compiled.
    pub fn tier(&self, address: u64, time: MonotonicTime) -> Option<Tier> {
        self.entry_at(address, time).map(|entry| entry.payload.tier)
    }

    /// The method whose code was at `address` at `time`.
    fn entry_at(&self, address: u64, time: MonotonicTime) -> Option<&Entry<StoredMethod>> {
        self.code.lookup(address, time).filter(|entry| !is_before(time, entry))
    }

    /// Whether a method that was at `address` at `time` can have been unloaded before any event about it.
    pub fn may_be_unloaded(&self, address: u64, time: MonotonicTime) -> bool {
        match self.code.lookup(address, time) {
            Some(entry) => is_before(time, entry),
            None => self.unloads_code && time < self.complete_since,
        }
    }

    /// Whether a complete report would have the same method at `address` at `time`, or none as well.
    ///
    /// As long as no code is unloaded, the memory of a method stays that of the method, and the memory of a stub never
    /// becomes that of a method. The name of a method lacks its module until a rundown has reported it.
    pub fn is_final(&mut self, address: u64, time: MonotonicTime) -> bool {
        let method = self.code.lookup(address, time).map(|entry| (entry.exists_from, entry.payload));
        if self.completeness.is_complete_at(self.decision_time(method).max(time)) {
            let is_stub = method.is_none() && !self.may_be_unloaded(address, time);
            if is_stub && self.stubs.len() < MAX_STUBS {
                self.stubs.insert(address);
            }
            return true;
        }
        let is_whole = method.is_some_and(|(_, method)| {
            let has_module = self.has_all_modules || self.modules.get(method.module_id).is_some();
            has_module && !method.can_be_unloaded
        });
        !self.is_provisional && (is_whole || self.stubs.contains(&address))
    }

    /// The time up to which the events have to be known to decide which method was at an address.
    fn decision_time(&self, method: Option<(MonotonicTime, StoredMethod)>) -> MonotonicTime {
        match method {
            Some((exists_from, method)) if method.can_be_unloaded => {
                if method.began_before {
                    self.rundown_ended.max(exists_from)
                } else {
                    exists_from
                }
            }
            Some(_) | None => MonotonicTime::ZERO,
        }
    }

    /// Whether no method was at `address` at `time`, and none can be reported later.
    pub fn is_stub(&self, address: u64, time: MonotonicTime) -> bool {
        self.code.lookup(address, time).is_none()
            && !self.may_be_unloaded(address, time)
            && (self.completeness.is_complete_at(time)
                || (!self.is_provisional && self.stubs.contains(&address)))
    }

    /// The method whose code was at `address` at `time`.
    pub fn lookup(&self, address: u64, time: MonotonicTime) -> Option<RuntimeMethod> {
        self.entry_at(address, time).map(|entry| self.runtime_method(entry))
    }

    /// The name of the method that a thread compiled at `time`. The thread's id is that in its pid namespace.
    pub fn compiled_method(&self, thread: u64, time: MonotonicTime) -> Option<String> {
        let method = self.compilations.at(thread, time)?;
        Some(self.qualified_name(method.module_id, &method.name))
    }

    /// See [`CodeMap::epoch`].
    pub fn epoch(&self, time: MonotonicTime) -> u32 {
        self.code.epoch(time)
    }

    /// Retires methods whose code was replaced, and compilations that ended, before a time.
    pub fn retire_replaced(&mut self, before: MonotonicTime) {
        self.compilations.retire_ended(before);
        if self.code.has_mostly_replaced() {
            let names = std::mem::take(&mut self.names);
            self.code = self.code.retained(before, |method| {
                let name = self.names.push(names.get(method.name).as_bytes())?;
                Some(StoredMethod { name, ..*method })
            });
        }
    }

    /// The memory of the table.
    pub fn memory_bytes(&self) -> usize {
        let stubs = self.stubs.capacity() * size_of::<u64>();
        let code = self.code.memory_bytes() + self.names.memory_bytes();
        code + self.modules.memory_bytes() + stubs + self.compilations.memory_bytes()
    }

    fn runtime_method(&self, entry: &Entry<StoredMethod>) -> RuntimeMethod {
        let StoredMethod { module_id, tier, can_be_unloaded, name, .. } = entry.payload;
        let name = self.qualified_name(module_id, self.names.get(name));
        RuntimeMethod { name, tier, exists_from: entry.exists_from, can_be_unloaded }
    }

    fn qualified_name(&self, module_id: u64, name: &str) -> String {
        match self.modules.get(module_id) {
            Some(module) => format!("{module}!{name}"),
            None => name.to_owned(),
        }
    }
}

/// Whether a time is before a method that can be unloaded. The address of any other method was that of no other one before.
fn is_before(time: MonotonicTime, entry: &Entry<StoredMethod>) -> bool {
    entry.payload.can_be_unloaded && time < entry.exists_from
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Event, EventKind},
        testing::{dynamic_method_payload, method_payload, module_payload},
    };

    use super::*;
    use crate::method_events::EventTime;

    /// An event about a dynamic method at the only address.
    #[derive(Clone, Copy)]
    enum Seen {
        Loaded,
        Unloaded,
        InRundown,
    }

    /// When the session was opened.
    const OPENED_NS: u64 = 100;

    /// A report of events: their times, and the names of the methods.
    fn dynamic_methods(seen: &[(Seen, u64, &str)]) -> Report {
        let mut report = Report { complete_since: MonotonicTime(OPENED_NS), ..Report::default() };
        for (seen, time_ns, name) in seen {
            let (id, rundown_from_ns) = match seen {
                Seen::Loaded | Seen::InRundown => (143, matches!(seen, Seen::InRundown).then_some(0)),
                Seen::Unloaded => (144, None),
            };
            let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
            let payload = &dynamic_method_payload(0x1000, 16, name);
            let event = Event { kind: &kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] };
            report.events.add(
                &event,
                EventTime::Known(MonotonicTime(*time_ns)),
                rundown_from_ns.map(MonotonicTime),
            );
        }
        report.complete_until = MonotonicTime::MAX;
        report
    }

    fn names_at(table: &MethodTable, times_ns: &[u64]) -> Vec<Option<String>> {
        let name = |time_ns: &u64| table.lookup(0x1008, MonotonicTime(*time_ns)).map(|method| method.name);
        times_ns.iter().map(name).collect()
    }

    /// Each method begins with its load event, whichever report has it, and none is known before the session.
    #[test]
    fn dynamic_methods_at_one_address_have_their_own_times() {
        use Seen::{InRundown, Loaded, Unloaded};
        let rundown = [(InRundown, 150, "second")];
        let loads = [(Unloaded, 120, "first"), (Loaded, 130, "second"), (Loaded, 200, "third")];
        let together = [&rundown[..], &loads[..]].concat();
        for reports in [vec![&together[..]], vec![&rundown[..], &loads[..]]] {
            let mut table = MethodTable::default();
            for report in reports {
                table.add_report(dynamic_methods(report), usize::MAX);
            }
            let name = |name: &str| Some(format!("dynamicClass.{name}()"));
            let found = names_at(&table, &[99, 100, 129, 130, 199, 200]);
            let expected =
                [None, name("first"), name("first"), name("second"), name("second"), name("third")];
            assert_eq!(found, expected);
            assert!(
                table.may_be_unloaded(0x1008, MonotonicTime(99))
                    && !table.may_be_unloaded(0x1008, MonotonicTime(100))
            );
            assert!(
                !table.is_stub(0x1008, MonotonicTime(99))
                    && !table.is_stub(0x2000, MonotonicTime(99))
                    && table.is_stub(0x2000, MonotonicTime(100))
            );
        }
    }

    #[test]
    fn a_method_of_a_rundown_is_not_final_before_the_events_up_to_it() {
        let mut table = MethodTable::default();
        let mut report = dynamic_methods(&[(Seen::InRundown, 150, "method")]);
        report.complete_until = MonotonicTime(140);
        table.add_report(report, usize::MAX);
        assert!(!table.is_final(0x1008, MonotonicTime(120)), "it can have been loaded at 145");
        let mut later = dynamic_methods(&[]);
        later.complete_until = MonotonicTime(160);
        table.add_report(later, usize::MAX);
        assert!(table.is_final(0x1008, MonotonicTime(120)));
    }

    /// A report of methods and modules that no other report has.
    fn report(number: u64) -> Report {
        const EVENTS: u64 = 1_000;
        let mut report = Report::default();
        let mut add = |id, payload: &[u8]| {
            let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
            report.events.add(
                &Event { kind: &kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] },
                EventTime::Known(MonotonicTime(number)),
                None,
            );
        };
        for event in number * EVENTS..(number + 1) * EVENTS {
            add(143, &method_payload(event, 16 * event, 16, ["Class", "Run", "void  ()"]));
            add(152, &module_payload(event, "/app.dll"));
        }
        report
    }

    #[test]
    fn reports_are_added_until_the_memory_limit_is_reached() {
        const MAX_BYTES: usize = 1 << 20;
        const MAX_EXCESS_BYTES: usize = 1 << 18;
        let mut table = MethodTable::default();
        for number in 0..100 {
            table.add_report(report(number), MAX_BYTES);
        }
        let bytes = table.memory_bytes();
        assert!((MAX_BYTES..MAX_BYTES + MAX_EXCESS_BYTES).contains(&bytes), "{bytes}");
        assert!(table.completeness.truncated);
        assert_eq!(
            table.lookup(0, MonotonicTime(100)).map(|method| method.name).as_deref(),
            Some("app!Class.Run()")
        );
        assert_eq!(table.lookup(16 * 99_000, MonotonicTime(100)), None);
    }
}
