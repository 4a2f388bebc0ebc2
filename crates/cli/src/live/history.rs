//! The samples of a live session in bounded memory: single samples for the window, counts per stack before it.

use std::{collections::VecDeque, time::Duration};

use profiler_profile::{Cost, Profile};

/// Limit of single samples, whatever the window is: about 40 MB.
const MAX_SINGLE_SAMPLES: usize = 1 << 20;

/// Limit of stacks of threads before the window: about 20 MB if stacks are deep.
const MAX_CONDENSED_STACKS: usize = 32 << 10;

/// The time span that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// The last seconds.
    Window,
    /// All samples since the start or the last [`History::clear`].
    All,
}

/// The profiles of consecutive intervals.
#[derive(Debug)]
pub(super) struct History {
    window: Duration,
    max_single_samples: usize,
    /// The intervals before `recent`, condensed.
    older: Option<Profile>,
    recent: VecDeque<Profile>,
    own_cpu_percent: Option<f64>,
    last_cost: Option<Cost>,
}

impl History {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            max_single_samples: MAX_SINGLE_SAMPLES,
            older: None,
            recent: VecDeque::new(),
            own_cpu_percent: None,
            last_cost: None,
        }
    }

    /// Adds the profile of the next interval.
    pub(super) fn push(&mut self, interval: Profile) {
        self.update_cost(&interval);
        self.recent.push_back(interval);
        // Condensing costs time proportional to all older stacks: not at each interval.
        if duration(&self.recent) > self.window * 2 {
            self.condense(self.window_start());
        }
        while self.single_samples() > self.max_single_samples && !self.recent.is_empty() {
            self.condense(self.recent.len().div_ceil(2));
        }
    }

    /// Removes all samples.
    pub(super) fn clear(&mut self) {
        self.older = None;
        self.recent.clear();
    }

    /// The profile of a time span.
    pub(super) fn profile(&self, span: Span) -> Profile {
        match span {
            Span::Window => Profile::joined(self.recent.range(self.window_start()..)),
            Span::All => Profile::joined(self.older.iter().chain(&self.recent)),
        }
    }

    /// The CPU time of the profiler in the last interval, in percent of one CPU.
    pub(super) fn own_cpu_percent(&self) -> Option<f64> {
        self.own_cpu_percent
    }

    fn update_cost(&mut self, interval: &Profile) {
        let cpu_ns = |cost: &Cost| cost.user_cpu_ns + cost.system_cpu_ns;
        let cost = interval.ledger().cost;
        let duration_ns = interval.header().duration_ns;
        if let Some(last) = self.last_cost.replace(cost)
            && duration_ns > 0
        {
            let used_ns = cpu_ns(&cost).saturating_sub(cpu_ns(&last));
            self.own_cpu_percent = Some(100.0 * used_ns as f64 / duration_ns as f64);
        }
    }

    /// The index of the first interval of the window.
    fn window_start(&self) -> usize {
        let mut left_ns = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        let fits = |interval: &&Profile| {
            // Intervals are a little longer than requested: one that is mostly inside belongs to the window.
            let is_inside = interval.header().duration_ns / 2 <= left_ns;
            left_ns = left_ns.saturating_sub(interval.header().duration_ns);
            is_inside
        };
        let inside = self.recent.iter().rev().take_while(fits).count();
        // A window shorter than an interval shows the last interval.
        self.recent.len().saturating_sub(inside.max(1))
    }

    fn condense(&mut self, intervals: usize) {
        let condensed: Vec<_> = self.older.take().into_iter().chain(self.recent.drain(..intervals)).collect();
        if !condensed.is_empty() {
            self.older = Some(Profile::joined(&condensed).condensed(MAX_CONDENSED_STACKS));
        }
    }

    fn single_samples(&self) -> usize {
        self.recent.iter().map(|interval| interval.samples().len()).sum()
    }
}

fn duration(intervals: &VecDeque<Profile>) -> Duration {
    Duration::from_nanos(intervals.iter().map(|interval| interval.header().duration_ns).sum())
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::second;

    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    fn history(window_seconds: u64, seconds: u64) -> History {
        let mut history = History::new(Duration::from_secs(window_seconds));
        (0..seconds).for_each(|number| history.push(second(number)));
        history
    }

    #[test]
    fn the_window_has_the_last_seconds_and_all_has_every_sample() {
        let history = history(3, 100);
        let window = history.profile(Span::Window);
        let names: Vec<_> = window.frames().map(|frame| window.string(frame.name)).collect();
        assert_eq!(names, ["f97", "f98", "f99"]);
        let all = history.profile(Span::All);
        assert_eq!((all.total_value(), all.first_ledger().reported), (100, 100));
        assert_eq!(all.header().duration_ns, 100 * NS_PER_S);
        assert!(all.ledger().adds_up());
    }

    #[test]
    fn a_window_shorter_than_an_interval_is_not_empty() {
        let mut history = History::new(Duration::from_millis(1));
        history.push(second(1));
        history.push(second(2));
        assert_eq!(history.profile(Span::Window).total_value(), 1);
        assert_eq!(history.profile(Span::All).total_value(), 2);
    }

    #[test]
    fn single_samples_are_bounded_by_the_window_and_by_their_number() {
        assert!(history(3, 1_000).single_samples() <= 6);
        let mut history = History { max_single_samples: 10, ..History::new(Duration::from_secs(3_600)) };
        (0..1_000).for_each(|number| history.push(second(number)));
        assert!(history.single_samples() <= 10);
        assert_eq!(history.profile(Span::All).total_value(), 1_000);
        history.max_single_samples = 0;
        history.push(second(1_000));
        assert_eq!(history.profile(Span::Window).total_value(), 0);
    }

    #[test]
    fn condensed_stacks_are_bounded_and_the_ledger_counts_all_samples() {
        let mut history = history(1, 3);
        let many = (0..MAX_CONDENSED_STACKS as u64 + 100).map(second).collect::<Vec<_>>();
        history.recent.push_front(Profile::joined(&many));
        history.push(second(4));
        let older = history.older.as_ref().unwrap();
        assert!(older.samples().len() <= MAX_CONDENSED_STACKS);
        assert_eq!(history.profile(Span::All).first_ledger().reported, MAX_CONDENSED_STACKS as u64 + 104);
    }

    #[test]
    fn after_clear_the_history_starts_with_the_next_interval() {
        let mut history = history(2, 50);
        history.clear();
        assert_eq!(history.profile(Span::All).total_value(), 0);
        history.push(second(50));
        assert_eq!(history.profile(Span::All).header().duration_ns, NS_PER_S);
    }

    #[test]
    fn the_cpu_time_of_the_profiler_is_that_of_the_last_interval() {
        assert_eq!(history(1, 1).own_cpu_percent(), None);
        assert_eq!(history(1, 2).own_cpu_percent(), Some(1.0));
    }
}
