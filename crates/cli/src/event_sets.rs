//! Parses the list of sets of `--events`.

use std::str::FromStr;

use profiler::EventSet;

/// Names of several sets: those whose cost is small, and all requests.
const GROUPS: [(&str, &[EventSet]); 2] =
    [("default", EventSet::DEFAULT), ("http", &[EventSet::ServerRequests, EventSet::ClientRequests])];

/// Sets of events of .NET runtimes.
#[derive(Clone, Debug)]
pub(super) struct EventSets(Vec<EventSet>);

impl EventSets {
    /// The sets, in the order of the list.
    pub(super) fn iter(&self) -> impl Iterator<Item = EventSet> {
        self.0.iter().copied()
    }
}

impl FromStr for EventSets {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let mut sets = Vec::new();
        for name in list.split(',').map(str::trim) {
            let group = GROUPS.iter().find(|(group, _)| *group == name).map(|(_, sets)| *sets);
            let set = || EventSet::ALL.iter().find(|set| set.name() == name).map(std::slice::from_ref);
            let unknown = || format!("`{name}` is not a set of events (known: {})", names());
            sets.extend(group.or_else(set).ok_or_else(unknown)?);
        }
        Ok(Self(sets))
    }
}

fn names() -> String {
    let groups = GROUPS.iter().map(|(group, _)| *group);
    groups.chain(EventSet::ALL.iter().map(|set| set.name())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_names_of_sets() {
        let sets: EventSets = "alloc, default".parse().unwrap();
        let expected: Vec<_> =
            [EventSet::Allocations].into_iter().chain(EventSet::DEFAULT.iter().copied()).collect();
        assert_eq!(sets.iter().collect::<Vec<_>>(), expected);
        let requests: EventSets = "http".parse().unwrap();
        let both: Vec<_> = requests.iter().map(EventSet::name).collect();
        assert_eq!(both, ["http-server", "http-client"]);
        for list in ["", "gc,", "GC", "everything"] {
            let error = list.parse::<EventSets>().unwrap_err();
            assert!(
                error.contains("default, http, gc, threadpool, exceptions, contention, alloc, jit"),
                "{error}"
            );
        }
    }
}
