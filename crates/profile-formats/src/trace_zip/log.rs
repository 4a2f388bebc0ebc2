//! `perfcollect.log`: what was measured, and what the trace lacks.

use std::collections::{BTreeMap, BTreeSet};

use rawzip::time::UtcDateTime;

use crate::{
    label,
    title::{findings, subtitle, title},
};
use profiler_profile::{FrameId, Profile};

/// The text of the log.
pub(super) fn text(
    profile: &Profile,
    started: UtcDateTime,
    managed: &BTreeMap<u32, BTreeSet<FrameId>>,
) -> String {
    let mut lines = vec![
        format!("Sampling started at {started}"),
        printable(&title(profile)),
        printable(&subtitle(profile)),
        "Written by profiler from the profile, in the layout of perfcollect. Maps have the sampled code."
            .to_owned(),
    ];
    lines.extend(managed.keys().map(|pid| format!("Saving perf-{pid}.map and perfinfo-{pid}.map")));
    if managed.is_empty() {
        lines.push("No process has JIT or precompiled code in its samples: no map is saved".to_owned());
    }
    lines.extend(profile.first_ledger().unsymbolized.iter().map(|(group, count)| {
        let place = if group.module.is_empty() { "" } else { " in " };
        let remedy = group.remedy().map(|remedy| format!(": {remedy}")).unwrap_or_default();
        printable(&format!("{count} unsymbolized frames{place}{}, {}{remedy}", group.module, group.reason))
    }));
    lines.extend(findings(profile));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn printable(line: &str) -> String {
    label::printable(line).into_owned()
}
