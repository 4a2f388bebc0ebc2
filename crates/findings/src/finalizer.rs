//! Finds a finalizer of .NET in which the finalizer thread is all the time: other finalizers wait meanwhile.

use profiler_profile::{FindingFacts, Sample, Whole, sum};

use crate::{
    facts::share,
    found::Found,
    text::Problem,
    thread_group::ThreadGroup,
    thread_time::{Period, ThreadTime},
};

/// The least time in one finalizer. Finalizers release what an object holds, which takes microseconds.
const MIN_TIME_NS: u64 = 3_000_000_000;

/// The name of the finalizer thread. Before .NET 9, its native code calls finalizers.
const FINALIZER_THREAD: &str = ".NET Finalizer";

/// The finalizer in which the finalizer thread is until the end of the measurement.
pub(crate) fn blocked<'a>(samples: &ThreadGroup<'a>) -> Option<Found<'a>> {
    let marks = samples.marks;
    let threads = samples.by_thread();
    let is_finalizing = |(sample, _): &(&Sample, _)| {
        marks.finalizers.contains(sample) || samples.is_main_thread_and_name(sample).1 == FINALIZER_THREAD
    };
    let of_thread = threads.values().find(|of_thread| of_thread.last().is_some_and(is_finalizing))?;
    let end_ns = samples.profile.header().duration_ns;
    let period = Period { begin_ns: end_ns.checked_sub(MIN_TIME_NS)?, end_ns };
    let time = ThreadTime::of(samples, of_thread, &period)?;
    let (activity, percent) = time.activity(samples, &period)?;
    let methods = time.methods(samples);
    let (innermost, outermost) = (methods.first()?, methods.last()?);
    let waiting = samples.threads(|sample, _| marks.finalizer_waits.contains(sample)).len();
    let evidence = || of_thread.iter().filter(|one| is_finalizing(one)).map(|(sample, _)| *sample);
    let tid = evidence().next().map(|sample| samples.tid(sample));
    let facts = FindingFacts {
        share: share(percent, Whole::TimeOfThread),
        cause_thread: tid,
        ..samples.facts(Some(outermost), evidence())
    };
    let problem = Problem::BlockedFinalizer { outermost, innermost, activity, waiting };
    Some(samples.finding(&problem, facts, sum::of(evidence().map(|sample| sample.value))))
}
