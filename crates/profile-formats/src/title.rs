//! Titles of pictures and documents: target, event, duration, samples and losses.

use crate::label;
use profiler_profile::{Event, Finding, Profile, Sampling};

/// The title of a profile: what its first event shows, and the target.
pub(crate) fn title(profile: &Profile) -> String {
    let target = &profile.header().target;
    let shown = shown(profile.first_event());
    if target.is_empty() { "Flame graph".to_owned() } else { format!("{shown}: {target}") }
}

/// What the samples of an event show.
pub(crate) fn shown(event: &Event) -> &str {
    match event.name.as_str() {
        name if is_counted(event) => name,
        "wall" => "Wall clock",
        "off-cpu" => "Waiting",
        "io" => "Waiting for I/O",
        _ => "On-CPU",
    }
}

/// Whether samples are occurrences, and not ticks or waits.
pub(crate) fn is_counted(event: &Event) -> bool {
    matches!(event.sampling, Sampling::Occurrences { .. }) || event.sampling.has_sums()
}

/// The measurement of the first event in one line: event, frequency, duration, samples, losses, edits.
pub(crate) fn subtitle(profile: &Profile) -> String {
    let (header, event, ledger) = (profile.header(), profile.first_event(), profile.first_ledger());
    let mut parts = Vec::new();
    if !event.name.is_empty() {
        parts.push(format!("{} on {} CPUs", event_text(event), header.cpus));
        parts.push(seconds(header.duration_ns));
    }
    let amount = |count| match event.sampling {
        Sampling::Times { .. } => value_text(event, count),
        _ => format!("{count}"),
    };
    let samples = if let Sampling::Times { .. } = event.sampling { "" } else { " samples" };
    parts.push(format!("{}{samples}", amount(ledger.reported)));
    parts.push(format!("{} lost", amount(ledger.lost_total())));
    if let Sampling::Durations { .. } = event.sampling {
        parts.push(value_text(event, profile.total_value()));
    }
    if !header.edits.is_empty() {
        let shown = value_text(event, profile.total_value());
        parts.push(format!("{shown} shown: {}", header.edits.join(", ")));
    }
    parts.join(", ")
}

/// The incident and the findings as lines of text, safe for a terminal.
pub(crate) fn findings(profile: &Profile) -> Vec<String> {
    let incident = profile.header().incident.iter().map(ToString::to_string);
    let incident = incident.map(|text| label::printable(&text).into_owned());
    incident.chain(profile.findings().iter().map(finding)).collect()
}

/// A finding as a line of text, safe for a terminal.
pub(crate) fn finding(finding: &Finding) -> String {
    label::printable(&finding.to_string()).into_owned()
}

/// An event with its frequency or minimum: `cpu-clock at 99 Hz`.
pub(crate) fn event_text(event: &Event) -> String {
    match event.sampling {
        Sampling::Frequency(frequency_hz) => format!("{} at {frequency_hz} Hz", event.name),
        Sampling::Durations { min_ns } => format!("{} of at least {} us", event.name, min_ns / 1_000),
        Sampling::Occurrences { period: 1 } => format!("each of {}", event.name),
        Sampling::Occurrences { period } => format!("every {period}th of {}", event.name),
        Sampling::Sums { .. } | Sampling::Times { .. } => format!("sum of {}", event.name),
        _ => event.name.clone(),
    }
}

/// A value as text: a number of samples or occurrences, or seconds.
pub(crate) fn value_text(event: &Event, value: u64) -> String {
    match event.sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => seconds(value),
        _ => value.to_string(),
    }
}

fn seconds(ns: u64) -> String {
    const NS_PER_S: f64 = 1e9;
    format!("{:.1} s", ns as f64 / NS_PER_S)
}
