//! The facts of findings from the samples that show them.

use std::collections::BTreeSet;

use profiler_profile::{Certainty, FindingFacts, Place, Sample, Selection, SourceLocation, sum};

use crate::{WaitCause, facts::since, frames::location_in, thread_group::ThreadGroup, weights::heaviest};

impl<'a> ThreadGroup<'a> {
    /// The samples for which a predicate holds.
    pub(crate) fn counted(
        &self,
        is_counted: impl Fn(&Sample, Option<WaitCause>) -> bool,
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples
            .iter()
            .filter(move |(sample, cause)| is_counted(sample, *cause))
            .map(|(sample, _)| *sample)
    }

    /// The facts that these samples show, below a method where it is known. Without a share, and with a certain cause.
    pub(crate) fn facts<'s>(
        &self,
        method: Option<&str>,
        evidence: impl Iterator<Item = &'s Sample>,
    ) -> FindingFacts {
        let evidence: Vec<_> = evidence.collect();
        let unit_ns = self.profile.event(self.event).unit_ns();
        let tids: BTreeSet<_> = evidence.iter().map(|sample| self.tid(sample)).collect();
        let processes = self.processes_of(evidence.iter().copied()).into_iter();
        let pids: BTreeSet<_> = processes.map(|process| self.profile.process(process).pid).collect();
        let value = sum::of(evidence.iter().map(|sample| sample.value));
        let end_ns = |sample: &&Sample| {
            sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns.unwrap_or_default()))
        };
        let begin_ns = evidence.iter().map(|sample| sample.time_ns).min().unwrap_or_default();
        let last_ns = evidence.iter().map(end_ns).max().unwrap_or_default();
        FindingFacts {
            processes: pids.into_iter().collect(),
            threads: Some(u32::try_from(tids.len()).unwrap_or(u32::MAX)),
            threads_at_a_time: unit_ns.map(|_| self.average_threads(value, tids.len())),
            share: None,
            place: method.map(|method| self.place(method, &evidence)),
            cause_thread: None,
            partner: None,
            since_ns: since(begin_ns),
            certainty: Certainty::Proven,
            selection: Selection {
                begin_ns,
                end_ns: last_ns.min(self.profile.header().duration_ns),
                threads: tids.into_iter().collect(),
                runtime_events: None,
                search: method.map(str::to_owned),
            },
        }
    }

    /// A method, with the source line that most of these samples have.
    fn place(&self, method: &str, evidence: &[&Sample]) -> Place {
        let profile = self.profile;
        let locations = evidence.iter().map(|sample| {
            let location = location_in(profile, profile.stack(sample.stack), method);
            (location.map(|SourceLocation { file, line }| (profile.string(file), line)), sample.value)
        });
        let location = heaviest(locations).and_then(|(location, ..)| location);
        Place { method: method.to_owned(), location: location.map(|(file, line)| (file.to_owned(), line)) }
    }
}
