//! The measures that .NET runtimes report: computed from the runtime events of each interval.

use std::collections::{BTreeMap, BTreeSet};

use profiler::EventSet;
use profiler_dotnet_symbols::eventpipe::runtime_events::SERVER_PROVIDER;
use profiler_profile::{FieldValue, Profile, RuntimeEvent, RuntimeEventKind, sum};
use profiler_triggers::{Measure, Values};

const NS_PER_S: f64 = 1e9;

/// Counters report each second; a value is that of its counter until it is this old.
const MAX_COUNTER_AGE_NS: u64 = 5_000_000_000;

/// The values of the last intervals.
#[derive(Debug, Default)]
pub(super) struct RuntimeValues {
    /// The last value of each counter, and when it was reported.
    counters: BTreeMap<String, (f64, u64)>,
    /// The size of the heaps after the last collection, bytes.
    heap_bytes: Option<f64>,
}

/// The sets of runtime events that these measures need.
pub(super) fn event_sets(measures: &BTreeSet<Measure>) -> Vec<EventSet> {
    let mut sets: Vec<_> = measures.iter().filter_map(event_set).collect();
    sets.sort();
    sets.dedup();
    sets
}

/// The set of runtime events that a measure needs.
pub(super) fn event_set(measure: &Measure) -> Option<EventSet> {
    match measure {
        Measure::GcPause | Measure::GcShare | Measure::Heap => Some(EventSet::Collections),
        Measure::Exceptions => Some(EventSet::Exceptions),
        Measure::Contention => Some(EventSet::Contentions),
        Measure::PoolStarvation => Some(EventSet::ThreadPool),
        Measure::PoolQueue | Measure::Counter { .. } => Some(EventSet::Counters),
        Measure::Requests | Measure::RequestTimeP99 => Some(EventSet::ServerRequests),
        _ => None,
    }
}

impl RuntimeValues {
    /// Adds the values of an interval. Without an event of the runtimes, counts are 0, sizes are those of before.
    pub(super) fn read(
        &mut self,
        interval: &Profile,
        now_ns: u64,
        measures: &BTreeSet<Measure>,
        values: &mut Values,
    ) {
        self.update(interval, now_ns);
        let seconds = (interval.header().duration_ns as f64 / NS_PER_S).max(f64::MIN_POSITIVE);
        let rate = |kind| interval.runtime_event_totals(None, kind).count as f64 / seconds;
        let adjustments = OfAll::of(interval, RuntimeEventKind::PoolAdjustment);
        let requests = OfAll::of(interval, RuntimeEventKind::Request);
        let pauses = CollectionPauses::of(interval);
        for measure in measures {
            let value = match measure {
                Measure::GcPause => Some(pauses.longest_ns / NS_PER_S),
                Measure::GcShare => Some((pauses.sum_ns / NS_PER_S / seconds).min(1.0)),
                Measure::Heap => self.heap_bytes,
                Measure::Exceptions => Some(rate(RuntimeEventKind::Exception)),
                Measure::Contention => Some(rate(RuntimeEventKind::Contention)),
                Measure::PoolStarvation => {
                    Some(starvations(interval) as f64 * adjustments.per_kept / seconds)
                }
                Measure::Requests => {
                    Some(served_requests(interval).count() as f64 * requests.per_kept / seconds)
                }
                Measure::RequestTimeP99 => percentile_99(served_requests(interval)),
                Measure::PoolQueue => self.counter("threadpool-queue-length", now_ns),
                Measure::Counter { name } => self.counter(name, now_ns),
                _ => continue,
            };
            values.set(measure.clone(), value);
        }
    }

    fn update(&mut self, interval: &Profile, now_ns: u64) {
        for event in events(interval, RuntimeEventKind::Counter) {
            let Some(FieldValue::Text(name)) = event.field(interval, "Name") else { continue };
            // The value of a gauge, or the increment of a counter since the last report.
            let value = event.field(interval, "Mean").or_else(|| event.field(interval, "Increment"));
            if let Some(value) = value.map(number) {
                self.counters.insert(interval.string(name).to_owned(), (value, now_ns));
            }
        }
        if let Some(sizes) = events(interval, RuntimeEventKind::HeapSizes).last() {
            let is_size = |name: &str| name.starts_with("GenerationSize");
            let sizes = sizes.fields.iter().filter(|field| is_size(interval.string(field.name)));
            self.heap_bytes = Some(sizes.map(|field| number(field.value)).sum());
        }
        // A target chooses the names of its counters.
        self.counters.retain(|_, (_, reported_ns)| now_ns.saturating_sub(*reported_ns) <= MAX_COUNTER_AGE_NS);
    }

    fn counter(&self, name: &str, now_ns: u64) -> Option<f64> {
        let (value, reported_ns) = self.counters.get(name)?;
        (now_ns.saturating_sub(*reported_ns) <= MAX_COUNTER_AGE_NS).then_some(*value)
    }
}

fn events(interval: &Profile, kind: RuntimeEventKind) -> impl Iterator<Item = &RuntimeEvent> {
    interval.runtime_events().iter().filter(move |event| event.kind == kind)
}

/// How many events of a kind happened for each that the profile has.
struct OfAll {
    per_kept: f64,
}

impl OfAll {
    fn of(interval: &Profile, kind: RuntimeEventKind) -> Self {
        let totals = interval.runtime_event_totals(None, kind);
        Self { per_kept: totals.count as f64 / totals.kept.max(1) as f64 }
    }
}

/// The times for which collections suspended all threads, nanoseconds.
struct CollectionPauses {
    sum_ns: f64,
    longest_ns: f64,
}

impl CollectionPauses {
    /// Those that the profile does not have are for collections as are those that it has.
    fn of(interval: &Profile) -> Self {
        let is_of_collection =
            |event: &&RuntimeEvent| text(interval, event, "Reason").starts_with("SuspendForGC");
        let all = || events(interval, RuntimeEventKind::Suspension);
        let pauses_ns = || all().filter(is_of_collection).map(|event| event.duration_ns);
        let totals = interval.runtime_event_totals(None, RuntimeEventKind::Suspension);
        let (kept_ns, all_kept_ns) = (sum::of(pauses_ns()), sum::of(all().map(|event| event.duration_ns)));
        let omitted_ns = totals.duration_ns.saturating_sub(all_kept_ns) as f64;
        let share = if all_kept_ns == 0 { 0.0 } else { kept_ns as f64 / all_kept_ns as f64 };
        let are_all_of_collections = pauses_ns().count() as u64 == totals.kept;
        let longest_ns = pauses_ns().max().unwrap_or_default();
        let longest_ns = if are_all_of_collections { totals.longest_ns } else { longest_ns };
        Self { sum_ns: kept_ns as f64 + omitted_ns * share, longest_ns: longest_ns as f64 }
    }
}

/// How often the pool got workers because those that it had did not proceed.
fn starvations(interval: &Profile) -> usize {
    interval.runtime_events().iter().filter(|event| event.is_pool_starvation(interval)).count()
}

/// The requests that the process served to their end.
fn served_requests(interval: &Profile) -> impl Iterator<Item = &RuntimeEvent> {
    let is_served = |event: &&RuntimeEvent| interval.string(event.name).starts_with(SERVER_PROVIDER);
    events(interval, RuntimeEventKind::Request).filter(is_served)
}

/// The smallest duration that at least 99 % of the events do not exceed, seconds; `None` without events.
fn percentile_99<'a>(events: impl Iterator<Item = &'a RuntimeEvent>) -> Option<f64> {
    let mut durations: Vec<_> = events.map(|event| event.duration_ns).collect();
    durations.sort_unstable();
    let rank = (durations.len() * 99).div_ceil(100).checked_sub(1)?;
    durations.get(rank).map(|duration_ns| *duration_ns as f64 / NS_PER_S)
}

fn text<'a>(interval: &'a Profile, event: &RuntimeEvent, field: &str) -> &'a str {
    match event.field(interval, field) {
        Some(FieldValue::Text(text)) => interval.string(text),
        _ => "",
    }
}

fn number(value: FieldValue) -> f64 {
    match value {
        FieldValue::Unsigned(number) => number as f64,
        FieldValue::Signed(number) => number as f64,
        FieldValue::Real(number) => number,
        FieldValue::Text(_) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{EventField, Header, OmittedEvents, ProfileBuilder, test_profile};

    use super::*;

    /// An event: kind, duration in milliseconds, fields with texts or numbers.
    type Described<'a> = (RuntimeEventKind, u64, &'a [(&'a str, Value<'a>)]);

    #[derive(Clone, Copy)]
    enum Value<'a> {
        Text(&'a str),
        Number(f64),
    }

    /// An interval of half a second with these events.
    fn interval(described: &[Described<'_>]) -> Profile {
        interval_of("Provider/Event", described)
    }

    fn interval_of(name: &str, described: &[Described<'_>]) -> Profile {
        interval_with(name, described, &[])
    }

    fn interval_with(name: &str, described: &[Described<'_>], omitted: &[RuntimeEventKind]) -> Profile {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        for (kind, milliseconds, fields) in described {
            let fields = fields.iter().map(|(name, value)| {
                let value = match value {
                    Value::Text(text) => FieldValue::Text(builder.string(text)),
                    Value::Number(number) => FieldValue::Real(*number),
                };
                EventField { name: builder.string(name), value }
            });
            let fields = fields.collect();
            let name = builder.string(name);
            let event = test_profile::runtime_event(&mut builder, process, *kind);
            let duration_ns = milliseconds * 1_000_000;
            builder.add_runtime_event(RuntimeEvent { duration_ns, name, fields, ..event });
        }
        for kind in omitted {
            builder.add_omitted_events(OmittedEvents {
                time_ns: 0,
                process,
                kind: *kind,
                count: 9,
                duration_ns: 200_000_000,
                longest_ns: 80_000_000,
                is_lower_bound: false,
            });
        }
        builder.finish(Header { duration_ns: 500_000_000, ..Header::default() })
    }

    fn values(
        runtime: &mut RuntimeValues,
        now_ns: u64,
        interval: &Profile,
        measures: &[Measure],
    ) -> Vec<Option<f64>> {
        let mut values = Values::default();
        runtime.read(interval, now_ns, &measures.iter().cloned().collect(), &mut values);
        measures.iter().map(|measure| values.get(measure)).collect()
    }

    #[test]
    fn pauses_rates_and_sizes_are_those_of_the_interval() {
        let suspended = |reason| [("Reason", Value::Text(reason))];
        let (for_gc, other) = (suspended("SuspendForGC"), suspended("SuspendForDebugger"));
        let (starved, blocked) = (suspended("Starvation"), suspended("CooperativeBlocking"));
        let sizes = [("GenerationSize0", Value::Number(100.0)), ("GenerationSize2", Value::Number(23.0))];
        let interval = interval(&[
            (RuntimeEventKind::Suspension, 50, &for_gc),
            (RuntimeEventKind::Suspension, 150, &for_gc),
            (RuntimeEventKind::Suspension, 400, &other),
            (RuntimeEventKind::Exception, 0, &[]),
            (RuntimeEventKind::PoolAdjustment, 0, &starved),
            (RuntimeEventKind::PoolAdjustment, 0, &blocked),
            (RuntimeEventKind::HeapSizes, 0, &sizes),
        ]);
        let measures = [
            Measure::GcPause,
            Measure::GcShare,
            Measure::Heap,
            Measure::Exceptions,
            Measure::Contention,
            Measure::PoolStarvation,
        ];
        let read = values(&mut RuntimeValues::default(), 1, &interval, &measures);
        assert_eq!(read, [Some(0.15), Some(0.4), Some(123.0), Some(2.0), Some(0.0), Some(4.0)]);
    }

    #[test]
    fn events_that_the_profile_does_not_have_count() {
        let [for_gc, starved] =
            ["SuspendForGC", "Starvation"].map(|reason| [("Reason", Value::Text(reason))]);
        let described: [Described<'_>; 3] = [
            (RuntimeEventKind::Suspension, 50, &for_gc),
            (RuntimeEventKind::Exception, 0, &[]),
            (RuntimeEventKind::PoolAdjustment, 0, &starved),
        ];
        let kinds = described.map(|(kind, ..)| kind);
        let interval = interval_with("Provider/Event", &described, &kinds);
        let measures = [Measure::GcPause, Measure::GcShare, Measure::Exceptions, Measure::PoolStarvation];
        let read = values(&mut RuntimeValues::default(), 1, &interval, &measures);
        assert_eq!(read, [Some(0.08), Some(0.5), Some(20.0), Some(20.0)]);
    }

    #[test]
    fn a_counter_has_its_last_value_until_it_is_too_old() {
        let queue = [("Name", Value::Text("threadpool-queue-length")), ("Mean", Value::Number(12.0))];
        let reported = interval(&[(RuntimeEventKind::Counter, 0, &queue)]);
        let silent = interval(&[]);
        let mut runtime = RuntimeValues::default();
        let measures = [Measure::PoolQueue, Measure::Counter { name: "threadpool-queue-length".to_owned() }];
        assert_eq!(values(&mut runtime, 1, &reported, &measures), [Some(12.0); 2]);
        assert_eq!(values(&mut runtime, 4_000_000_000, &silent, &measures), [Some(12.0); 2]);
        assert_eq!(values(&mut runtime, 6_000_000_000, &silent, &measures), [None; 2]);
        assert!(runtime.counters.is_empty());
    }

    #[test]
    fn served_requests_have_a_rate_and_a_percentile() {
        let request = |milliseconds| (RuntimeEventKind::Request, milliseconds, &[][..]);
        let described: Vec<_> = (1..=200).map(request).collect();
        let measures = [Measure::Requests, Measure::RequestTimeP99];
        let read = |described: &[Described<'_>]| {
            let interval = interval_of(&format!("{SERVER_PROVIDER}/RequestStart"), described);
            values(&mut RuntimeValues::default(), 1, &interval, &measures)
        };
        assert_eq!(read(&described), [Some(400.0), Some(0.198)]);
        assert_eq!(read(&described[..1]), [Some(2.0), Some(0.001)]);
        assert_eq!(read(&[]), [Some(0.0), None]);
        let sent = interval_of("System.Net.Http/RequestStart", &described);
        assert_eq!(values(&mut RuntimeValues::default(), 1, &sent, &measures), [Some(0.0), None]);
    }

    #[test]
    fn measures_need_the_events_that_report_them() {
        let measures =
            [Measure::Cpu, Measure::GcPause, Measure::Heap, Measure::Counter { name: "a".to_owned() }];
        assert_eq!(event_sets(&measures.into()), [EventSet::Collections, EventSet::Counters]);
    }
}
