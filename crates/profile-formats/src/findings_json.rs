//! The findings of a profile as a JSON document, for scripts and alerts: what the texts state, as fields.

use std::io;

use serde::Serialize;

use crate::{finding::Fields, label};
use profiler_profile::{Finding, Profile};

/// Writes the measurement and its findings.
pub(super) fn write(profile: &Profile, mut to: impl io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut to, &Document::of(profile))?;
    to.write_all(b"\n")?;
    to.flush()
}

#[derive(Serialize)]
struct Document<'a> {
    /// In words: `pid 1234 (dotnet)`.
    target: String,
    /// Start of sampling: nanoseconds since 1970-01-01 UTC.
    started_unix_ns: u64,
    duration_ns: u64,
    /// The condition that held, for a profile of an incident.
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    findings: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    evidence: String,
    remedy: String,
    /// The name of the event whose samples show it; absent for a finding of runtime events.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    #[serde(flatten)]
    fields: Fields,
}

impl<'a> Document<'a> {
    fn of(profile: &'a Profile) -> Self {
        let header = profile.header();
        Self {
            target: text(&header.target),
            started_unix_ns: header.started_unix_ns,
            duration_ns: header.duration_ns,
            incident: header.incident.as_ref().map(|incident| text(&incident.to_string())),
            findings: profile.findings().iter().map(|finding| Entry::of(profile, finding)).collect(),
        }
    }
}

impl<'a> Entry<'a> {
    fn of(profile: &'a Profile, finding: &Finding) -> Self {
        Self {
            evidence: text(&finding.evidence),
            remedy: text(&finding.remedy),
            event: finding.event.map(|event| profile.event(event).name.as_str()),
            fields: Fields::of(profile, finding),
        }
    }
}

fn text(text: &str) -> String {
    label::escaped(text).into_owned()
}

#[cfg(test)]
mod tests {
    use profiler_profile::{
        Certainty, Event, FindingFacts, FindingKind, GcMode, Header, ManagedThread, Partner, Place,
        ProfileBuilder, Proof, RuntimeEventKind, Selection, Share, Whole, test_profile,
    };
    use serde_json::{Value, json};

    use super::*;

    fn document(profile: &Profile) -> Value {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// A convoy of samples, with all facts, and collections of runtime events, with few.
    fn two_findings() -> Profile {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let convoy = Finding {
            kind: FindingKind::LockConvoy,
            evidence: "4 threads wait in Shop.\u{202e}Buy".to_owned(),
            remedy: "hold the lock for a shorter time".to_owned(),
            event: Some(event),
            value: 9,
            facts: FindingFacts {
                processes: vec![7],
                threads: Some(4),
                threads_at_a_time: Some(3.200_04),
                share: Some(Share { percent: 80.0, of: Whole::TimeOfThreadsWithWork }),
                place: Some(Place {
                    method: "Shop.Buy".to_owned(),
                    location: Some(("/src/Shop.cs".to_owned(), 12)),
                }),
                cause_thread: Some(11),
                partner: Some(Partner { name: "redis\u{202e}".to_owned(), process: Some(31) }),
                since_ns: Some(2_000_000_000),
                certainty: Certainty::Likely(Proof::AllRuntimeEvents),
                selection: Selection {
                    begin_ns: 5,
                    end_ns: 9,
                    threads: vec![8, 9],
                    runtime_events: None,
                    search: Some("Shop.Buy".to_owned()),
                },
            },
        };
        let collections = Finding {
            kind: FindingKind::GcPauses,
            evidence: "all managed threads are suspended".to_owned(),
            event: None,
            facts: FindingFacts {
                certainty: Certainty::Proven,
                selection: Selection {
                    runtime_events: Some(RuntimeEventKind::Suspension),
                    ..Selection::default()
                },
                ..FindingFacts::default()
            },
            ..convoy.clone()
        };
        let mut profile = builder.finish(Header::default());
        profile.set_findings(vec![convoy, collections]);
        profile
    }

    #[test]
    fn a_finding_is_an_object_with_its_facts() {
        let document = document(&two_findings());
        let [convoy, collections] = &document["findings"].as_array().unwrap()[..] else {
            panic!("two findings")
        };
        let expected = json!({
            "evidence": "4 threads wait in Shop.\\u{202e}Buy", "remedy": "hold the lock for a shorter time",
            "event": "wall", "kind": "lock-convoy", "processes": [7], "threads": 4, "threads_at_a_time": 3.2,
            "share_percent": 80.0, "share_of": Whole::TimeOfThreadsWithWork.name(), "method": "Shop.Buy",
            "file": "/src/Shop.cs", "line": 12, "cause_thread": 11,
            "partner": "redis\\u{202e}", "partner_process": 31, "since_ns": 2_000_000_000_u64,
            "certainty": "likely", "proof": "all-runtime-events",
            "certainty_text": Certainty::Likely(Proof::AllRuntimeEvents).to_string(),
            "selection": { "begin_ns": 5, "end_ns": 9, "threads": [8, 9], "search": "Shop.Buy" },
        });
        assert_eq!(*convoy, expected);
        assert_eq!(collections["selection"]["runtime_events"], "suspension");
        assert_eq!((&collections["certainty"], collections.get("proof")), (&json!("proven"), None));
        for absent in ["event", "threads", "method", "since_ns"] {
            assert_eq!(collections.get(absent), None, "{absent}");
        }
    }

    /// Adds readings of threads of the process 7, with their ids.
    fn with_managed_threads(tids: impl IntoIterator<Item = u32>, name: &str) -> Profile {
        let mut builder = ProfileBuilder::default();
        let processes = [7, 8].map(|pid| builder.process(pid, "shop"));
        let [name, exception] = [name, "System.FormatException"].map(|text| Some(builder.string(text)));
        for tid in tids {
            let gc_mode = GcMode::Preemptive;
            for (time_ns, process) in [(1, processes[0]), (2, processes[0]), (3, processes[1])] {
                let thread = builder.thread(process, tid, "worker");
                let exception = exception.filter(|_| time_ns == 2);
                builder.add_managed_thread(ManagedThread {
                    time_ns,
                    thread,
                    managed_id: tid - 6,
                    name,
                    exception,
                    gc_mode,
                });
            }
        }
        let findings = two_findings().findings().to_vec();
        let mut profile = builder.finish(Header::default());
        profile.set_findings(findings);
        profile
    }

    #[test]
    fn a_finding_on_locks_has_the_managed_threads_that_own_them() {
        let document = document(&with_managed_threads([8, 9, 10, 11], "price\u{202e}"));
        let fields = |tid: u32| {
            json!({
                "thread": tid, "managed_id": tid - 6, "name": "price\\u{202e}",
                "exception": "System.FormatException", "gc_mode": "preemptive",
            })
        };
        let findings = &document["findings"];
        assert_eq!(
            findings[0]["managed_threads"],
            json!([fields(11), fields(8), fields(9)]),
            "the cause first"
        );
        assert_eq!(findings[1].get("managed_threads"), None, "no lock");
    }

    #[test]
    fn the_managed_threads_of_a_finding_are_bounded() {
        let mut profile = with_managed_threads(7..100, "worker");
        let mut findings = profile.findings().to_vec();
        findings[0].facts.selection.threads = (7..100).collect();
        profile.set_findings(findings);
        let document = document(&profile);
        assert_eq!(document["findings"][0]["managed_threads"].as_array().map(Vec::len), Some(16));
    }

    #[test]
    fn a_profile_without_findings_says_so() {
        let document = document(&test_profile::folded(&[("p;main", 7)]));
        assert_eq!(document["findings"], json!([]));
    }
}
