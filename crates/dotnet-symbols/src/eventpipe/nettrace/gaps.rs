//! Where a runtime dropped events: between two events of a thread whose sequence numbers are not consecutive.

/// Gaps that are kept one by one until they are taken. Each costs the runtime at least an event or an entry of a sequence point.
const MAX_GAPS: usize = 1 << 12;

/// Events of a thread that the runtime dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The thread that wrote them, as [`Event::thread`](super::Event::thread); `None` for several threads.
    pub thread: Option<u64>,
    /// The time of the thread's last event before them, or of the begin of the stream, in ticks of its clock.
    pub from_ticks: u64,
    /// The time of the thread's next event, or of the sequence point that shows the gap.
    pub to_ticks: u64,
    /// The number of the events.
    pub events: u64,
}

/// The gaps that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    /// Adds a gap. One beyond the limit extends the last one.
    pub(super) fn add(&mut self, gap: Gap) {
        if self.0.len() < MAX_GAPS {
            self.0.push(gap);
        } else if let Some(last) = self.0.last_mut() {
            *last = Gap {
                thread: last.thread.filter(|thread| gap.thread == Some(*thread)),
                from_ticks: last.from_ticks.min(gap.from_ticks),
                to_ticks: last.to_ticks.max(gap.to_ticks),
                events: last.events.saturating_add(gap.events),
            };
        }
    }

    pub(super) fn take(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_gaps_are_bounded_and_lose_no_event_and_no_time() {
        let mut gaps = Gaps::default();
        for number in 0..2 * MAX_GAPS as u64 {
            gaps.add(Gap { thread: Some(number), from_ticks: number, to_ticks: number + 1, events: 3 });
        }
        let taken = gaps.take();
        assert_eq!(taken.len(), MAX_GAPS);
        assert_eq!(taken.iter().map(|gap| gap.events).sum::<u64>(), 6 * MAX_GAPS as u64);
        let last = taken.last().unwrap();
        let from_ticks = MAX_GAPS as u64 - 1;
        assert_eq!((last.thread, last.from_ticks, last.to_ticks), (None, from_ticks, 2 * MAX_GAPS as u64));
        assert!(gaps.take().is_empty());
    }
}
