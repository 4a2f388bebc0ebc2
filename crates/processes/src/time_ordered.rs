//! Puts records of several CPUs into time order, by a watermark.
//!
//! Each CPU writes into a ring buffer of its own, and a reader drains one after the other. What was written while it
//! drained is incomplete: the fork on one CPU may be missing while the exec on another is there. Only records from before
//! the drain began are complete, and are released. perf does the same with its ordered events
//! (`tools/perf/util/ordered-events.c`).

use profiler_addresses::MonotonicTime;

/// Records that wait for earlier ones.
#[derive(Debug)]
pub struct TimeOrdered<T> {
    pending: Vec<T>,
    watermark: MonotonicTime,
    late: u64,
    time_of: fn(&T) -> MonotonicTime,
}

impl<T> TimeOrdered<T> {
    /// An empty queue of records with this time.
    pub fn new(time_of: fn(&T) -> MonotonicTime) -> Self {
        Self { pending: Vec::new(), watermark: MonotonicTime::ZERO, late: 0, time_of }
    }

    /// Adds records in any order. One from before the watermark is late: it is released next, and counted.
    pub fn push(&mut self, records: impl IntoIterator<Item = T>) {
        let (time_of, watermark) = (self.time_of, self.watermark);
        let before = self.pending.len();
        self.pending.extend(records);
        let late = self.pending[before..].iter().filter(|record| time_of(record) < watermark);
        self.late += late.count() as u64;
    }

    /// Moves the watermark, and releases the records from before it in time order. The caller has added every record
    /// with an earlier time.
    pub fn release_before(&mut self, watermark: MonotonicTime) -> Vec<T> {
        let time_of = self.time_of;
        self.watermark = self.watermark.max(watermark);
        self.pending.sort_by_key(time_of);
        let later = self.pending.partition_point(|record| time_of(record) < self.watermark);
        let rest = self.pending.split_off(later);
        std::mem::replace(&mut self.pending, rest)
    }

    /// The number of records that came after the watermark had passed them.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> TimeOrdered<(u64, &'static str)> {
        TimeOrdered::new(|record| MonotonicTime(record.0))
    }

    #[test]
    fn records_are_released_in_time_order_once_the_watermark_has_passed_them() {
        let mut queue = queue();
        queue.push([(50, "exec"), (70, "exit")]);
        queue.push([(40, "fork")]);
        assert_eq!(queue.release_before(MonotonicTime(60)), [(40, "fork"), (50, "exec")]);
        assert_eq!(queue.release_before(MonotonicTime(70)), []);
        assert_eq!(queue.release_before(MonotonicTime::MAX), [(70, "exit")]);
        assert_eq!(queue.late(), 0);
    }

    #[test]
    fn a_record_behind_the_watermark_is_counted_and_released_next() {
        let mut queue = queue();
        assert_eq!(queue.release_before(MonotonicTime(100)), []);
        queue.push([(120, "new"), (99, "late"), (100, "on time")]);
        assert_eq!(queue.release_before(MonotonicTime(110)), [(99, "late"), (100, "on time")]);
        assert_eq!(queue.late(), 1);
        assert_eq!(queue.release_before(MonotonicTime(100)), [], "the watermark does not go back");
        assert_eq!(queue.release_before(MonotonicTime(130)), [(120, "new")]);
    }

    #[test]
    fn records_of_one_time_keep_their_order() {
        let mut queue = queue();
        queue.push([(5, "first"), (5, "second"), (4, "before")]);
        assert_eq!(queue.release_before(MonotonicTime(6)), [(4, "before"), (5, "first"), (5, "second")]);
    }
}
