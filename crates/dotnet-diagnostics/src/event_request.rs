//! The events that are requested from .NET runtimes: sets by name, and events of any provider.

use std::{fmt, num::ParseIntError, str::FromStr};

use crate::EventStream;

/// The most verbose level (dotnet/runtime, `EventLevel.Verbose`).
const MAX_LEVEL: u32 = 5;

/// The level of a provider without one (`EventLevel.Informational`).
const DEFAULT_LEVEL: u32 = 4;

/// What is requested from runtimes. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRequest {
    /// Sets of events.
    pub sets: Vec<EventSet>,
    /// Events of other providers.
    pub providers: Vec<EventProvider>,
    /// The stream in which the events of one process are kept as its runtime sends them. They are those of a single session
    /// then, in which each provider has the most verbose of its levels.
    pub stream: Option<EventStream>,
}

impl EventRequest {
    /// Whether nothing is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.providers.is_empty()
    }

    /// Whether there are events whose stacks are kept.
    pub fn has_stacks(&self) -> bool {
        self.sets.iter().any(|set| matches!(set, EventSet::Exceptions | EventSet::Allocations))
    }
}

/// A set of events about one service of a .NET runtime.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventSet {
    /// Garbage collections, suspensions and the sizes of the heap.
    Collections,
    /// Adjustments of the thread pool.
    ThreadPool,
    /// Exceptions that are thrown.
    Exceptions,
    /// Threads that wait for locks.
    Contentions,
    /// Sampled allocations. Before .NET 10, verbose events of the garbage collector, which lengthen its pauses.
    Allocations,
    /// Methods that the JIT compiles.
    Compilations,
    /// Modules that are loaded.
    ModuleLoads,
    /// The counters of `System.Runtime`, each second.
    Counters,
    /// HTTP requests that ASP.NET Core serves.
    ServerRequests,
    /// HTTP requests that `HttpClient` sends (.NET 5 and later). Activities follow all tasks of the process meanwhile, which
    /// makes asynchronous code slower.
    ClientRequests,
}

impl EventSet {
    /// Every set.
    pub const ALL: &'static [Self] = &[
        Self::Collections,
        Self::ThreadPool,
        Self::Exceptions,
        Self::Contentions,
        Self::Allocations,
        Self::Compilations,
        Self::ModuleLoads,
        Self::Counters,
        Self::ServerRequests,
        Self::ClientRequests,
    ];

    /// The sets whose cost is small: a few events for each collection, exception and wait for a lock.
    pub const DEFAULT: &'static [Self] =
        &[Self::Collections, Self::ThreadPool, Self::Exceptions, Self::Contentions];

    /// The name on the command line: `gc`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Collections => "gc",
            Self::ThreadPool => "threadpool",
            Self::Exceptions => "exceptions",
            Self::Contentions => "contention",
            Self::Allocations => "alloc",
            Self::Compilations => "jit",
            Self::ModuleLoads => "loader",
            Self::Counters => "counters",
            Self::ServerRequests => "http-server",
            Self::ClientRequests => "http-client",
        }
    }
}

/// The events of a provider: `NAME[:KEYWORDS[:LEVEL]]`, the keywords in hexadecimal.
///
/// ```
/// use profiler_dotnet_diagnostics::EventProvider;
///
/// let provider: EventProvider = "My-Company-Orders:0x3:5".parse()?;
/// assert_eq!((provider.name.as_str(), provider.keywords, provider.level), ("My-Company-Orders", 3, 5));
/// # Ok::<(), profiler_dotnet_diagnostics::InvalidEventProvider>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventProvider {
    /// The name of the provider.
    pub name: String,
    /// Keywords that select its events. All if none are given.
    pub keywords: u64,
    /// Its verbosity, from 1 (critical) to 5 (verbose). 4 (informational) if none is given.
    pub level: u32,
}

/// Why a text is no [`EventProvider`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEventProvider(&'static str);

impl fmt::Display for InvalidEventProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected NAME[:KEYWORDS[:LEVEL]]", self.0)
    }
}

impl std::error::Error for InvalidEventProvider {}

impl FromStr for EventProvider {
    type Err = InvalidEventProvider;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let name = parts.next().filter(|name| !name.is_empty()).ok_or(InvalidEventProvider("no name"))?;
        let keywords = parts.next().filter(|keywords| !keywords.is_empty()).map(parse_hexadecimal);
        let keywords =
            keywords.transpose().map_err(|_| InvalidEventProvider("the keywords are not a number"))?;
        let level = parts.next().map_or(Ok(DEFAULT_LEVEL), str::parse);
        let level = level.ok().filter(|level| (1..=MAX_LEVEL).contains(level));
        let level = level.ok_or(InvalidEventProvider("the level is not between 1 and 5"))?;
        if parts.next().is_some() {
            return Err(InvalidEventProvider("too many parts"));
        }
        Ok(Self { name: name.to_owned(), keywords: keywords.unwrap_or(u64::MAX), level })
    }
}

fn parse_hexadecimal(text: &str) -> Result<u64, ParseIntError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    u64::from_str_radix(digits, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, u64, u32), String> {
        let provider: EventProvider =
            text.parse().map_err(|error: InvalidEventProvider| error.to_string())?;
        Ok((provider.name, provider.keywords, provider.level))
    }

    #[test]
    fn keywords_and_level_of_a_provider_are_optional() {
        for (text, keywords, level) in [
            ("A", u64::MAX, 4),
            ("A:", u64::MAX, 4),
            ("A:10", 16, 4),
            ("A:0x10", 16, 4),
            ("A::2", u64::MAX, 2),
            ("A:ffffffffffffffff:5", u64::MAX, 5),
        ] {
            assert_eq!(parse(text), Ok(("A".to_owned(), keywords, level)), "{text}");
        }
    }

    #[test]
    fn an_invalid_provider_is_refused_with_its_form() {
        for text in ["", ":1", "A:x", "A:1:6", "A:1:0", "A:1:", "A:1:4:x", "A:1ffffffffffffffff"] {
            assert!(parse(text).unwrap_err().contains("NAME[:KEYWORDS[:LEVEL]]"), "{text}");
        }
    }

    #[test]
    fn each_set_has_its_name() {
        let mut names: Vec<_> = EventSet::ALL.iter().map(|set| set.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EventSet::ALL.len());
        assert!(EventSet::DEFAULT.iter().all(|set| EventSet::ALL.contains(set)));
    }
}
