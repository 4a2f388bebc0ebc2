//! Looks up the methods of one process, as its runtime reported them, by address and time.

use std::collections::HashSet;

use profiler_dotnet_symbols::managed::Tier;
use profiler_profile::Reason;

use super::{compilations::Compilations, module_names::ModuleNames, report::Report};
use crate::{
    code_map::{CodeMap, Entry},
    names::{Name, Names},
};

/// Addresses of stubs that are kept.
const MAX_STUBS: usize = 1 << 14;

/// A method that the runtime reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeMethod {
    /// The normalized name with the module.
    pub(crate) name: String,
    /// How its code was compiled.
    pub(crate) tier: Tier,
    /// The time from which on its code exists (`CLOCK_MONOTONIC`).
    pub(crate) exists_from_ns: u64,
}

/// All methods of one process.
#[derive(Debug, Default)]
pub(crate) struct MethodTable {
    code: CodeMap<StoredMethod>,
    names: Names,
    modules: ModuleNames,
    pub(crate) completeness: Completeness,
    /// Whether a report had all modules of its time. Later modules have events of their own.
    has_all_modules: bool,
    /// Whether a later report can replace methods that the table has.
    is_provisional: bool,
    /// Addresses without a method at a time at which all methods are known.
    stubs: HashSet<u64>,
    compilations: Compilations,
}

/// Which methods the table lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    /// Events that could not be decoded.
    pub(crate) malformed_events: u64,
    /// Events that the runtime dropped, and that no rundown replaced.
    pub(crate) dropped_events: u64,
    /// Whether methods were discarded because a limit was reached.
    pub(crate) truncated: bool,
    /// Why the runtime did not report all methods.
    pub(crate) failure: Option<Reason>,
    /// The time before which all methods were reported (`CLOCK_MONOTONIC`).
    pub(crate) complete_until_ns: u64,
}

impl Completeness {
    /// Whether the table has every method that existed at `time_ns`.
    pub(crate) fn is_complete_at(&self, time_ns: u64) -> bool {
        let lacks_methods =
            self.malformed_events + self.dropped_events > 0 || self.truncated || self.failure.is_some();
        !lacks_methods && time_ns < self.complete_until_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredMethod {
    module_id: u64,
    tier: Tier,
    /// Without its module.
    name: Name,
}

impl MethodTable {
    /// Adds the methods and modules of a report, until the table takes `max_bytes` of memory.
    pub(super) fn add_report(&mut self, report: Report, max_bytes: usize) {
        let Report { mut events, dropped_events, failure, complete_until_ns, is_provisional } = report;
        if self.memory_bytes() < max_bytes {
            self.modules.insert_all(&events.modules);
            self.compilations.add(std::mem::take(&mut events.compilations));
        } else {
            self.completeness.truncated |= !events.compilations.is_empty();
        }
        events.methods.sort_by_key(|method| method.exists_from_ns);
        for method in &events.methods {
            let name = events.names.get(method.name);
            let size_bytes = u64::from(method.size_bytes);
            let is_known = self.code.newest_exactly(method.start, size_bytes).is_some_and(|known| {
                known.payload.module_id == method.module_id && self.names.get(known.payload.name) == name
            });
            if is_known {
                continue;
            }
            if self.memory_bytes() < max_bytes {
                let stored = (method.module_id, method.tier, name);
                self.add(method.start, size_bytes, method.exists_from_ns, stored);
            } else {
                self.completeness.truncated = true;
            }
        }
        self.has_all_modules |= failure.is_none() && complete_until_ns > 0;
        let completeness = &mut self.completeness;
        completeness.malformed_events += events.malformed_events;
        completeness.dropped_events += dropped_events;
        completeness.truncated |= events.truncated;
        completeness.failure = failure.or(completeness.failure);
        completeness.complete_until_ns = complete_until_ns;
        self.is_provisional = is_provisional;
    }

    /// Adds one method. `name` is without its module.
    pub(super) fn add(
        &mut self,
        start: u64,
        size_bytes: u64,
        exists_from_ns: u64,
        (module_id, tier, name): (u64, Tier, &str),
    ) {
        let is_added = self.names.push(name.as_bytes()).is_some_and(|name| {
            let stored = StoredMethod { module_id, tier, name };
            self.code.insert(start, size_bytes, exists_from_ns, stored).is_ok()
        });
        self.completeness.truncated |= !is_added;
    }

    /// How the code at `address` at `time_ns` was compiled.
    pub(crate) fn tier(&self, address: u64, time_ns: u64) -> Option<Tier> {
        self.code.lookup(address, time_ns).map(|entry| entry.payload.tier)
    }

    /// Whether a complete report would have the same method at `address` at `time_ns`, or none as well.
    ///
    /// As long as no code is unloaded, the memory of a method stays that of the method, and the memory of a stub never
    /// becomes that of a method. The name of a method lacks its module until a rundown has reported it.
    pub(crate) fn is_final(&mut self, address: u64, time_ns: u64) -> bool {
        let module_id = self.code.lookup(address, time_ns).map(|entry| entry.payload.module_id);
        let is_found = module_id.is_some();
        let is_whole = module_id.is_some_and(|id| self.has_all_modules || self.modules.get(id).is_some());
        if self.completeness.is_complete_at(time_ns) {
            if !is_found && self.stubs.len() < MAX_STUBS {
                self.stubs.insert(address);
            }
            return true;
        }
        !self.is_provisional && (is_whole || self.stubs.contains(&address))
    }

    /// Whether no method was at `address` at `time_ns`, and none can be reported later.
    pub(crate) fn is_stub(&self, address: u64, time_ns: u64) -> bool {
        self.code.lookup(address, time_ns).is_none()
            && (self.completeness.is_complete_at(time_ns)
                || (!self.is_provisional && self.stubs.contains(&address)))
    }

    /// The method whose code was at `address` at `time_ns`.
    pub(crate) fn lookup(&self, address: u64, time_ns: u64) -> Option<RuntimeMethod> {
        self.code.lookup(address, time_ns).map(|entry| self.runtime_method(entry))
    }

    /// The name of the method that a thread compiled at `time_ns`. The thread's id is that in its pid namespace.
    pub(crate) fn compiled_method(&self, thread: u64, time_ns: u64) -> Option<String> {
        let method = self.compilations.at(thread, time_ns)?;
        Some(self.qualified_name(method.module_id, &method.name))
    }

    /// All methods in the order in which they were added, with their start addresses and sizes in bytes.
    #[cfg(feature = "capture")]
    pub(super) fn methods(&self) -> impl Iterator<Item = (u64, u64, RuntimeMethod)> {
        self.code.entries().map(|entry| (entry.start, entry.size(), self.runtime_method(entry)))
    }

    /// See [`CodeMap::epoch`].
    pub(crate) fn epoch(&self, time_ns: u64) -> u32 {
        self.code.epoch(time_ns)
    }

    /// Retires methods whose code was replaced, and compilations that ended, before a time.
    pub(crate) fn retire_replaced(&mut self, before_ns: u64) {
        self.compilations.retire_ended(before_ns);
        if self.code.has_mostly_replaced() {
            let names = std::mem::take(&mut self.names);
            self.code = self.code.retained(before_ns, |method| {
                let name = self.names.push(names.get(method.name).as_bytes())?;
                Some(StoredMethod { name, ..*method })
            });
        }
    }

    /// The memory of the table.
    pub(crate) fn memory_bytes(&self) -> usize {
        let stubs = self.stubs.capacity() * size_of::<u64>();
        let code = self.code.memory_bytes() + self.names.memory_bytes();
        code + self.modules.memory_bytes() + stubs + self.compilations.memory_bytes()
    }

    fn runtime_method(&self, entry: &Entry<StoredMethod>) -> RuntimeMethod {
        let StoredMethod { module_id, tier, name } = entry.payload;
        let name = self.qualified_name(module_id, self.names.get(name));
        RuntimeMethod { name, tier, exists_from_ns: entry.exists_from_ns }
    }

    fn qualified_name(&self, module_id: u64, name: &str) -> String {
        match self.modules.get(module_id) {
            Some(module) => format!("{module}!{name}"),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_symbols::eventpipe::{
        code_events::RUNTIME_PROVIDER,
        nettrace::{Event, EventKind},
        testing::{method_payload, module_payload},
    };

    use super::*;
    use crate::diagnostics::method_events::CodeTime;

    /// A report of methods and modules that no other report has.
    fn report(number: u64) -> Report {
        const EVENTS: u64 = 1_000;
        let mut report = Report::default();
        let mut add = |id, payload: &[u8]| {
            let kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() };
            report.events.add(
                &Event { kind: &kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] },
                CodeTime::Ns(number),
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
        assert_eq!(table.lookup(0, 100).map(|method| method.name).as_deref(), Some("app!Class.Run()"));
        assert_eq!(table.lookup(16 * 99_000, 100), None);
    }
}
