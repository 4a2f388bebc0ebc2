//! Finds processes that throw many exceptions.

use profiler_profile::{Finding, FindingKind, RuntimeEvent, RuntimeEventKind};

use super::process_events::{ProcessEvents, most_frequent};
use crate::{frames::short, process::percent};

/// The least number of exceptions a second. An exception costs tens of microseconds and the stack is searched for its
/// handler; programs that throw for failures alone stay far below.
const MIN_PER_SECOND: f64 = 50.0;

/// The fewest exceptions. A program that starts can throw some at once.
const MIN_EXCEPTIONS: usize = 100;

/// The least share of the most frequent type that names it.
const MIN_TYPE_PERCENT: f64 = 20.0;

pub(super) fn find(events: &ProcessEvents<'_>) -> Option<Finding> {
    let exceptions: Vec<_> = events.of_kind(RuntimeEventKind::Exception).collect();
    let per_second = exceptions.len() as f64 / events.seconds();
    if exceptions.len() < MIN_EXCEPTIONS || per_second < MIN_PER_SECOND || !per_second.is_finite() {
        return None;
    }
    let type_of = |exception: &RuntimeEvent| events.text(exception, "ExceptionType");
    let types = exceptions.iter().filter_map(|exception| type_of(exception));
    let most = most_frequent(types).map(|(name, count, _)| (name, percent(count, exceptions.len() as u64)));
    let most = most.filter(|(_, share)| *share >= MIN_TYPE_PERCENT);
    let of_type: Vec<_> = match most {
        Some((name, _)) => exceptions.iter().copied().filter(|event| type_of(event) == Some(name)).collect(),
        None => exceptions,
    };
    let site = events.site(&of_type);
    let evidence = format!(
        "{per_second:.0} exceptions are thrown each second{}{}",
        most.map(|(name, share)| format!(", {share:.0} % of them {name}")).unwrap_or_default(),
        site.map(|site| format!(", most below {site}")).unwrap_or_default(),
    );
    let remedy = match site {
        Some(site) => format!("let {} return its failures as results, or test for them first", short(site)),
        None => "return expected failures as results, or test for them first".to_owned(),
    };
    Some(events.finding(FindingKind::Exceptions, &evidence, remedy, 0))
}
