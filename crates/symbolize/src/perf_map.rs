//! `perf-PID.map`: the text file in which a JIT runtime names its code, one line each, as it makes it.
//!
//! A line is `START SIZE NAME`, the numbers hexadecimal with or without `0x` (Linux,
//! tools/perf/Documentation/jit-interface.txt). Nothing is ever taken out of such a file while addresses are
//! used again, so later lines win. Lines have no time; when each was read bounds when it was written.

use super::{
    code_map::{CodeMap, Rejected},
    hexadecimal::hexadecimal,
    names::{Name, Names},
};

/// Bytes of a line that are kept. What is longer has its name cut.
const MAX_LINE_BYTES: usize = 64 << 10;

/// A perf map that is read while it grows.
#[derive(Debug, Default)]
pub struct PerfMap {
    code: CodeMap<Name>,
    names: Names,
    /// The beginning of a line whose end has not been written yet, at most [`MAX_LINE_BYTES`].
    partial_line: Vec<u8>,
    malformed_lines: u64,
    truncated: bool,
}

impl PerfMap {
    /// Takes the next bytes of the file, which were written after `written_after_ns` (`CLOCK_MONOTONIC`).
    ///
    /// A line may have been there at any time since: samples taken later see it.
    pub fn feed(&mut self, mut bytes: &[u8], written_after_ns: u64) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial_line.is_empty() {
                self.take_line(&line[..end.min(MAX_LINE_BYTES)], written_after_ns);
            } else {
                self.keep_partial(line);
                let line = std::mem::take(&mut self.partial_line);
                self.take_line(&line, written_after_ns);
            }
            bytes = rest;
        }
        self.keep_partial(bytes);
    }

    /// The file begins anew: what it said so far holds for the time before.
    pub fn restart(&mut self) {
        self.partial_line.clear();
    }

    /// The name of the code that stood at `address` at `time_ns`, and since when it may have been there.
    pub fn lookup(&self, address: u64, time_ns: u64) -> Option<(&str, u64)> {
        let entry = self.code.lookup(address, time_ns)?;
        Some((self.names.get(entry.payload), entry.exists_from_ns))
    }

    /// See [`CodeMap::epoch`].
    pub fn epoch(&self, time_ns: u64) -> u32 {
        self.code.epoch(time_ns)
    }

    /// Lines that were no entries.
    pub fn malformed_lines(&self) -> u64 {
        self.malformed_lines
    }

    /// Whether a limit kept entries out.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// How much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.code.memory_bytes() + self.names.memory_bytes()
    }

    fn keep_partial(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES - self.partial_line.len();
        self.partial_line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn take_line(&mut self, line: &[u8], written_after_ns: u64) {
        let Some(Line { start, size, name }) = Line::parse(line) else {
            self.malformed_lines += u64::from(!line.trim_ascii().is_empty());
            return;
        };
        if self.is_written_again(start, size, name) {
            return;
        }
        let exists_from_ns = written_after_ns.saturating_add(1);
        let Some(name) = self.names.push(name) else {
            self.truncated = true;
            return;
        };
        match self.code.insert(start, size, exists_from_ns, name) {
            Ok(()) => {}
            Err(Rejected::Wraps) => self.malformed_lines += 1,
            Err(Rejected::Full) => self.truncated = true,
        }
    }

    /// A runtime whose map is switched on again writes all its live methods once more.
    fn is_written_again(&self, start: u64, size: u64, name: &[u8]) -> bool {
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
        let (start, rest) = number(line)?;
        let (size, rest) = number(rest)?;
        let name = rest.trim_ascii();
        (!name.is_empty()).then_some(Self { start, size, name })
    }
}

/// A hexadecimal number with the blanks before it, and what follows its blank.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = memchr::memchr2(b' ', b'\t', text)?;
    let (digits, rest) = text.split_at(end);
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    Some((hexadecimal(digits)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: impl AsRef<[u8]>) -> PerfMap {
        let mut map = PerfMap::default();
        map.feed(text.as_ref(), 0);
        map
    }

    fn name(map: &PerfMap, address: u64, time_ns: u64) -> Option<&str> {
        map.lookup(address, time_ns).map(|(name, _)| name)
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
    fn a_bad_line_costs_that_line_only() {
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
    fn hostile_names_are_data() {
        let map = map(b"10 1 a;b\x1b[31mred\0nul\n20 1 caf\xe9\n30 1 \xff\xfe\n");
        assert_eq!(name(&map, 0x10, 1), Some("a;b\x1b[31mred\0nul"));
        assert_eq!(name(&map, 0x20, 1), Some("caf\u{fffd}"));
        assert_eq!(name(&map, 0x30, 1), Some("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn a_line_of_a_megabyte_has_its_name_cut_and_the_next_line_is_read() {
        let text = format!("10 8 {}\n20 8 next\n", "x".repeat(1 << 20));
        let whole = map(&text);
        let mut pieces = PerfMap::default();
        text.as_bytes().chunks(1000).for_each(|chunk| pieces.feed(chunk, 0));
        for map in [whole, pieces] {
            assert_eq!(name(&map, 0x10, 1).map(str::len), Some(MAX_LINE_BYTES - "10 8 ".len()));
            assert_eq!(name(&map, 0x20, 1), Some("next"));
        }
    }

    #[test]
    fn an_endless_line_is_kept_within_its_limit() {
        let mut map = PerfMap::default();
        for _ in 0..100 {
            map.feed(&[b'a'; 10_000], 0);
        }
        assert_eq!(map.partial_line.len(), MAX_LINE_BYTES);
    }

    #[test]
    fn the_end_of_a_line_may_come_later() {
        let mut map = map("10 8 ab");
        assert_eq!(name(&map, 0x10, 1), None);
        map.feed(b"cd\n", 5);
        assert_eq!(name(&map, 0x10, 6), Some("abcd"));
    }

    #[test]
    fn a_sample_between_two_polls_may_see_what_the_later_poll_found() {
        let mut map = map("100 10 old\n");
        map.feed(b"100 10 new\n", 1000);
        assert_eq!(name(&map, 0x100, 1000), Some("old"));
        assert_eq!(name(&map, 0x100, 1001), Some("new"));
        assert_eq!([0, 1000, 1001, 5000].map(|time_ns| map.epoch(time_ns)), [0, 0, 1, 1]);
    }

    #[test]
    fn lines_that_are_written_again_change_nothing() {
        let text = "100 10 a\n200 10 b\n300 10 caf\u{e9}\n";
        let mut map = map(text);
        map.feed(b"400 1", 10);
        map.restart();
        map.feed(text.as_bytes(), 20);
        assert_eq!(map.code.len(), 3);
        assert_eq!(map.epoch(u64::MAX), 0);
        assert_eq!(map.malformed_lines(), 0);
    }

    #[test]
    fn feeding_at_any_split_gives_the_same_map() {
        let text = b"10 8 first\n0x14 8 over it\r\nbroken\n\n20 0 open\n10 4 \xc3\xa9\xff end\nlast 1";
        let whole = map(text);
        for split in 0..=text.len() {
            let mut parts = PerfMap::default();
            parts.feed(&text[..split], 0);
            parts.feed(&text[split..], 0);
            for address in 0..0x40 {
                assert_eq!(parts.lookup(address, 1), whole.lookup(address, 1), "{split} {address:#x}");
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
            map.feed(&std::iter::repeat_with(|| random.u8(..)).take(64).collect::<Vec<_>>(), round);
            let line = format!("\n{:x} {:x} n{round}\n", random.u64(0..1 << 12), random.u64(0..1 << 9));
            map.feed(line.as_bytes(), round);
            let start = random.u64(0..line.len() as u64) as usize;
            map.feed(&line.as_bytes()[start..], round);
        }
        for address in 0..(1 << 12) {
            for time_ns in [0, 500, 1_000, u64::MAX] {
                map.lookup(address, time_ns);
            }
        }
        assert!(map.code.len() > 1_000);
    }
}
