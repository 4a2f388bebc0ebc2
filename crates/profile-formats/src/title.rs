//! Titles of pictures and documents: target, event, duration, samples and losses.

use profiler_profile::{Header, Profile};

/// The title of a profile: its target.
pub(crate) fn title(header: &Header) -> String {
    if header.target.is_empty() { "Flame graph".to_owned() } else { format!("On-CPU: {}", header.target) }
}

/// The measurement in one line: event, frequency, duration, samples, losses, edits.
pub(crate) fn subtitle(profile: &Profile) -> String {
    const NS_PER_S: f64 = 1e9;
    let header = profile.header();
    let ledger = profile.ledger();
    let mut parts = Vec::new();
    if !header.event.is_empty() {
        parts.push(format!("{} at {} Hz on {} CPUs", header.event, header.frequency_hz, header.cpus));
        parts.push(format!("{:.1} s", header.duration_ns as f64 / NS_PER_S));
    }
    parts.push(format!("{} samples", ledger.reported));
    parts.push(format!("{} lost", ledger.lost_total()));
    if !header.edits.is_empty() {
        parts.push(format!("{} shown: {}", profile.sample_count(), header.edits.join(", ")));
    }
    parts.join(", ")
}
