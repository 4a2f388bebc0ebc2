//! The samples of one event and a group of threads, and sums over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use profiler_profile::{EventId, ProcessId, Profile, Sample, StackId, sum};

use crate::{
    WaitCause,
    frames::{application_method, application_methods},
    marks::Marks,
    weights::percent,
};

/// The least share of samples below one method that names it.
const MIN_SITE_PERCENT: f64 = 50.0;

/// The samples of an event of a group of threads, with their causes: those of one process, of several, or of a whole service.
#[derive(Clone)]
pub(crate) struct ThreadGroup<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) marks: &'a Marks,
    pub(crate) event: EventId,
    /// The process, or the first one.
    pub(crate) process: ProcessId,
    pub(crate) processes: Vec<ProcessId>,
    /// Whether each of the processes has one thread.
    pub(crate) has_one_thread_each: bool,
    pub(crate) samples: Vec<(&'a Sample, Option<WaitCause>)>,
}

/// The waits below a method of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site<'a> {
    pub(crate) method: &'a str,
    pub(crate) value: u64,
    /// The ids of the threads.
    pub(crate) threads: BTreeSet<u32>,
}

impl<'a> ThreadGroup<'a> {
    /// The threads of all of these groups. There is at least one.
    pub(crate) fn joined(groups: &[&Self]) -> Self {
        let mut joined = groups[0].clone();
        for group in &groups[1..] {
            joined.processes.extend(&group.processes);
            joined.has_one_thread_each &= group.has_one_thread_each;
            joined.samples.extend(&group.samples);
        }
        joined
    }

    /// Whether these are samples of several processes.
    pub(crate) fn has_several_processes(&self) -> bool {
        self.processes.len() > 1
    }

    /// The sum of the values of these samples.
    pub(crate) fn value(&self, is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool) -> u64 {
        let counted = self.samples.iter().filter(|(sample, cause)| is_counted(sample, *cause));
        sum::of(counted.map(|(sample, _)| sample.value))
    }

    /// The number of these samples, as ledgers count them.
    pub(crate) fn count(&self, is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool) -> u64 {
        let event = self.profile.event(self.event);
        let counted = self.samples.iter().filter(|(sample, cause)| is_counted(sample, *cause));
        sum::of(counted.map(|(sample, _)| event.sample_count(sample.value)))
    }

    /// The value of the threads that have work: neither idle nor asleep by their own choice.
    pub(crate) fn value_with_work(&self) -> u64 {
        self.value(|_, cause| !matches!(cause, Some(WaitCause::Idle | WaitCause::Sleep)))
    }

    /// The average number of `threads` threads that a value represents; 0 where time is unknown. The value can exceed the
    /// duration by some periods, which a late pass adds.
    pub(crate) fn average_threads(&self, value: u64, threads: usize) -> f64 {
        let unit_ns = self.profile.event(self.event).unit_ns().unwrap_or_default();
        let duration_ns = self.profile.header().duration_ns.max(1);
        (value as f64 * unit_ns as f64 / duration_ns as f64).min(threads as f64)
    }

    /// The waits by the method of the application below which they are, those of the largest value first.
    pub(crate) fn sites(&self, is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool) -> Vec<Site<'a>> {
        let mut methods = HashMap::<StackId, Option<&'a str>>::new();
        let mut sites = BTreeMap::<&'a str, Site<'a>>::new();
        for (sample, cause) in &self.samples {
            if !is_counted(sample, *cause) {
                continue;
            }
            let method = methods
                .entry(sample.stack)
                .or_insert_with(|| application_method(self.profile, self.profile.stack(sample.stack)));
            let Some(method) = *method else { continue };
            let new = Site { method, value: 0, threads: BTreeSet::new() };
            let site = sites.entry(method).or_insert(new);
            sum::add(&mut site.value, sample.value);
            site.threads.insert(self.tid(sample));
        }
        let mut sites: Vec<_> = sites.into_values().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.value));
        sites
    }

    /// The method of the application below which most of these samples are that have one.
    pub(crate) fn main_site(
        &self,
        is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool,
    ) -> Option<&'a str> {
        let sites = self.sites(is_counted);
        let named = sum::of(sites.iter().map(|site| site.value));
        let first = sites.first()?;
        (percent(first.value, named) >= MIN_SITE_PERCENT).then_some(first.method)
    }

    /// The method of the application in the stack of a sample, nearest to the leaf.
    pub(crate) fn method(&self, sample: &Sample) -> Option<&'a str> {
        application_method(self.profile, self.profile.stack(sample.stack))
    }

    /// Whether the stack of a sample has this method of the application.
    pub(crate) fn is_below(&self, sample: &Sample, method: &str) -> bool {
        application_methods(self.profile, self.profile.stack(sample.stack)).any(|found| found == method)
    }

    /// The samples of each thread, by its id, in time order.
    pub(crate) fn by_thread(&self) -> BTreeMap<u32, Vec<(&'a Sample, Option<WaitCause>)>> {
        let mut threads = BTreeMap::<u32, Vec<_>>::new();
        for (sample, cause) in &self.samples {
            threads.entry(self.tid(sample)).or_default().push((*sample, *cause));
        }
        for of_thread in threads.values_mut() {
            of_thread.sort_by_key(|(sample, _)| sample.time_ns);
        }
        threads
    }

    /// The ids of the threads of these samples.
    pub(crate) fn threads(&self, is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool) -> BTreeSet<u32> {
        let counted = self.samples.iter().filter(|(sample, cause)| is_counted(sample, *cause));
        counted.map(|(sample, _)| self.tid(sample)).collect()
    }

    pub(crate) fn tid(&self, sample: &Sample) -> u32 {
        self.profile.thread(sample.thread).tid
    }

    /// Whether the thread of a sample is the one with which its process began, and its name.
    pub(crate) fn is_main_thread_and_name(&self, sample: &Sample) -> (bool, &'a str) {
        let thread = self.profile.thread(sample.thread);
        (thread.tid == self.profile.process(thread.process).pid, self.profile.string(thread.comm))
    }

    /// The processes of these samples.
    pub(crate) fn processes_of<'s>(&self, samples: impl Iterator<Item = &'s Sample>) -> BTreeSet<ProcessId> {
        samples.map(|sample| self.profile.thread(sample.thread).process).collect()
    }
}
