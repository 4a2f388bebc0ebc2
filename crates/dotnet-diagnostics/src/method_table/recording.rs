//! Reads and writes the methods that a runtime reported, as a file of a capture.
//!
//! Each line is a JSON value: first the completeness, then the methods in the order of their times.

use std::{borrow::Cow, ops::Range};

use profiler_addresses::MonotonicTime;
use profiler_dotnet_symbols::managed::Tier;
use profiler_profile::Reason;
use serde::{Deserialize, Serialize};

use super::{Completeness, MethodTable, NewMethod, RuntimeMethod};

/// The module id of recorded methods, whose names include the module.
const NO_MODULE: u64 = 0;

/// The first line. Field names are those of the file format.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RecordedCompleteness {
    malformed_events: u64,
    dropped_events: u64,
    truncated: bool,
    failure: Option<Reason>,
    /// The time in which all methods are known.
    #[serde(rename = "complete_ns")]
    complete: Range<MonotonicTime>,
}

/// A line after the first one.
#[derive(Debug, Serialize, Deserialize)]
struct RecordedMethod<'a> {
    #[serde(rename = "from_ns")]
    exists_from: MonotonicTime,
    start: u64,
    size: u64,
    tier: Tier,
    /// Recordings without this field have no method whose code can be unloaded.
    #[serde(default)]
    can_be_unloaded: bool,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl MethodTable {
    /// The methods as a file of a capture.
    pub(crate) fn recording(&self) -> Option<Vec<u8>> {
        Some(write(self))
    }

    /// The methods in the file of a capture.
    pub(crate) fn from_recording(text: &[u8]) -> Option<Self> {
        Some(read(text))
    }

    /// Adds one method.
    fn add(&mut self, start: u64, size_bytes: u64, exists_from: MonotonicTime, method: NewMethod<'_>) {
        let stored = self.store(method, false);
        self.insert(start, size_bytes, exists_from, stored);
    }

    /// All methods in the order in which they were added, with their start addresses and sizes in bytes.
    pub(crate) fn methods(&self) -> impl Iterator<Item = (u64, u64, RuntimeMethod)> {
        let entries = self.code.entries().iter();
        entries.map(|entry| (entry.start, entry.end - entry.start, self.runtime_method(entry)))
    }
}

/// Serializes a method table.
fn write(table: &MethodTable) -> Vec<u8> {
    let Completeness { malformed_events, dropped_events, truncated, failure, complete_until } =
        table.completeness;
    let complete = MonotonicTime::ZERO..complete_until;
    let completeness =
        RecordedCompleteness { malformed_events, dropped_events, truncated, failure, complete };
    let mut text = json_line(&completeness);
    for (start, size, method) in table.methods() {
        let RuntimeMethod { name, tier, exists_from, can_be_unloaded } = method;
        let recorded = RecordedMethod { exists_from, start, size, tier, can_be_unloaded, name: name.into() };
        text.extend(json_line(&recorded));
    }
    text
}

/// Reads a recording. Lines that are no methods count as malformed events.
fn read(text: &[u8]) -> MethodTable {
    let mut table = MethodTable::default();
    let mut lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let first = lines.next().and_then(|line| serde_json::from_slice::<RecordedCompleteness>(line).ok());
    table.completeness = first.map(Completeness::from).unwrap_or_default();
    for line in lines {
        match serde_json::from_slice::<RecordedMethod<'_>>(line) {
            Ok(RecordedMethod { exists_from, start, size, tier, can_be_unloaded, name }) => {
                let method = NewMethod { module_id: NO_MODULE, tier, can_be_unloaded, name: &name };
                table.add(start, size, exists_from, method);
            }
            Err(_) => table.completeness.malformed_events += 1,
        }
    }
    table
}

impl From<RecordedCompleteness> for Completeness {
    fn from(recorded: RecordedCompleteness) -> Self {
        let RecordedCompleteness { malformed_events, dropped_events, truncated, failure, complete } =
            recorded;
        Self { malformed_events, dropped_events, truncated, failure, complete_until: complete.end }
    }
}

fn json_line(value: &impl Serialize) -> Vec<u8> {
    // The serialization of numbers and strings cannot fail.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> MethodTable {
        let completeness = Completeness {
            malformed_events: 1,
            dropped_events: 2,
            truncated: false,
            failure: Some(Reason::RuntimeSilent),
            complete_until: MonotonicTime(9),
        };
        let mut table = MethodTable { completeness, ..MethodTable::default() };
        let method =
            |tier, can_be_unloaded, name| NewMethod { module_id: NO_MODULE, tier, can_be_unloaded, name };
        table.add(0x1000, 16, MonotonicTime(0), method(Tier::QuickJitted, false, "app!A.Early()"));
        table.add(
            0x2000,
            0,
            MonotonicTime(5),
            method(Tier::OptimizedTier1Osr, true, "free;text \"\u{1b}\n\u{e9}"),
        );
        table.add(0x1000, 16, MonotonicTime(9), method(Tier::OptimizedTier1, false, "app!A.Late()"));
        table
    }

    #[test]
    fn a_recording_reads_as_it_was_written() {
        let (live, read) = (table(), read(&write(&table())));
        assert_eq!(read.completeness, live.completeness);
        assert_eq!(read.methods().collect::<Vec<_>>(), live.methods().collect::<Vec<_>>());
        for (address, time_ns) in [(0x1000, 0), (0x100f, 8), (0x1000, 9), (0x2000, 5), (0x3000, 5)] {
            assert_eq!(
                read.lookup(address, MonotonicTime(time_ns)),
                live.lookup(address, MonotonicTime(time_ns))
            );
        }
        assert_eq!(read.epoch(MonotonicTime(9)), live.epoch(MonotonicTime(9)));
    }

    #[test]
    fn a_truncated_or_garbled_recording_has_its_valid_lines() {
        let text = write(&table());
        for length in 0..text.len() {
            assert!(read(&text[..length]).methods().count() <= 3);
        }
        let garbled = [&text[..], b"{}\n\xff\xfe\n[1,2"].concat();
        let read = read(&garbled);
        assert_eq!((read.methods().count(), read.completeness.malformed_events), (3, 4));
        assert_eq!(super::read(b"nothing\n").completeness, Completeness::default());
    }
}
