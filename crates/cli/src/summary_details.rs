//! Formats what the summary of a profile has with `-v`: stacks, frames, event sessions and the profiler's own cost.

use std::fmt::Write;

use profiler_profile::{Event, EventLedger, EventSessionCause, FoundBy, Ledger, Profile, Sampling, sum};

/// The ends of the stacks of an event and how they were unwound, and the sources of its symbols.
pub(super) fn of_event(ledger: &EventLedger) -> Vec<String> {
    std::iter::once(stacks(ledger)).chain(frames(ledger)).collect()
}

/// How methods got their names, and the resources that the profiler used.
pub(super) fn of_session(profile: &Profile) -> Vec<String> {
    let cost = cost(&profile.events().collect::<Vec<_>>(), profile.ledger());
    event_sessions(profile.ledger()).into_iter().chain([cost]).collect()
}

/// A part of a number, in percent.
pub(super) fn percent(count: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64)
}

/// Why .NET runtimes were asked for the events of their methods.
fn event_sessions(ledger: &Ledger) -> Option<String> {
    let of_cause = |(cause, processes): (&EventSessionCause, &u64)| match processes {
        1 => cause.to_string(),
        _ => format!("{processes} processes: {cause}"),
    };
    let causes = ledger.event_sessions.iter().map(of_cause).collect::<Vec<_>>().join(", ");
    (!causes.is_empty())
        .then(|| format!("names of .NET methods are from the events of their runtime: {causes}"))
}

fn stacks(ledger: &EventLedger) -> String {
    let parts =
        ledger.stacks.iter().map(|(end, count)| format!("{} {end}", percent(*count, ledger.reported)));
    format!("stacks: {}{}", parts.collect::<Vec<_>>().join(", "), unwind_methods(ledger))
}

/// The shares of the methods by which user frames were unwound; empty if no frame was.
fn unwind_methods(ledger: &EventLedger) -> String {
    let count = |found_by| ledger.found_by.get(&found_by).copied().unwrap_or_default();
    let total = sum::of(UNWIND_METHODS.iter().map(|(found_by, _)| count(*found_by)));
    let always = [FoundBy::Cfi, FoundBy::FramePointer];
    let used =
        UNWIND_METHODS.iter().filter(|(found_by, _)| always.contains(found_by) || count(*found_by) > 0);
    let shares = used.map(|(found_by, method)| format!("{} {method}", percent(count(*found_by), total)));
    if total == 0 {
        return String::new();
    }
    format!("; frames unwound: {}", shares.collect::<Vec<_>>().join(", "))
}

/// How user frames are unwound, in the order of the summary.
const UNWIND_METHODS: [(FoundBy, &str); 4] = [
    (FoundBy::Cfi, "by CFI"),
    (FoundBy::FramePointer, "by frame pointer"),
    (FoundBy::Instructions, "by instructions"),
    (FoundBy::EpilogueScan, "by epilogue scan"),
];

/// The share of symbolized frames by source; `None` without frames.
fn frames(ledger: &EventLedger) -> Option<String> {
    let total = ledger.symbolized_total().saturating_add(ledger.unsymbolized_total());
    let sources: Vec<_> = ledger
        .symbolized
        .iter()
        .map(|(source, count)| format!("{} {source}", percent(*count, total)))
        .collect();
    let sources = if sources.is_empty() { String::new() } else { format!(" ({})", sources.join(", ")) };
    (total > 0).then(|| format!("frames: {} symbolized{sources}", percent(ledger.symbolized_total(), total)))
}

fn cost(events: &[&Event], ledger: &Ledger) -> String {
    const NS_PER_S: f64 = 1e9;
    const NS_PER_US: f64 = 1e3;
    const BYTES_PER_MB: f64 = 1e6;
    let cost = &ledger.cost;
    let mut text = format!(
        "cost: {:.2} s CPU (user {:.2}, system {:.2}), {:.1} MB peak memory",
        cost.user_cpu_ns.saturating_add(cost.system_cpu_ns) as f64 / NS_PER_S,
        cost.user_cpu_ns as f64 / NS_PER_S,
        cost.system_cpu_ns as f64 / NS_PER_S,
        cost.peak_memory_bytes as f64 / BYTES_PER_MB
    );
    let reported = sum::of(ledger.events.iter().map(|event| event.reported));
    let has_samples =
        |event: &&Event| !event.sampling.has_sums() && !matches!(event.sampling, Sampling::Durations { .. });
    if !events.iter().all(has_samples) {
        // The programs run at each switch, whether it begins or ends a sample or none; sums are no number of samples.
        let _ = write!(text, ", {:.2} s in the kernel", cost.bpf_run_time_ns as f64 / NS_PER_S);
    } else if reported > 0 {
        let per_sample = cost.bpf_run_time_ns as f64 / reported as f64 / NS_PER_US;
        // Writing to a String cannot fail.
        let _ = write!(text, ", {per_sample:.1} us in the kernel for each sample");
    }
    text
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Reason, UnsymbolizedFrames};

    use super::*;

    #[test]
    fn unwind_methods_have_their_shares() {
        let mut ledger = EventLedger::default();
        assert_eq!(unwind_methods(&ledger), "");
        ledger.found_by.extend([(FoundBy::Cfi, 3), (FoundBy::FramePointer, 1)]);
        assert_eq!(unwind_methods(&ledger), "; frames unwound: 75.0 % by CFI, 25.0 % by frame pointer");
        ledger.found_by.insert(FoundBy::EpilogueScan, 4);
        assert!(unwind_methods(&ledger).ends_with(", 50.0 % by epilogue scan"));
    }

    #[test]
    fn frames_without_a_source_have_no_empty_parentheses() {
        let mut ledger = EventLedger::default();
        assert_eq!(frames(&ledger), None);
        let unsymbolized = UnsymbolizedFrames { module: "a".to_owned(), reason: Reason::NoSymbols };
        ledger.unsymbolized.insert(unsymbolized, 3);
        assert_eq!(frames(&ledger).unwrap(), "frames: 0.0 % symbolized");
    }
}
