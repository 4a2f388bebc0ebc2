//! Stores the methods that were found in the memory of a process, with the times at which they were there.

use std::{collections::BTreeMap, ops::Range};

use profiler_addresses::MonotonicTime;
use profiler_profile::Reason;

/// Methods of one process.
const MAX_METHODS: usize = 1 << 17;

/// The methods of one process by the start of their code.
#[derive(Debug, Default)]
pub(super) struct FoundMethods {
    by_start: BTreeMap<u64, Vec<FoundMethod>>,
    methods: usize,
    name_bytes: usize,
    /// The times at which the name at some address changes, in order: those of code that can be freed.
    change_times: Vec<MonotonicTime>,
    /// The number of these times that were retired.
    retired_changes: usize,
    /// Whether the current read found or missed code that can be freed.
    found_freeable: bool,
    /// Whether a read has missed or replaced code that an earlier read had found.
    pub(super) has_freed: bool,
    /// Whether methods are missing because there are too many.
    pub(super) is_truncated: bool,
}

/// A method that a read found.
#[derive(Clone, Debug)]
pub(super) struct ReadMethod {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: Box<str>,
    pub(super) is_precompiled: bool,
    pub(super) can_be_freed: bool,
}

/// A method, and when it was there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundMethod {
    end: u64,
    /// With its assembly and arguments.
    pub(crate) name: Box<str>,
    /// Whether its code was compiled ahead of time.
    pub(crate) is_precompiled: bool,
    can_be_freed: bool,
    /// The time after the first read that found it.
    found_from: MonotonicTime,
    /// The time before the last read that found it.
    found_until: MonotonicTime,
    /// Whether the last read found it.
    is_current: bool,
    /// Whether it has been sampled: the others are those that exist when the first read lists what can be freed.
    is_sampled: bool,
}

impl FoundMethod {
    fn was_there_at(&self, time: MonotonicTime) -> bool {
        !self.can_be_freed || (self.found_from..self.found_until).contains(&time)
    }
}

impl FoundMethods {
    /// Adds what a read between two times found at `address`, which can be the start of a method that was freed.
    pub(super) fn add(&mut self, address: u64, method: ReadMethod, read_during: &Range<MonotonicTime>) {
        let ReadMethod { start, end, name, is_precompiled, can_be_freed } = method;
        self.found_freeable |= can_be_freed;
        if start != address {
            self.close(address);
        }
        let at_start = self.by_start.entry(start).or_default();
        if let Some(known) = at_start.last_mut().filter(|known| known.is_current)
            && (known.end, &known.name, known.can_be_freed) == (end, &name, can_be_freed)
        {
            known.found_until = read_during.start;
            known.is_sampled |= start != address;
            return;
        }
        if self.methods >= MAX_METHODS {
            self.is_truncated = true;
            return;
        }
        if let Some(replaced) = at_start.last_mut() {
            self.has_freed |= replaced.is_current;
            replaced.is_current = false;
        }
        self.methods += 1;
        self.name_bytes += name.len();
        let (found_from, found_until) = (read_during.end, read_during.end);
        at_start.push(FoundMethod {
            end,
            name,
            is_precompiled,
            can_be_freed,
            found_from,
            found_until,
            is_current: true,
            is_sampled: start != address,
        });
    }

    /// Notes that the method that starts at an address has been sampled.
    pub(super) fn mark_sampled(&mut self, start: u64) {
        if let Some(method) = self.by_start.get_mut(&start).and_then(|at_start| at_start.last_mut()) {
            method.is_sampled = true;
        }
    }

    /// Notes that a read has not found the method that starts at an address.
    pub(super) fn close(&mut self, start: u64) {
        let latest = self.by_start.get_mut(&start).and_then(|at_start| at_start.last_mut());
        if let Some(method) = latest.filter(|method| method.can_be_freed) {
            self.has_freed |= method.is_current;
            method.is_current = false;
            self.found_freeable = true;
        }
    }

    /// Ends a read.
    pub(super) fn end_read(&mut self) {
        if std::mem::take(&mut self.found_freeable) {
            self.change_times = self.find_changes();
        }
    }

    fn find_changes(&self) -> Vec<MonotonicTime> {
        let freeable = self.by_start.values().flatten().filter(|method| method.can_be_freed);
        let mut changes: Vec<_> =
            freeable.flat_map(|method| [method.found_from, method.found_until]).collect();
        changes.sort_unstable();
        changes.dedup();
        changes
    }

    /// The starts of sampled code that can be freed and that no read has found since a time.
    pub(super) fn found_before(&self, time: MonotonicTime) -> impl Iterator<Item = u64> {
        self.by_start.iter().filter_map(move |(start, at_start)| {
            let latest = at_start.last()?;
            let is_due = latest.is_current && latest.can_be_freed && latest.found_until < time;
            (is_due && latest.is_sampled).then_some(*start)
        })
    }

    /// The start of the method at an address, as the last read found it, and whether it can be freed.
    pub(super) fn current(&self, address: u64) -> Option<(u64, bool)> {
        let (start, at_start) = self.by_start.range(..=address).next_back()?;
        let method = at_start.last().filter(|method| method.is_current && address < method.end)?;
        Some((*start, method.can_be_freed))
    }

    /// The method whose code was at `address` at `time`. An error where it is not certain that the found method was
    /// there, `None` where none was found.
    pub(super) fn lookup(&self, address: u64, time: MonotonicTime) -> Option<Result<&FoundMethod, Reason>> {
        let (_, at_start) = self.by_start.range(..=address).next_back()?;
        let mut methods = at_start.iter().filter(|method| address < method.end).peekable();
        methods.peek()?;
        let method = methods.find(|method| method.was_there_at(time));
        Some(method.ok_or(Reason::JitCodeUnloaded))
    }

    /// Identifies the period between two changes of names.
    pub(super) fn epoch(&self, time: MonotonicTime) -> u32 {
        u32::try_from(self.retired_changes + self.changes_until(time)).unwrap_or(u32::MAX)
    }

    fn changes_until(&self, time: MonotonicTime) -> usize {
        self.change_times.partition_point(|change| *change <= time)
    }

    /// Retires code that was freed before a time.
    pub(super) fn retire_freed(&mut self, before: MonotonicTime) {
        let (mut methods, mut name_bytes) = (0, 0);
        self.by_start.retain(|_, at_start| {
            at_start.retain(|method| method.is_current || method.found_until >= before);
            methods += at_start.len();
            name_bytes += at_start.iter().map(|method| method.name.len()).sum::<usize>();
            !at_start.is_empty()
        });
        (self.methods, self.name_bytes) = (methods, name_bytes);
        self.is_truncated = false;
        let known = self.changes_until(before);
        self.change_times = self.find_changes();
        // The later periods keep their numbers.
        self.retired_changes += known.saturating_sub(self.changes_until(before));
    }

    /// An estimate, with a third of each node of the tree empty.
    pub(super) fn memory_bytes(&self) -> usize {
        let per_method = size_of::<FoundMethod>() + size_of::<(u64, Vec<FoundMethod>)>() * 3 / 2;
        self.methods * per_method
            + self.name_bytes
            + self.change_times.capacity() * size_of::<MonotonicTime>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(start: u64, name: &str, can_be_freed: bool) -> ReadMethod {
        ReadMethod { start, end: start + 0x100, name: name.into(), is_precompiled: false, can_be_freed }
    }

    fn name_at(methods: &FoundMethods, address: u64, time_ns: u64) -> Option<Result<&str, Reason>> {
        methods.lookup(address, MonotonicTime(time_ns)).map(|found| found.map(|method| &*method.name))
    }

    /// Reads one address.
    fn read(methods: &mut FoundMethods, address: u64, found: Option<&ReadMethod>, read_ns: Range<u64>) {
        let read_during = MonotonicTime(read_ns.start)..MonotonicTime(read_ns.end);
        match found {
            Some(method) => methods.add(address, method.clone(), &read_during),
            None => methods.close(address),
        }
        methods.end_read();
    }

    #[test]
    fn a_method_that_stays_has_its_name_at_all_times() {
        let mut methods = FoundMethods::default();
        read(&mut methods, 0x1010, Some(&method(0x1000, "A.B()", false)), 100..110);
        assert_eq!(name_at(&methods, 0x10ff, 1), Some(Ok("A.B()")));
        assert_eq!((name_at(&methods, 0x1100, 1), name_at(&methods, 0xfff, 1)), (None, None));
        assert_eq!(methods.current(0x1050), Some((0x1000, false)));
        assert_eq!((methods.epoch(MonotonicTime(0)), methods.epoch(MonotonicTime::MAX)), (0, 0));
    }

    #[test]
    fn a_method_that_can_be_freed_has_its_name_between_two_reads_that_found_it() {
        let mut methods = FoundMethods::default();
        let (first, second) = (method(0x1000, "first", true), method(0x1000, "second", true));
        read(&mut methods, 0x1010, Some(&first), 100..110);
        read(&mut methods, 0x1000, Some(&first), 200..210);
        read(&mut methods, 0x1000, Some(&second), 300..310);
        read(&mut methods, 0x1000, Some(&second), 400..410);
        read(&mut methods, 0x1000, None, 500..510);
        let unknown = Some(Err(Reason::JitCodeUnloaded));
        for (time_ns, expected) in [
            (99, unknown),
            (109, unknown),
            (110, Some(Ok("first"))),
            (199, Some(Ok("first"))),
            (200, unknown),
            (309, unknown),
            (310, Some(Ok("second"))),
            (399, Some(Ok("second"))),
            (400, unknown),
            (505, unknown),
        ] {
            assert_eq!(name_at(&methods, 0x1010, time_ns), expected, "{time_ns}");
        }
        assert_eq!(methods.current(0x1010), None);
    }

    #[test]
    fn an_address_has_one_name_in_an_epoch() {
        let mut methods = FoundMethods::default();
        let names = ["a", "a", "b", "a"].map(|name| method(0x1000, name, true));
        for (index, code) in (0..).zip(&names) {
            read(&mut methods, 0x1000, Some(code), 100 * index + 100..100 * index + 110);
        }
        let mut by_epoch = BTreeMap::new();
        for time_ns in 0..600 {
            let name = name_at(&methods, 0x1000, time_ns);
            let known = by_epoch.entry(methods.epoch(MonotonicTime(time_ns))).or_insert(name);
            assert_eq!(*known, name, "{time_ns}");
        }
        let epoch = methods.epoch(MonotonicTime(350));
        methods.retire_freed(MonotonicTime(250));
        assert_eq!(methods.epoch(MonotonicTime(350)), epoch);
        assert_eq!(name_at(&methods, 0x1000, 250), Some(Err(Reason::JitCodeUnloaded)));
    }

    #[test]
    fn what_was_freed_is_retired_with_its_names() {
        let mut methods = FoundMethods::default();
        for index in 0..100 {
            let start = 0x1000 + 0x100 * (index % 10);
            let name = format!("method {index}");
            read(&mut methods, start, Some(&method(start, &name, true)), 10 * index..10 * index + 1);
        }
        assert_eq!(methods.methods, 100);
        methods.retire_freed(MonotonicTime::MAX);
        assert_eq!((methods.methods, methods.name_bytes), (10, 90));
        assert_eq!(methods.change_times.len(), 10);
    }
}
