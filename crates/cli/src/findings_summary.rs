//! Formats the findings of a profile, the first lines of its summary.

use profiler_findings::checked_kinds;
use profiler_profile::Profile;

/// The most findings of a summary that is not verbose.
const MAX_FINDINGS: usize = 4;

/// The most subjects of such a summary, of those that a profile was checked for.
const MAX_SUBJECTS: usize = 6;

/// The findings below a heading. Without a finding, what the samples were examined for; no line where they were not.
pub(super) fn lines(profile: &Profile, is_verbose: bool) -> Vec<String> {
    let findings = profile.findings();
    if findings.is_empty() {
        return without_findings(profile, is_verbose).into_iter().collect();
    }
    let shown = if is_verbose { findings.len() } else { MAX_FINDINGS };
    let mut lines = vec!["findings:".to_owned()];
    lines.extend(findings.iter().take(shown).map(|finding| format!("  {finding}")));
    let others = findings.len().saturating_sub(shown);
    if others > 0 {
        lines.push(format!("  and {others} more (-v)"));
    }
    lines
}

fn without_findings(profile: &Profile, is_verbose: bool) -> Option<String> {
    let mut subjects: Vec<_> = checked_kinds(profile).iter().map(|kind| kind.subject()).collect();
    // Kinds of one subject are beside each other.
    subjects.dedup();
    let shown = if is_verbose { subjects.len() } else { MAX_SUBJECTS };
    let more = match subjects.len().saturating_sub(shown) {
        0 => String::new(),
        others => format!(" and {others} more (-v)"),
    };
    subjects.truncate(shown);
    (!subjects.is_empty()).then(|| format!("findings: none (checked: {}{more})", subjects.join(", ")))
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, StackEnd, ThreadState, test_profile};

    use super::*;

    #[test]
    fn findings_are_below_a_heading_and_those_of_most_time_are_shown() {
        let mut profile = test_profile::with_finding();
        assert_eq!(lines(&profile, false), ["findings:", &format!("  {}", test_profile::FINDING)]);
        let finding = profile.findings()[0].clone();
        profile.set_findings(vec![finding; 6]);
        let brief = lines(&profile, false);
        assert_eq!((brief.len(), brief[5].as_str()), (6, "  and 2 more (-v)"));
        assert_eq!(lines(&profile, true).len(), 7);
    }

    #[test]
    fn without_a_finding_the_line_has_what_was_checked() {
        let profile = |state: Option<ThreadState>, value| {
            let mut builder = ProfileBuilder::default();
            let event = builder.event(Event::at_frequency("e", 49));
            let process = builder.process(1, "p");
            let thread = builder.thread(process, 1, "p");
            let stack = builder.stack(Vec::new(), StackEnd::Root);
            builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
            builder.finish(Header::default())
        };
        let line = |state, value| lines(&profile(state, value), true);
        let of_waits = &line(Some(ThreadState::Blocked), 100)[0];
        assert!(of_waits.starts_with("findings: none (checked: thread pool, locks, "), "{of_waits}");
        assert!(!of_waits.contains("CPU") && !of_waits.contains("compilation"), "{of_waits}");
        let of_cpu = &line(None, 100)[0];
        assert!(of_cpu.contains("compilation") && !of_cpu.contains("locks"), "{of_cpu}");
        assert!(line(None, 99).is_empty(), "too few samples for a finding");
        let brief = lines(&profile(Some(ThreadState::Blocked), 100), false);
        assert!(brief[0].ends_with(" and 4 more (-v))"), "{brief:?}");
    }
}
