//! The lines above the graphs of the page: the incident, and the findings with what shows them.

use serde::Serialize;

use crate::{finding::Fields, label, title};
use profiler_profile::{FindingFacts, Profile};

/// A line of text. With fields, it is a button that selects what shows the finding.
#[derive(Serialize)]
pub(super) struct Line {
    text: String,
    /// The index of the event of the finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<usize>,
    #[serde(flatten)]
    fields: Option<Fields>,
}

/// The incident and the findings of a profile, of all its events. Findings without facts, as those of recordings of earlier
/// versions, are text alone.
pub(super) fn lines(profile: &Profile) -> Vec<Line> {
    let incident = profile.header().incident.iter().map(ToString::to_string);
    let incident =
        incident.map(|text| Line { text: label::printable(&text).into_owned(), event: None, fields: None });
    let findings = profile.findings().iter().map(|finding| Line {
        text: title::finding(finding),
        event: finding.event.map(|event| event.index()),
        fields: (finding.facts != FindingFacts::default()).then(|| Fields::of(profile, finding)),
    });
    incident.chain(findings).collect()
}
