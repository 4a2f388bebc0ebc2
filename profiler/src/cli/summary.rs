//! What is said at the end, on standard error: the ledger in words.

use std::fmt::Write;

use profiler_profile::{FoundBy, Ledger, Profile};
use profiler_profile_formats::printable;

/// An error and its causes in one line.
pub(super) fn one_line(error: &anyhow::Error) -> String {
    printable(&format!("{error:#}")).into_owned()
}

/// The summary of a profile, a few lines.
pub(super) fn text(profile: &Profile) -> String {
    const NS_PER_S: f64 = 1e9;
    let (header, ledger) = (profile.header(), profile.ledger());
    let mut lines = vec![format!(
        "{} samples in {:.1} s of {}, {}",
        ledger.reported,
        header.duration_ns as f64 / NS_PER_S,
        header.target,
        losses(ledger)
    )];
    if !header.edits.is_empty() {
        lines.push(format!("shown: {} samples: {}", profile.sample_count(), header.edits.join(", ")));
    }
    if let Some(why) = ledger.why_empty() {
        lines.push(format!("no sample was taken: {why}"));
    } else {
        lines.push(stacks(ledger));
        lines.push(frames(ledger));
        lines.extend(gaps(ledger));
    }
    if ledger.lost_process_events > 0 {
        lines.push(format!(
            "{} mapping and fork events were lost: some short-lived processes may have no names",
            ledger.lost_process_events
        ));
    }
    if ledger.lost_children > 0 {
        lines.push(format!("{} child processes could not be followed", ledger.lost_children));
    }
    if ledger.malformed_jit_entries > 0 {
        lines.push(format!(
            "{} lines and events of the target's runtime were no entries",
            ledger.malformed_jit_entries
        ));
    }
    if ledger.dropped_runtime_events > 0 {
        lines.push(format!(
            "{} events of the target's runtime were dropped: some of its code may have no name",
            ledger.dropped_runtime_events
        ));
    }
    lines.push(cost(ledger));
    lines.iter().fold(String::new(), |mut text, line| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "profiler: {}", printable(line));
        text
    })
}

fn losses(ledger: &Ledger) -> String {
    if !ledger.adds_up() {
        let found = ledger.reported.saturating_add(ledger.lost_total());
        return format!(
            "{} of {} ticks are not accounted for",
            ledger.target_ticks.abs_diff(found),
            ledger.target_ticks
        );
    }
    if ledger.lost.is_empty() {
        return "0 lost".to_owned();
    }
    let named = ledger.lost.iter().map(|(loss, count)| format!("{count} lost ({loss})"));
    named.collect::<Vec<_>>().join(", ")
}

fn stacks(ledger: &Ledger) -> String {
    let parts =
        ledger.stacks.iter().map(|(end, count)| format!("{} {end}", percent(*count, ledger.reported)));
    format!("stacks: {}{}", parts.collect::<Vec<_>>().join(", "), callers(ledger))
}

/// How user code's callers were found, where there are some.
fn callers(ledger: &Ledger) -> String {
    let count = |found_by| ledger.found_by.get(&found_by).copied().unwrap_or_default();
    let (tables, pointers, code) = (count(FoundBy::Cfi), count(FoundBy::FramePointer), count(FoundBy::Code));
    let total = tables.saturating_add(pointers).saturating_add(code);
    if total == 0 {
        return String::new();
    }
    let by_code = if code == 0 { String::new() } else { format!(", {} by their code", percent(code, total)) };
    format!(
        "; callers: {} by unwind tables, {} by frame pointer{by_code}",
        percent(tables, total),
        percent(pointers, total)
    )
}

fn frames(ledger: &Ledger) -> String {
    let total = ledger.named_total().saturating_add(ledger.unnamed_total());
    let sources = ledger.named.iter().map(|(source, count)| format!("{} {source}", percent(*count, total)));
    format!(
        "frames: {} named ({})",
        percent(ledger.named_total(), total),
        sources.collect::<Vec<_>>().join(", ")
    )
}

/// The largest gap and what would close it.
fn gaps(ledger: &Ledger) -> Option<String> {
    let (worst, count) = ledger.worst_unnamed()?;
    let place = match worst.module.as_str() {
        "" => String::new(),
        module => format!(" in {module}"),
    };
    let remedy = worst.remedy().map(|remedy| format!(": {remedy}")).unwrap_or_default();
    Some(format!("largest gap: {count} frames{place}, {}{remedy}", worst.reason))
}

fn cost(ledger: &Ledger) -> String {
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
    if ledger.reported > 0 {
        let per_sample = cost.bpf_run_time_ns as f64 / ledger.reported as f64 / NS_PER_US;
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
    use super::*;
    use profiler_profile::{Header, Loss, ProfileBuilder, Reason, UnsymbolizedFrames};

    fn summary(edit: impl FnOnce(&mut Ledger)) -> String {
        let mut builder = ProfileBuilder::default();
        edit(builder.ledger_mut());
        text(&builder.finish(Header { target: "pid 1 (a\u{1b}[31m)".to_owned(), ..Header::default() }))
    }

    #[test]
    fn no_escape_of_a_name_reaches_the_terminal() {
        assert!(!summary(|_| {}).contains('\u{1b}'));
    }

    #[test]
    fn a_session_without_samples_says_why_that_may_be() {
        assert!(summary(|_| {}).contains("--children"));
    }

    #[test]
    fn what_is_shown_of_it_is_said() {
        let header = Header { edits: vec!["--focus a".to_owned()], ..Header::default() };
        let text = text(&ProfileBuilder::default().finish(header));
        assert!(text.contains("profiler: shown: 0 samples: --focus a\n"), "{text}");
    }

    #[test]
    fn numbers_of_any_size_are_said() {
        let text = summary(|ledger| {
            ledger.lost.extend([(Loss::RingBufferFull, u64::MAX), (Loss::NoThreadId, 1)]);
            ledger.found_by.extend([(FoundBy::Cfi, u64::MAX), (FoundBy::Code, u64::MAX)]);
            (ledger.reported, ledger.cost.user_cpu_ns, ledger.cost.system_cpu_ns) = (1, u64::MAX, 1);
        });
        assert!(text.contains("18446744073709551615 lost (ring buffer full"), "{text}");
    }

    #[test]
    fn losses_are_named() {
        let text = summary(|ledger| {
            ledger.lost.insert(Loss::RingBufferFull, 3);
        });
        assert!(text.contains("3 lost (ring buffer full"), "{text}");
    }

    #[test]
    fn a_ledger_that_does_not_add_up_says_so() {
        assert!(summary(|ledger| ledger.target_ticks = 5).contains("5 of 5 ticks are not accounted for"));
    }

    #[test]
    fn the_largest_gap_has_its_remedy() {
        let gap = UnsymbolizedFrames { module: "/rt/libcoreclr.so".to_owned(), reason: Reason::NoSymbols };
        let mut ledger = Ledger { reported: 1, ..Ledger::default() };
        ledger.unnamed.insert(gap, 412);
        let text = gaps(&ledger).unwrap();
        assert!(text.starts_with("largest gap: 412 frames in /rt/libcoreclr.so, no symbols"), "{text}");
        assert!(text.contains("libcoreclr.so.dbg"), "{text}");
    }
}
