//! Finds processes that throw many exceptions.

use profiler_profile::{FindingFacts, FindingKind, RuntimeEvent, RuntimeEventKind, Whole};

use super::process_events::{ProcessEvents, most_frequent};
use crate::{
    facts::share,
    found::Found,
    frames::{application_frames, function, own_frames, short},
    pattern::matches_any,
    rules::RETHROWS,
    thread_group::percent,
};

/// The least number of exceptions a second. An exception costs tens of microseconds and the stack is searched for its
/// handler; programs that throw for failures alone stay far below.
const MIN_PER_SECOND: f64 = 50.0;

/// The fewest exceptions. A program that starts can throw some at once.
const MIN_EXCEPTIONS: f64 = 100.0;

/// The least share of the most frequent type that names it.
const MIN_TYPE_PERCENT: f64 = 20.0;

/// The flag of an exception that a handler throws again (`ExceptionThrown` in `ClrEtwAll.man`: `IsReThrown`).
const RETHROWN: u64 = 4;

pub(super) fn find<'a>(events: &ProcessEvents<'a>) -> Option<Found<'a>> {
    let all = events.of_kind(RuntimeEventKind::Exception);
    let (again, first): (Vec<_>, Vec<_>) = all.partition(|exception| is_rethrow(events, exception));
    // An exception that a task has without a throw is thrown by those that await it alone.
    let (exceptions, is_again) = if first.is_empty() { (again.clone(), true) } else { (first, false) };
    let count = |kept| events.estimated_count(RuntimeEventKind::Exception, kept);
    let per_second = |kept| count(kept).divided_by(events.seconds());
    let all = exceptions.len();
    let rate = per_second(all);
    let is_often = rate.number >= MIN_PER_SECOND && rate.number.is_finite();
    if count(all).number < MIN_EXCEPTIONS || !is_often {
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
    let thrown = if is_again { "thrown again by those that await a task" } else { "thrown" };
    let others = if is_again || again.is_empty() {
        String::new()
    } else {
        format!("; those that await or catch them throw {:.0} again", per_second(again.len()))
    };
    let evidence = format!(
        "{rate:.0} exceptions are {thrown} each second{}{}{others}",
        most.map(|(name, share)| format!(", {share:.0} % of them {name}")).unwrap_or_default(),
        site.map(|site| format!(", most below {site}")).unwrap_or_default(),
    );
    let remedy = match site {
        Some(site) => format!("let {} return its failures as results, or test for them first", short(site)),
        None => "return expected failures as results, or test for them first".to_owned(),
    };
    let facts = FindingFacts {
        share: most.and_then(|(_, percent)| share(percent, Whole::RuntimeEvents)),
        ..events.facts(RuntimeEventKind::Exception, &of_type, site)
    };
    Some(events.finding(FindingKind::Exceptions, &evidence, remedy, 0, facts).below(site))
}

/// Whether an exception was thrown before: by its flag, or by the functions between the throw and the application.
fn is_rethrow(events: &ProcessEvents<'_>, exception: &RuntimeEvent) -> bool {
    if events.number(exception, "ExceptionFlags").is_some_and(|flags| flags & RETHROWN != 0) {
        return true;
    }
    let Some(stack) = exception.stack.map(|stack| events.profile.stack(stack)) else { return false };
    let own = own_frames(events.profile, stack);
    let callees = application_frames(events.profile, stack).next().unwrap_or(own.len());
    let names = own.iter().take(callees).map(|id| function(events.profile, events.profile.frame(*id)));
    names.into_iter().any(|name| matches_any(RETHROWS, name))
}
