//! The methods of one process that its runtime told of, to be looked up by address and time.

use std::collections::HashMap;

use super::listener::Report;
use crate::{
    code_map::{CodeMap, Entry},
    names::{Name, Names},
};
use profiler_dotnet_symbols::managed::Tier;
use profiler_profile::Reason;

/// What a runtime says of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeMethod {
    /// The method with its module.
    pub name: String,
    /// How it was compiled.
    pub tier: Tier,
    /// Since when it is there.
    pub exists_from_ns: u64,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    code: CodeMap<Method>,
    names: Names,
    modules: HashMap<u64, String>,
    pub(super) gaps: Gaps,
}

/// What is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// Events that contradict themselves.
    pub(super) malformed_events: u64,
    /// Events that the runtime had no room for.
    pub(super) dropped_events: u64,
    /// There was no room for some methods here.
    pub(super) truncated: bool,
    /// Why the runtime did not tell all.
    pub(super) trouble: Option<Reason>,
    /// Before when every method is known that there was.
    pub(super) complete_until_ns: u64,
}

impl Gaps {
    /// Whether every method is known that there was at `time_ns`.
    pub(super) fn has_all_of(&self, time_ns: u64) -> bool {
        let lacks =
            self.malformed_events + self.dropped_events > 0 || self.truncated || self.trouble.is_some();
        !lacks && time_ns < self.complete_until_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Method {
    module: u64,
    tier: Tier,
    /// Without its module.
    name: Name,
}

impl Known {
    /// Adds what was heard since the last time.
    pub(super) fn take(&mut self, report: Report) {
        let Report { mut heard, dropped_events, trouble, complete_until_ns } = report;
        heard.methods.sort_by_key(|method| method.from_ns);
        for method in &heard.methods {
            let name = heard.names.get(method.name);
            let known = self.code.newest_exactly(method.start, u64::from(method.size));
            let is_known = known.is_some_and(|known| {
                known.payload.module == method.module && self.names.get(known.payload.name) == name
            });
            if !is_known {
                let method_of = (method.module, method.tier, name);
                self.add(method.start, u64::from(method.size), method.from_ns, method_of);
            }
        }
        self.modules.extend(std::mem::take(&mut heard.modules));
        self.gaps.malformed_events += heard.malformed_events;
        self.gaps.dropped_events += dropped_events;
        self.gaps.truncated |= heard.truncated;
        self.gaps.trouble = trouble.or(self.gaps.trouble);
        self.gaps.complete_until_ns = complete_until_ns;
    }

    /// Adds one method, there from `from_ns` on. `name` is without its module.
    pub(super) fn add(
        &mut self,
        start: u64,
        size: u64,
        from_ns: u64,
        (module, tier, name): (u64, Tier, &str),
    ) {
        let name = self.names.push(name.as_bytes());
        let taken = name.is_some_and(|name| {
            self.code.insert(start, size, from_ns, Method { module, tier, name }).is_ok()
        });
        self.gaps.truncated |= !taken;
    }

    /// How the code that stood at `address` at `time_ns` was compiled.
    pub(super) fn tier(&self, address: u64, time_ns: u64) -> Option<Tier> {
        self.code.lookup(address, time_ns).map(|entry| entry.payload.tier)
    }

    /// The method whose code stood at `address` at `time_ns`.
    pub(super) fn lookup(&self, address: u64, time_ns: u64) -> Option<RuntimeMethod> {
        self.code.lookup(address, time_ns).map(|entry| self.told(entry))
    }

    /// All methods in the order in which they were added, with their first addresses and sizes.
    #[cfg(feature = "capture")]
    pub(super) fn methods(&self) -> impl Iterator<Item = (u64, u64, RuntimeMethod)> {
        self.code.entries().map(|entry| (entry.start, entry.size(), self.told(entry)))
    }

    /// See [`CodeMap::epoch`].
    pub(super) fn epoch(&self, time_ns: u64) -> u32 {
        self.code.epoch(time_ns)
    }

    /// How much memory the names take.
    pub(super) fn memory_bytes(&self) -> usize {
        let modules = self.modules.values().map(|name| name.len() + size_of::<(u64, String)>());
        self.code.memory_bytes() + self.names.memory_bytes() + modules.sum::<usize>()
    }

    fn told(&self, entry: &Entry<Method>) -> RuntimeMethod {
        let Method { module, tier, name } = entry.payload;
        let name = self.names.get(name);
        let name = match self.modules.get(&module) {
            Some(module) => format!("{module}!{name}"),
            None => name.to_owned(),
        };
        RuntimeMethod { name, tier, exists_from_ns: entry.exists_from_ns }
    }
}
