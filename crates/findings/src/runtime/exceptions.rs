//! Finds processes that throw many exceptions.

use std::collections::BTreeMap;

use profiler_profile::{FindingFacts, FindingKind, RuntimeEvent, RuntimeEventKind, Whole};

use super::{estimates::Estimate, process_events::ProcessEvents};
use crate::{
    facts::share,
    found::Found,
    frames::{application_frames, function, own_frames, short},
    pattern::matches_any,
    rules::RETHROWS,
};

/// The least number of exceptions a second. An exception costs tens of microseconds and the stack is searched for its
/// handler; programs that throw for failures alone stay far below.
const MIN_PER_SECOND: f64 = 50.0;

/// The fewest exceptions. A program that starts can throw some at once.
const MIN_EXCEPTIONS: f64 = 100.0;

/// The least share of the most frequent type that names it.
const MIN_TYPE_PERCENT: f64 = 20.0;

/// The field with the type.
const TYPE: &str = "ExceptionType";

/// The flag of an exception that a handler throws again (`ExceptionThrown` in `ClrEtwAll.man`: `IsReThrown`).
const RETHROWN: u64 = 4;

pub(super) fn find<'a>(events: &ProcessEvents<'a>) -> Option<Found<'a>> {
    let all = events.weighted(RuntimeEventKind::Exception, TYPE);
    let kept = all.len();
    let (again, first): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(exception, _)| is_rethrow(events, exception));
    // An exception that a task has without a throw is thrown by those that await it alone.
    let (exceptions, is_again) = if first.is_empty() { (again.clone(), true) } else { (first, false) };
    let totals = events.totals(RuntimeEventKind::Exception);
    let count = |part: &[(&RuntimeEvent, f64)]| Estimate::of_part(weight(part), part.len() < kept, totals);
    let per_second = |part: &[_]| count(part).divided_by(events.seconds());
    let rate = per_second(&exceptions);
    let is_often = rate.number >= MIN_PER_SECOND && rate.number.is_finite();
    if count(&exceptions).number < MIN_EXCEPTIONS || !is_often {
        return None;
    }
    let most = most_frequent_type(events, &exceptions);
    let of_type = exceptions.iter().map(|(event, _)| *event);
    let of_type: Vec<_> = match most {
        Some((name, _)) => of_type.filter(|event| events.text(event, TYPE) == Some(name)).collect(),
        None => of_type.collect(),
    };
    let about = if totals.count > totals.kept || totals.is_lower_bound { "about " } else { "" };
    let site = events.site(&of_type);
    let thrown = if is_again { "thrown again by those that await a task" } else { "thrown" };
    let others = if is_again || again.is_empty() {
        String::new()
    } else {
        format!("; those that await or catch them throw {:.0} again", per_second(&again))
    };
    let evidence = format!(
        "{rate:.0} exceptions are {thrown} each second{}{}{others}",
        most.map(|(name, share)| format!(", {about}{share:.0} % of them {name}")).unwrap_or_default(),
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

/// The number of events that these represent.
fn weight(events: &[(&RuntimeEvent, f64)]) -> f64 {
    events.iter().map(|(_, weight)| weight).sum()
}

/// The type of most exceptions and its share, if this names it.
fn most_frequent_type<'a>(
    events: &ProcessEvents<'a>,
    exceptions: &[(&RuntimeEvent, f64)],
) -> Option<(&'a str, f64)> {
    let mut types = BTreeMap::<&str, f64>::new();
    for (exception, weight) in exceptions {
        if let Some(name) = events.text(exception, TYPE) {
            *types.entry(name).or_default() += weight;
        }
    }
    let (name, of_type) = types.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let share = 100.0 * of_type / weight(exceptions);
    (share >= MIN_TYPE_PERCENT).then_some((name, share))
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
