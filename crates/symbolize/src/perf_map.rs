//! Reads perf maps (`perf-PID.map`): text files with the address and name of each function of JIT code.
//!
//! A line is `START SIZE NAME`, with hexadecimal numbers with or without `0x` (Linux,
//! tools/perf/Documentation/jit-interface.txt). Runtimes reuse addresses and remove no lines, so later lines take
//! precedence. Lines have no time: a line was written between the poll before and the poll that read it. Where it replaced
//! other code, which of both was at the address between the two polls is unknown.

use std::{collections::VecDeque, ops::Range, time::Duration};

use profiler_addresses::{CodeMap, Entry, InsertError, MonotonicTime};
use profiler_binary_reader::{Name, Names};

use crate::hexadecimal::parse_hexadecimal;

/// Length of the longest line. The names of longer lines end with a checksum of what follows.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Polls whose times are kept to tell code that existed at a time from code that may have existed.
const MAX_POLLS: usize = 1024;

/// The name of code while it is unknown which of several lines applies.
const REPLACED: Name = Name { offset: u32::MAX, length: 0 };

/// The code in a perf map that is read while it grows.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// Code that replaces other code has an entry with the name [`REPLACED`] for the time between two polls.
    code: CodeMap<Name>,
    names: Names,
    /// The lines of the current poll that replace other code.
    replacing: Vec<Replacing>,
    /// The times between which the lines of a poll were written, the last poll first.
    polls: VecDeque<Range<MonotonicTime>>,
    /// The beginning of an incomplete line, at most [`MAX_LINE_BYTES`].
    partial_line: Vec<u8>,
    /// The checksum of the bytes of the line beyond that.
    beyond_checksum: Option<u32>,
    malformed_lines: u64,
    truncated: bool,
}

/// Code that replaces other code at the end of the poll.
#[derive(Debug)]
struct Replacing {
    start: u64,
    size: u64,
    name: Name,
}

/// The code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedCode<'a> {
    /// `None` where it is unknown which of several lines applies.
    pub(crate) name: Option<&'a str>,
    /// The earliest time at which it may exist.
    pub(crate) exists_from: MonotonicTime,
    /// Whether it certainly existed at the time of the lookup.
    pub(crate) is_certain: bool,
}

impl PerfMap {
    /// Decodes the next bytes of the file, which were written after `written_after`. Their code may exist from that
    /// time on, unless it replaces other code: that exists from [`end_poll`](Self::end_poll) on.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], written_after: MonotonicTime) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial_line.is_empty() && end <= MAX_LINE_BYTES {
                self.add_line(line, written_after);
            } else {
                self.append_partial(line);
                let mut line = std::mem::take(&mut self.partial_line);
                if let Some(checksum) = self.beyond_checksum.take() {
                    line.extend(format!("...{checksum:08x}").into_bytes());
                }
                self.add_line(&line, written_after);
            }
            bytes = rest;
        }
        self.append_partial(bytes);
    }

    /// Ends a poll. All bytes since the last one were written between two times.
    pub(crate) fn end_poll(&mut self, written: Range<MonotonicTime>) {
        for Replacing { start, size, name } in std::mem::take(&mut self.replacing) {
            self.insert(start, size, written.end, name);
        }
        self.polls.truncate(MAX_POLLS);
        self.polls.push_front(written);
    }

    /// Begins a new file. The code decoded so far stays valid for the time before.
    pub(crate) fn restart(&mut self) {
        self.partial_line.clear();
        self.beyond_checksum = None;
    }

    /// The code at `address` at `time`.
    pub(crate) fn lookup(&self, address: u64, time: MonotonicTime) -> Option<MappedCode<'_>> {
        let entry = self.code.lookup(address, time)?;
        let exists_from = entry.exists_from;
        let name = (entry.payload != REPLACED).then(|| self.names.get(entry.payload));
        let is_certain = name.is_some() && exists_from <= time && !self.is_being_written(entry, time);
        Some(MappedCode { name, exists_from, is_certain })
    }

    /// Whether the line of an entry may have been written after a time.
    fn is_being_written(&self, entry: &Entry<Name>, time: MonotonicTime) -> bool {
        let index = self.polls.partition_point(|poll| poll.start >= entry.exists_from);
        self.polls.get(index).is_some_and(|poll| entry.exists_from < poll.end && time < poll.end)
    }

    /// See [`CodeMap::epoch`].
    pub(crate) fn epoch(&self, time: MonotonicTime) -> u32 {
        self.code.epoch(time)
    }

    /// Malformed lines.
    pub(crate) fn malformed_lines(&self) -> u64 {
        self.malformed_lines
    }

    /// Whether entries were discarded because a limit was reached.
    pub(crate) fn truncated(&self) -> bool {
        self.truncated
    }

    /// Retires code that was replaced before a time.
    pub(crate) fn retire_replaced(&mut self, before: MonotonicTime) {
        if self.code.has_mostly_replaced() {
            let names = std::mem::take(&mut self.names);
            self.code = self.code.retained(before, |name| match *name {
                REPLACED => Some(REPLACED),
                name => self.names.push(names.get(name).as_bytes()),
            });
        }
    }

    /// The memory of the code and the names.
    pub(crate) fn memory_bytes(&self) -> usize {
        let replacing = size_of_val(&self.replacing[..]);
        self.code.memory_bytes() + self.names.memory_bytes() + replacing
    }

    fn append_partial(&mut self, bytes: &[u8]) {
        let free_bytes = MAX_LINE_BYTES - self.partial_line.len();
        let (kept, beyond) = bytes.split_at(bytes.len().min(free_bytes));
        self.partial_line.extend_from_slice(kept);
        if !beyond.is_empty() {
            let mut checksum = crc32fast::Hasher::new_with_initial(self.beyond_checksum.unwrap_or(0));
            checksum.update(beyond);
            self.beyond_checksum = Some(checksum.finalize());
        }
    }

    fn add_line(&mut self, line: &[u8], written_after: MonotonicTime) {
        let Some(Line { start, size, name }) = Line::parse(line) else {
            self.malformed_lines += u64::from(!line.trim_ascii().is_empty());
            return;
        };
        if self.is_repeated(start, size, name) {
            return;
        }
        let replaces = self.replaces(start, size, name);
        let Some(name) = self.names.push(name) else {
            self.truncated = true;
            return;
        };
        let exists_from = written_after.saturating_add(Duration::from_nanos(1));
        let first_name = if replaces { REPLACED } else { name };
        if self.insert(start, size, exists_from, first_name) && replaces {
            self.replacing.push(Replacing { start, size, name });
        }
    }

    /// Returns whether the code was inserted.
    fn insert(&mut self, start: u64, size: u64, exists_from: MonotonicTime, name: Name) -> bool {
        let inserted = self.code.insert(start, size, exists_from, name);
        match inserted {
            Ok(()) => {}
            Err(InsertError::Wraps) => self.malformed_lines += 1,
            Err(InsertError::Full) => self.truncated = true,
        }
        inserted.is_ok()
    }

    /// Whether a line replaces code with another name.
    fn replaces(&self, start: u64, size: u64, name: &[u8]) -> bool {
        let is_other = |entry: &Entry<Name>| {
            entry.payload == REPLACED || self.names.get(entry.payload).as_bytes() != name
        };
        self.code.newest_in(start, size).any(is_other)
    }

    /// Whether the newest entry at the address is the same. A runtime whose perf map is enabled again writes all its methods
    /// again.
    fn is_repeated(&self, start: u64, size: u64, name: &[u8]) -> bool {
        self.code
            .newest_exactly(start, size)
            .is_some_and(|entry| self.names.get(entry.payload).as_bytes() == name)
    }
}

/// One line of the file.
struct Line<'a> {
    start: u64,
    size: u64,
    name: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (start, rest) = parse_number(line)?;
        let (size, rest) = parse_number(rest)?;
        let name = rest.trim_ascii();
        (!name.is_empty()).then_some(Self { start, size, name })
    }
}

/// Parses a hexadecimal number after white space. Also returns the rest of the text.
fn parse_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = memchr::memchr2(b' ', b'\t', text)?;
    let (digits, rest) = text.split_at(end);
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    Some((parse_hexadecimal(digits)?, rest))
}

/// Checks that a perf map in two parts has the same names as the whole file.
#[cfg(fuzzing)]
pub fn check_split(first: &[u8], second: &[u8], addresses: impl Iterator<Item = u64>) {
    let (mut whole, mut parts) = (PerfMap::default(), PerfMap::default());
    whole.feed(&[first, second].concat(), MonotonicTime::ZERO);
    parts.feed(first, MonotonicTime::ZERO);
    parts.feed(second, MonotonicTime::ZERO);
    whole.end_poll(MonotonicTime::ZERO..MonotonicTime::ZERO);
    parts.end_poll(MonotonicTime::ZERO..MonotonicTime::ZERO);
    assert_eq!(format!("{whole:?}"), format!("{parts:?}"));
    for address in addresses {
        assert_eq!(whole.lookup(address, MonotonicTime(1)), parts.lookup(address, MonotonicTime(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: impl AsRef<[u8]>) -> PerfMap {
        let mut map = PerfMap::default();
        map.feed(text.as_ref(), MonotonicTime(0));
        map.end_poll(MonotonicTime(0)..MonotonicTime(0));
        map
    }

    fn name(map: &PerfMap, address: u64, time_ns: u64) -> Option<&str> {
        map.lookup(address, MonotonicTime(time_ns))?.name
    }

    #[test]
    fn both_spellings_of_addresses_are_read() {
        let map = map("00007FE3E5A3ADF0 1a int32 [app] A::B(int32)[QuickJitted]\n\
             0x7eff47e11860 f40 upper lower\n\
             0x00007f0000000000 0x0000000000000258 void java.lang.Foo.bar(int)\n");
        assert_eq!(name(&map, 0x7fe3_e5a3_ae09, 1), Some("int32 [app] A::B(int32)[QuickJitted]"));
        assert_eq!(name(&map, 0x7fe3_e5a3_ae0a, 1), None);
        assert_eq!(name(&map, 0x7eff_47e1_1860, 1), Some("upper lower"));
        assert_eq!(name(&map, 0x7f00_0000_0257, 1), Some("void java.lang.Foo.bar(int)"));
    }

    #[test]
    fn a_malformed_line_affects_itself_only() {
        let map = map("nonsense\n10 10 good\n10 10\nxyz 10 a\n10 xyz a\n 20\t8  also good \r\n\n\
             11112222333344445 1 a\nffffffffffffffff 1 a\n1 ffffffffffffffff a\n0x 1 a\n-1 1 a\n30 8 end\n");
        assert_eq!(
            [0x10, 0x20, 0x30].map(|address| name(&map, address, 1)),
            [Some("good"), Some("also good"), Some("end")]
        );
        assert_eq!(map.malformed_lines(), 9);
        assert!(!map.truncated());
    }

    #[test]
    fn names_with_any_bytes_are_read() {
        let map = map(b"10 1 a;b\x1b[31mred\0nul\n20 1 caf\xe9\n30 1 \xff\xfe\n");
        assert_eq!(name(&map, 0x10, 1), Some("a;b\x1b[31mred\0nul"));
        assert_eq!(name(&map, 0x20, 1), Some("caf\\x{e9}"));
        assert_eq!(name(&map, 0x30, 1), Some("\\x{ff}\\x{fe}"));
    }

    #[test]
    fn a_long_line_is_truncated_and_the_next_line_is_read() {
        let text = format!("10 8 {}\n20 8 next\n", "x".repeat(1 << 20));
        let whole = map(&text);
        let mut pieces = PerfMap::default();
        text.as_bytes().chunks(1000).for_each(|chunk| pieces.feed(chunk, MonotonicTime(0)));
        for map in [whole, pieces] {
            let checksum = "...00000000";
            let length = MAX_LINE_BYTES - "10 8 ".len() + checksum.len();
            assert_eq!(name(&map, 0x10, 1).map(str::len), Some(length));
            assert_eq!(name(&map, 0x20, 1), Some("next"));
        }
    }

    #[test]
    fn long_names_that_differ_at_their_ends_have_different_labels() {
        let long = "x".repeat(MAX_LINE_BYTES);
        let map = map(format!("10 8 {long}one\n20 8 {long}other\n"));
        assert_ne!(name(&map, 0x10, 1), name(&map, 0x20, 1));
    }

    #[test]
    fn an_endless_line_is_kept_within_its_limit() {
        let mut map = PerfMap::default();
        for _ in 0..100 {
            map.feed(&[b'a'; 10_000], MonotonicTime(0));
        }
        assert_eq!(map.partial_line.len(), MAX_LINE_BYTES);
    }

    #[test]
    fn a_line_can_arrive_in_two_parts() {
        let mut map = map("10 8 ab");
        assert_eq!(name(&map, 0x10, 1), None);
        map.feed(b"cd\n", MonotonicTime(5));
        map.end_poll(MonotonicTime(0)..MonotonicTime(6));
        assert_eq!(name(&map, 0x10, 6), Some("abcd"));
    }

    #[test]
    fn code_between_two_polls_is_unknown_where_it_was_replaced() {
        let mut map = map("100 10 old\n200 10 stays\n");
        map.feed(b"100 10 new\n300 10 first\n", MonotonicTime(1000));
        map.end_poll(MonotonicTime(1000)..MonotonicTime(2000));
        let names = |address, times: [u64; 4]| times.map(|time_ns| name(&map, address, time_ns));
        assert_eq!(names(0x100, [1000, 1001, 1999, 2000]), [Some("old"), None, None, Some("new")]);
        assert_eq!(names(0x200, [0, 1001, 1999, 2000]), [Some("stays"); 4]);
        assert_eq!(names(0x300, [0, 1001, 1999, 2000]), [Some("first"); 4]);
        let is_certain = |time_ns| map.lookup(0x300, MonotonicTime(time_ns)).unwrap().is_certain;
        assert_eq!([1000, 1001, 1999, 2000].map(is_certain), [false, false, false, true]);
        assert_eq!(
            [0, 1000, 1001, 1999, 2000].map(|time_ns| map.epoch(MonotonicTime(time_ns))),
            [0, 0, 1, 1, 2]
        );
    }

    #[test]
    fn code_before_the_end_of_the_first_poll_is_unknown_where_lines_overlap() {
        let mut map = PerfMap::default();
        map.feed(
            b"100 10 a\n100 10 b\n100 10 a\n200 10 other\n180 100 over it\n300 10 only\n",
            MonotonicTime(0),
        );
        map.end_poll(MonotonicTime(0)..MonotonicTime(500));
        let names = |address| [1, 499, 500].map(|time_ns| name(&map, address, time_ns));
        assert_eq!(names(0x100), [None, None, Some("a")]);
        assert_eq!(names(0x200), [None, None, Some("over it")]);
        assert_eq!(names(0x300), [Some("only"); 3]);
        assert_eq!([0, 499, 500].map(|time_ns| map.epoch(MonotonicTime(time_ns))), [0, 0, 1]);
    }

    #[test]
    fn repeated_lines_change_nothing() {
        let text = "100 10 a\n200 10 b\n300 10 caf\u{e9}\n";
        let mut map = map(text);
        map.feed(b"400 1", MonotonicTime(10));
        map.restart();
        map.feed(text.as_bytes(), MonotonicTime(20));
        map.end_poll(MonotonicTime(0)..MonotonicTime(30));
        assert_eq!(map.code.entries().len(), 3);
        assert_eq!(map.epoch(MonotonicTime::MAX), 0);
        assert_eq!(map.malformed_lines(), 0);
    }

    #[test]
    fn feeding_at_any_split_gives_the_same_map() {
        let text = b"10 8 first\n0x14 8 over it\r\nbroken\n\n20 0 open\n10 4 \xc3\xa9\xff end\nlast 1";
        let whole = map(text);
        for split in 0..=text.len() {
            let mut parts = PerfMap::default();
            parts.feed(&text[..split], MonotonicTime(0));
            parts.feed(&text[split..], MonotonicTime(0));
            parts.end_poll(MonotonicTime(0)..MonotonicTime(0));
            for address in 0..0x40 {
                assert_eq!(
                    parts.lookup(address, MonotonicTime(1)),
                    whole.lookup(address, MonotonicTime(1)),
                    "{split} {address:#x}"
                );
            }
            assert_eq!(parts.malformed_lines(), whole.malformed_lines());
            assert_eq!(parts.partial_line, whole.partial_line);
        }
    }

    #[test]
    fn random_bytes_and_random_lines_never_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut map = PerfMap::default();
        for round in 0..2_000 {
            map.feed(
                &std::iter::repeat_with(|| random.u8(..)).take(64).collect::<Vec<_>>(),
                MonotonicTime(round),
            );
            let line = format!("\n{:x} {:x} n{round}\n", random.u64(0..1 << 12), random.u64(0..1 << 9));
            map.feed(line.as_bytes(), MonotonicTime(round));
            let start = random.u64(0..line.len() as u64) as usize;
            map.feed(&line.as_bytes()[start..], MonotonicTime(round));
            map.end_poll(MonotonicTime(round)..MonotonicTime(round + 2));
        }
        for address in 0..(1 << 12) {
            for time_ns in [0, 500, 1_000, u64::MAX] {
                map.lookup(address, MonotonicTime(time_ns));
            }
        }
        assert!(map.code.entries().len() > 1_000);
    }
}
