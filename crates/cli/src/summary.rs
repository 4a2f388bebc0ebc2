//! Formats the summary of a profile for standard error: findings, samples, losses and hints.

use std::fmt::Write;

use profiler_profile::{
    Event, EventId, EventLedger, Ledger, MissedTick, Profile, Remedy, Sample, Sampling, StackEnd, sum,
};
use profiler_profile_formats::printable;

use super::{
    event_summary, findings_summary, hints, incident_summary, interpreter_summary, summary_details,
    summary_details::percent,
};

/// The most lines of a summary that is not verbose. More would hide those that matter.
const MAX_LINES: usize = 8;

/// What a summary contains beside samples and losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    /// Whether all lines are printed.
    pub(super) is_verbose: bool,
    /// Whether the findings are printed. A table on the terminal has them already.
    pub(super) has_findings: bool,
}

/// The summary of a profile: a few lines that begin with `profiler: `, its findings first. `view` is what pictures, pages and tables
/// show of it.
pub(super) fn text(profile: &Profile, view: &Profile, contents: Contents) -> String {
    let mut lines = Vec::new();
    if contents.has_findings || profile.findings().is_empty() {
        lines.extend(findings_summary::lines(profile, contents.is_verbose));
    }
    lines.extend(lines_of_events(profile, contents.is_verbose));
    lines.extend(lines_of_session(profile, view));
    if contents.is_verbose {
        lines.extend(summary_details::of_session(profile));
    } else {
        shorten(&mut lines);
    }
    lines.iter().fold(String::new(), |mut text, line| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "profiler: {}", printable(line));
        text
    })
}

/// Keeps the first lines, those that matter most.
fn shorten(lines: &mut Vec<String>) {
    let others = lines.len().saturating_sub(MAX_LINES);
    if others > 0 {
        lines.truncate(MAX_LINES - 1);
        lines.push(format!("{} more lines with -v", others + 1));
    }
}

/// The samples and losses of all events, then the warnings and details of each.
fn lines_of_events(profile: &Profile, is_verbose: bool) -> Vec<String> {
    let events = || profile.event_ids().zip(&profile.ledger().events);
    let samples = events().map(|(id, ledger)| samples(profile, id, ledger));
    let others = events().flat_map(|(id, ledger)| event_lines(profile, id, ledger, is_verbose));
    samples.chain(others).collect()
}

/// Hints and warnings on the whole measurement, and how the view differs from it.
fn lines_of_session(profile: &Profile, view: &Profile) -> Vec<String> {
    let (header, ledger) = (profile.header(), profile.ledger());
    let mut lines = Vec::new();
    if !header.edits.is_empty() {
        let shown = value_text(profile.first_event(), profile.total_value());
        lines.push(format!("shown: {shown}: {}", header.edits.join(", ")));
    }
    lines.extend(incident_summary::lines(profile));
    lines.extend(hints::of_waiting_target(profile));
    lines.extend(event_summary::line(profile));
    lines.extend(interpreter_summary::line(profile));
    lines.extend(hidden_idle(profile, view));
    lines.extend(missed_ticks(ledger));
    lines.extend(losses_beside_samples(ledger));
    lines
}

/// The losses of sideband events, processes and names.
fn losses_beside_samples(ledger: &Ledger) -> impl Iterator<Item = String> {
    let causes = [
        (
            ledger.lost_process_events,
            "sideband events (mmap, fork, exec) were lost: frames of short-lived processes can be unsymbolized",
        ),
        (
            ledger.late_process_events,
            "sideband events were applied too late: frames of short-lived processes can have wrong names",
        ),
        (ledger.lost_children, "child processes were not sampled: too many target processes"),
        (
            ledger.malformed_jit_entries,
            "malformed perf map lines, jitdump records and EventPipe events were skipped",
        ),
        (
            ledger.dropped_runtime_events,
            "EventPipe events were dropped: JIT frames can be unsymbolized, and runtime events are missing",
        ),
    ];
    causes.into_iter().filter(|(count, _)| *count > 0).map(|(count, effect)| format!("{count} {effect}"))
}

/// The samples and losses of an event.
fn samples(profile: &Profile, id: EventId, ledger: &EventLedger) -> String {
    let (header, event) = (profile.header(), profile.event(id));
    let name = prefix(profile, id);
    let unit = if let Sampling::Times { .. } = event.sampling { "" } else { " samples" };
    format!(
        "{name}{}{unit} in {} of {}, {}",
        amount(event, ledger.reported),
        seconds(header.duration_ns),
        header.target,
        losses(event, ledger)
    )
}

/// Warnings on the samples of an event, and their details in a verbose summary.
fn event_lines(profile: &Profile, id: EventId, ledger: &EventLedger, is_verbose: bool) -> Vec<String> {
    let event = profile.event(id);
    let mut lines = Vec::new();
    if let Some(cause) = ledger.why_empty(event) {
        lines.push(format!("no sample was taken: {cause} ({})", hints::of_no_sample(event)));
    } else if is_verbose {
        lines.extend(summary_details::of_event(ledger));
    }
    lines.extend(most_unsymbolized(event, ledger));
    lines.extend(overhead_limit(ledger));
    lines.extend(waits_without_stack(profile, id));
    lines.extend(short_waits(event, ledger));
    let name = prefix(profile, id);
    lines.iter().map(|line| format!("{name}{line}")).collect()
}

/// The name of an event before its lines, where there are several events.
fn prefix(profile: &Profile, id: EventId) -> String {
    if profile.events().len() > 1 { format!("{}: ", profile.event(id).name) } else { String::new() }
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

#[cfg(test)]
mod tests {
    use profiler_profile::{
        FoundBy, Header, Loss, ProfileBuilder, Reason, TimerTicks, UnsymbolizedFrames, test_profile,
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

    const VERBOSE: Contents = Contents { is_verbose: true, has_findings: true };
    const BRIEF: Contents = Contents { is_verbose: false, has_findings: true };

    fn text_of(profile: &Profile) -> String {
        text(profile, profile, VERBOSE)
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
    fn findings_are_the_first_lines_and_hidden_idle_samples_are_counted() {
        let mut profile = test_profile::with_finding();
        let view = ProfileBuilder::default().finish(Header::default());
        let findings = format!("profiler: findings:\nprofiler:   {}\n", test_profile::FINDING);
        let hidden = "profiler: 1 samples of idle threads are hidden (--show-idle)\n";
        for contents in [VERBOSE, BRIEF] {
            let text = text(&profile, &view, contents);
            assert!(text.starts_with(&findings) && text.contains(hidden), "{text}");
        }
        let without = text(&profile, &view, Contents { has_findings: false, ..BRIEF });
        assert!(!without.contains("findings") && !without.contains(test_profile::FINDING), "{without}");
        profile.set_findings(Vec::new());
        assert!(!text_of(&profile).contains("idle"));
    }

    #[test]
    fn stacks_frames_and_cost_are_in_verbose_summaries_alone() {
        let profile = test_profile::with_finding();
        let (verbose, brief) = (text(&profile, &profile, VERBOSE), text(&profile, &profile, BRIEF));
        for detail in ["profiler: stacks: ", "profiler: cost: "] {
            assert!(verbose.contains(detail) && !brief.contains(detail), "{verbose}{brief}");
        }
    }

    #[test]
    fn the_lines_of_several_events_have_their_names() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        builder.event(Event::at_frequency("wall", 49));
        let text = text_of(&builder.finish(Header::default()));
        for line in ["cpu-clock: 0 samples in ", "wall: 0 samples in ", "wall: no sample was taken: "] {
            assert!(text.contains(&format!("profiler: {line}")), "{text}");
        }
    }

    #[test]
    fn a_brief_summary_has_eight_lines_at_most() {
        let mut builder = ProfileBuilder::default();
        let ledger = builder.ledger_mut();
        ledger.lost_process_events = 1;
        ledger.late_process_events = 1;
        ledger.lost_children = 1;
        ledger.malformed_jit_entries = 1;
        ledger.dropped_runtime_events = 1;
        let mut profile = builder.finish(Header { edits: vec!["--focus a".to_owned()], ..Header::default() });
        profile.set_findings(vec![test_profile::with_finding().findings()[0].clone(); 2]);
        let text = text(&profile, &profile, BRIEF);
        assert_eq!(text.lines().count(), MAX_LINES, "{text}");
        assert!(text.ends_with("profiler: 4 more lines with -v\n"), "{text}");
        assert_eq!(text_of(&profile).lines().count(), MAX_LINES + 3 + 1, "the cost, too");
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
