//! Formats the summary of a profile for standard error: samples, losses, stacks, frames and the profiler's own cost.

use std::fmt::Write;

use profiler_profile::{
    Event, EventId, EventLedger, EventSessionCause, FoundBy, Ledger, MissedTick, Profile, Remedy, Sample,
    Sampling, StackEnd, sum,
};
use profiler_profile_formats::printable;

use super::{event_summary, incident_summary, interpreter_summary};

/// The summary of a profile: a few lines that begin with `profiler: `. `view` is what pictures, pages and tables show of
/// it.
pub(super) fn text(profile: &Profile, view: &Profile) -> String {
    let (header, ledger) = (profile.header(), profile.ledger());
    let mut lines = Vec::new();
    for (id, of_event) in profile.event_ids().zip(&ledger.events) {
        lines.extend(event_lines(profile, id, of_event));
    }
    if !header.edits.is_empty() {
        let shown = value_text(profile.first_event(), profile.total_value());
        lines.push(format!("shown: {shown}: {}", header.edits.join(", ")));
    }
    lines.extend(incident_summary::lines(profile));
    lines.extend(event_summary::line(profile));
    lines.extend(missed_ticks(ledger));
    if ledger.lost_process_events > 0 {
        lines.push(format!(
            "{} sideband events (mmap, fork, exec) were lost: frames of short-lived processes can be unsymbolized",
            ledger.lost_process_events
        ));
    }
    if ledger.late_process_events > 0 {
        lines.push(format!(
            "{} sideband events were applied too late: frames of short-lived processes can have wrong names",
            ledger.late_process_events
        ));
    }
    if ledger.lost_children > 0 {
        lines.push(format!(
            "{} child processes were not sampled: too many target processes",
            ledger.lost_children
        ));
    }
    if ledger.malformed_jit_entries > 0 {
        lines.push(format!(
            "{} malformed perf map lines, jitdump records and EventPipe events were skipped",
            ledger.malformed_jit_entries
        ));
    }
    if ledger.dropped_runtime_events > 0 {
        lines.push(format!(
            "{} EventPipe events were dropped: JIT frames can be unsymbolized, and runtime events are missing",
            ledger.dropped_runtime_events
        ));
    }
    lines.extend(event_sessions(ledger));
    lines.extend(interpreter_summary::line(profile));
    lines.push(cost(&profile.events().collect::<Vec<_>>(), ledger));
    lines.extend(hidden_idle(profile, view));
    lines.extend(profile.findings().iter().map(ToString::to_string));
    lines.iter().fold(String::new(), |mut text, line| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "profiler: {}", printable(line));
        text
    })
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

/// The lines of an event: samples and losses, ends of stacks, sources of symbols.
fn event_lines(profile: &Profile, id: EventId, ledger: &EventLedger) -> Vec<String> {
    let (header, event) = (profile.header(), profile.event(id));
    let name = if profile.events().len() > 1 { format!("{}: ", event.name) } else { String::new() };
    let unit = if let Sampling::Times { .. } = event.sampling { "" } else { " samples" };
    let mut lines = vec![format!(
        "{name}{}{unit} in {} of {}, {}",
        amount(event, ledger.reported),
        seconds(header.duration_ns),
        header.target,
        losses(event, ledger)
    )];
    if let Some(cause) = ledger.why_empty(event) {
        lines.push(format!("no sample was taken: {cause} (with -p, children need --children)"));
    } else {
        lines.push(stacks(ledger));
        lines.extend(frames(ledger));
        lines.extend(most_unsymbolized(event, ledger));
    }
    lines.extend(overhead_limit(ledger));
    lines.extend(waits_without_stack(profile, id));
    lines.extend(short_waits(event, ledger));
    lines
}

/// The time of the waits whose stacks were not captured, to stay below the overhead limit.
fn waits_without_stack(profile: &Profile, id: EventId) -> Option<String> {
    let Sampling::Durations { .. } = profile.event(id).sampling else { return None };
    let sum_of = |is_summed: &dyn Fn(&&Sample) -> bool| {
        sum::of(profile.samples_of(id).filter(is_summed).map(|sample| sample.value))
    };
    let without = sum_of(&|sample| profile.stack(sample.stack).end == StackEnd::Empty);
    (without > 0).then(|| {
        let share = percent(without, sum_of(&|_| true));
        format!("{share} of the time of waits has no stack: the BPF programs reached --max-overhead (raise it, or --min-block)")
    })
}

/// The waits that were too short for a sample.
fn short_waits(event: &Event, ledger: &EventLedger) -> Option<String> {
    const NS_PER_MS: f64 = 1e6;
    let Sampling::Durations { min_ns } = event.sampling else { return None };
    (ledger.short_waits > 0).then(|| {
        format!(
            "{} waits shorter than {} ms, {} in all, have no sample (--min-block)",
            ledger.short_waits,
            min_ns as f64 / NS_PER_MS,
            seconds(ledger.short_waits_ns)
        )
    })
}

/// The number of samples of idle threads that the view does not have.
fn hidden_idle(profile: &Profile, view: &Profile) -> Option<String> {
    let samples = |profile: &Profile| {
        let counts =
            profile.samples().iter().map(|sample| profile.event(sample.event).sample_count(sample.value));
        sum::of(counts)
    };
    let hidden = samples(profile) - samples(view);
    (hidden > 0).then(|| format!("{hidden} samples of idle threads are hidden (--show-idle)"))
}

/// A value with its unit: samples, or seconds.
fn value_text(event: &Event, value: u64) -> String {
    match event.sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => seconds(value),
        Sampling::Occurrences { .. } => format!("{value} occurrences"),
        Sampling::Sums { .. } => format!("a sum of {value}"),
        _ => format!("{value} samples"),
    }
}

fn seconds(ns: u64) -> String {
    const NS_PER_S: f64 = 1e9;
    format!("{:.1} s", ns as f64 / NS_PER_S)
}

/// What the ledger has of an event: a number of samples, or a time.
fn amount(event: &Event, count: u64) -> String {
    match event.sampling {
        Sampling::Times { .. } => seconds(count),
        _ => count.to_string(),
    }
}

fn losses(event: &Event, ledger: &EventLedger) -> String {
    if !ledger.adds_up() {
        let found = ledger.reported.saturating_add(ledger.lost_total());
        return format!("{} of {} ticks are not accounted for", ledger.due.abs_diff(found), ledger.due);
    }
    if ledger.lost.is_empty() {
        return "0 lost".to_owned();
    }
    let named = ledger.lost.iter().map(|(loss, count)| format!("{} lost ({loss})", amount(event, *count)));
    named.collect::<Vec<_>>().join(", ")
}

/// The ticks of busy CPUs that were missed, if they are more than a percent.
fn missed_ticks(ledger: &Ledger) -> Option<String> {
    let causes = ledger.timer.missed.iter().filter(|(cause, _)| **cause != MissedTick::IdleCpu);
    let missed = causes.clone().fold(0_u64, |missed, (_, count)| missed.saturating_add(*count));
    let due = ledger.timer.due;
    if missed.saturating_mul(100) <= due {
        return None;
    }
    let causes = causes.map(|(cause, count)| format!("{count} {cause}"));
    Some(format!("{missed} of {due} timer ticks were missed: {}", causes.collect::<Vec<_>>().join("; ")))
}

/// What was done to stay below the overhead limit.
fn overhead_limit(ledger: &EventLedger) -> Option<String> {
    let (skipped, cut) = (ledger.skipped_ticks, ledger.cut_stacks);
    let mut effects = Vec::new();
    if skipped > 0 {
        effects.push(format!("{skipped} skipped ticks are in the weight of later samples"));
    }
    if cut > 0 {
        effects.push(format!("{cut} stacks were cut"));
    }
    let effects = (!effects.is_empty()).then(|| effects.join(", "))?;
    Some(format!("{effects}: the BPF programs reached --max-overhead (lower -F, or raise it)"))
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

/// The module and reason with the most unsymbolized frames, and the remedy.
fn most_unsymbolized(event: &Event, ledger: &EventLedger) -> Option<String> {
    let (worst, count) = ledger.worst_unnamed()?;
    let module = match worst.module.as_str() {
        "" => String::new(),
        module => format!(" in {module}"),
    };
    let remedy = worst.remedy().map(|remedy| format!(": {}", instruction(&remedy))).unwrap_or_default();
    let count = amount(event, count);
    Some(format!("most unsymbolized frames: {count}{module}, {}{remedy}", worst.reason))
}

/// The text of a remedy with the options of the command line.
fn instruction(remedy: &Remedy) -> String {
    let Remedy::ProvideDebugFile { debug_file, symbol_server } = remedy else { return remedy.to_string() };
    let beside = format!("put its debug file {debug_file} beside it");
    match symbol_server {
        Some(server) => format!("{beside}, or use --debug-dir DIR or --symbol-server {server}"),
        None => format!("{beside}, or use --debug-dir DIR"),
    }
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

fn percent(count: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use profiler_profile::{
        Header, Loss, ProfileBuilder, Reason, TimerTicks, UnsymbolizedFrames, test_profile,
    };

    use super::*;

    fn summary(edit: impl FnOnce(&mut EventLedger)) -> String {
        let mut builder = ProfileBuilder::default();
        edit(builder.event_ledger_mut(EventId::FIRST));
        summary_of(builder)
    }

    fn session_summary(edit: impl FnOnce(&mut Ledger)) -> String {
        let mut builder = ProfileBuilder::default();
        edit(builder.ledger_mut());
        summary_of(builder)
    }

    fn summary_of(builder: ProfileBuilder) -> String {
        let header = Header { target: "pid 1 (a\u{1b}[31m)".to_owned(), ..Header::default() };
        text_of(&builder.finish(header))
    }

    fn text_of(profile: &Profile) -> String {
        text(profile, profile)
    }

    #[test]
    fn no_control_character_of_a_name_reaches_the_terminal() {
        assert!(!summary(|_| {}).contains('\u{1b}'));
    }

    #[test]
    fn a_profile_without_samples_has_a_likely_cause() {
        assert!(summary(|_| {}).contains("--children"));
    }

    #[test]
    fn filters_are_listed() {
        let header = Header { edits: vec!["--focus a".to_owned()], ..Header::default() };
        let text = text_of(&ProfileBuilder::default().finish(header));
        assert!(text.contains("profiler: shown: 0 samples: --focus a\n"), "{text}");
    }

    #[test]
    fn hidden_idle_samples_are_counted_and_findings_are_the_last_lines() {
        let mut profile = test_profile::with_finding();
        let view = ProfileBuilder::default().finish(Header::default());
        let hidden = "profiler: 1 samples of idle threads are hidden (--show-idle)\n";
        let finding = format!("profiler: {}\n", test_profile::FINDING);
        let text = text(&profile, &view);
        assert!(text.ends_with(&format!("{hidden}{finding}")), "{text}");
        profile.set_findings(Vec::new());
        assert!(!text_of(&profile).contains("idle"));
    }

    #[test]
    fn an_event_of_times_has_seconds_in_place_of_samples() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event { name: "syscall-time".to_owned(), sampling: Sampling::Times { period: 1 } });
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        builder.sample(0, 0, thread, stack, 2_500_000_000);
        builder.event_ledger_mut(EventId::FIRST).lost.insert(Loss::Nested, 1_500_000_000);
        let text = summary_of(builder);
        assert!(
            text.contains("profiler: 2.5 s in 0.0 s of pid 1") && text.contains("1.5 s lost ("),
            "{text}"
        );
        assert!(text.contains(" s in the kernel\n"), "{text}");
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let text = summary(|ledger| {
            ledger.lost.extend([(Loss::RingBufferFull, u64::MAX), (Loss::NoThreadId, 1)]);
            ledger.found_by.extend([(FoundBy::Cfi, u64::MAX), (FoundBy::EpilogueScan, u64::MAX)]);
        });
        assert!(text.contains("18446744073709551615 lost (ring buffer full"), "{text}");
        let text = session_summary(|ledger| {
            (ledger.cost.user_cpu_ns, ledger.cost.system_cpu_ns) = (u64::MAX, 1);
        });
        assert!(text.contains("cost: 18446744073.71 s CPU"), "{text}");
    }

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
    fn lost_samples_have_their_cause() {
        let text = summary(|ledger| {
            ledger.lost.insert(Loss::RingBufferFull, 3);
        });
        assert!(text.contains("3 lost (ring buffer full"), "{text}");
    }

    #[test]
    fn waits_without_a_sample_or_a_stack_are_counted() {
        let event = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 1_000_000 } };
        assert_eq!(short_waits(&event, &EventLedger::default()), None);
        let ledger = EventLedger { short_waits: 7, short_waits_ns: 2_100_000_000, ..EventLedger::default() };
        let expected = "7 waits shorter than 1 ms, 2.1 s in all, have no sample (--min-block)";
        assert_eq!(short_waits(&event, &ledger).unwrap(), expected);
        let ticks = Event::at_frequency("wall", 49);
        assert_eq!(short_waits(&ticks, &ledger), None);
        let without_stack = |event: Event, values: &[(StackEnd, u64)]| {
            let mut builder = ProfileBuilder::default();
            builder.event(event);
            let process = builder.process(1, "a");
            let thread = builder.thread(process, 1, "a");
            for (end, value) in values {
                let stack = builder.stack(Vec::new(), *end);
                builder.sample(0, 0, thread, stack, *value);
            }
            waits_without_stack(&builder.finish(Header::default()), EventId::FIRST)
        };
        let both = [(StackEnd::Root, 900), (StackEnd::Empty, 100)];
        let text = without_stack(event.clone(), &both).unwrap();
        assert!(text.starts_with("10.0 % of the time of waits has no stack"), "{text}");
        assert_eq!(without_stack(event, &both[..1]), None);
        assert_eq!(without_stack(ticks, &both), None);
    }

    #[test]
    fn missed_ticks_are_reported_when_they_are_more_than_a_percent() {
        let text = |missed| {
            session_summary(|ledger| {
                let missed = [(MissedTick::Throttled, missed)].into();
                ledger.timer = TimerTicks { due: 1_000, missed };
            })
        };
        assert!(!text(10).contains("missed"));
        assert!(text(11).contains("11 of 1000 timer ticks were missed: 11 throttled"), "{}", text(11));
    }

    #[test]
    fn the_effects_of_the_overhead_limit_are_reported() {
        let text = |skipped_ticks, cut_stacks| {
            summary(|ledger| {
                ledger.skipped_ticks = skipped_ticks;
                ledger.cut_stacks = cut_stacks;
            })
        };
        assert!(!text(0, 0).contains("--max-overhead"));
        assert!(
            text(3, 0)
                .contains("3 skipped ticks are in the weight of later samples: the BPF programs reached")
        );
        assert!(
            text(3, 4).contains("later samples, 4 stacks were cut: the BPF programs reached --max-overhead")
        );
    }

    #[test]
    fn a_ledger_that_does_not_add_up_is_reported() {
        assert!(summary(|ledger| ledger.due = 5).contains("5 of 5 ticks are not accounted for"));
    }

    #[test]
    fn frames_without_a_source_have_no_empty_parentheses() {
        let mut ledger = EventLedger::default();
        assert_eq!(frames(&ledger), None);
        let unsymbolized = UnsymbolizedFrames { module: "a".to_owned(), reason: Reason::NoSymbols };
        ledger.unsymbolized.insert(unsymbolized, 3);
        assert_eq!(frames(&ledger).unwrap(), "frames: 0.0 % symbolized");
    }

    #[test]
    fn the_most_unsymbolized_module_has_its_remedy() {
        let frames = UnsymbolizedFrames { module: "/rt/libcoreclr.so".to_owned(), reason: Reason::NoSymbols };
        let mut ledger = EventLedger { reported: 1, ..EventLedger::default() };
        ledger.unsymbolized.insert(frames, 412);
        let text = most_unsymbolized(&Event::at_frequency("cpu-clock", 99), &ledger).unwrap();
        assert!(text.starts_with("most unsymbolized frames: 412 in /rt/libcoreclr.so, no symbols"), "{text}");
        assert!(text.contains("libcoreclr.so.dbg") && text.contains("--debug-dir"), "{text}");
        assert!(text.ends_with("--symbol-server microsoft"), "{text}");
    }
}
