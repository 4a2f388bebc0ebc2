//! Recordings are what they were, also when they are cut, changed or made up.

use std::io;

use super::{
    MAGIC, VERSION,
    body::Body,
    section::{self, Kind, Packer},
    writer::write,
};
use crate::{FindingFacts, Header, Profile, ProfileBuilder, ReadError, test_profile};

fn recorded(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(profile, &mut bytes).unwrap();
    bytes
}

/// With all its tables in their order.
fn text(profile: &Profile) -> String {
    format!("{profile:?}")
}

/// A file of these sections.
fn file(sections: &[(Kind, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    let mut packer = Packer::new();
    for (kind, body) in sections {
        section::write(*kind, body, &mut packer, &mut bytes).unwrap();
    }
    bytes
}

fn header() -> (Kind, Vec<u8>) {
    let mut body = Body::default();
    super::measurement::push_header(&Header::default(), &mut body);
    (Kind::Header, body.bytes().to_vec())
}

#[test]
fn a_recording_round_trips() {
    for seed in 0..200 {
        let profile = test_profile::random(seed);
        assert_eq!(text(&Profile::read(&*recorded(&profile)).unwrap()), text(&profile), "seed {seed}");
    }
    let empty = ProfileBuilder::default().finish(Header::default());
    for profile in [empty, test_profile::in_pod()] {
        assert_eq!(text(&Profile::read(&*recorded(&profile)).unwrap()), text(&profile));
    }
}

#[test]
fn a_truncated_file_gives_the_samples_before_the_cut_and_says_so() {
    let profile = test_profile::random(1);
    let whole = recorded(&profile);
    let mut readable = 0;
    for length in 0..whole.len() {
        match Profile::read(&whole[..length]) {
            Ok(cut) => {
                readable += 1;
                assert!(cut.header().edits[0].contains("ends too early"), "{:?}", cut.header());
                assert!(profile.samples().starts_with(cut.samples()));
            }
            Err(error) => assert!(!matches!(error, ReadError::Io(_)), "{error}"),
        }
    }
    assert!(readable > whole.len() / 2);
}

#[test]
fn samples_are_written_in_blocks() {
    for samples in [2_000_u32, 200_000] {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "a");
        for index in 0..samples {
            let frame = test_profile::function(&mut builder, &format!("function {index}"), index.into());
            let stack = builder.stack(vec![frame], crate::StackEnd::Root);
            let thread = builder.thread(process, index % 7, "a");
            builder.sample(index.into(), 0, thread, stack, 1);
        }
        let whole = recorded(&builder.finish(Header::default()));
        let half = Profile::read(&whole[..whole.len() / 2]).unwrap();
        let share = half.samples().len() as f64 / f64::from(samples);
        assert!((0.25..0.75).contains(&share), "{share} of {samples}");
        let last = half.samples().last().unwrap();
        let leaf = half.frame(half.stack(last.stack).frames[0]);
        assert_eq!(half.string(leaf.name), format!("function {}", last.time_ns));
    }
}

#[test]
fn every_changed_byte_is_detected_without_a_panic() {
    let profile = test_profile::random(2);
    let whole = recorded(&profile);
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0xff;
        match Profile::read(&*changed) {
            Ok(read) => assert_eq!(read.header().edits.len(), 1, "byte {place}"),
            Err(error) => assert!(!matches!(error, ReadError::Io(_)), "{error}"),
        }
    }
}

#[test]
fn random_section_bodies_never_panic() {
    let kinds = [
        Kind::Header,
        Kind::Ledger,
        Kind::Strings,
        Kind::Modules,
        Kind::Frames,
        Kind::Stacks,
        Kind::Processes,
        Kind::Containers,
        Kind::Threads,
        Kind::Samples,
        Kind::Events,
        Kind::Findings,
        Kind::RuntimeEvents,
        Kind::KubernetesNames,
        Kind::Attributes,
        Kind::LockOwners,
        Kind::OmittedEvents,
        Kind::FindingFacts,
        Kind::FindingPartners,
        Kind::PollReadings,
        Kind::ManagedThreads,
    ];
    for kind in kinds {
        for byte in 0..=255 {
            let body = vec![byte; 40];
            let read = Profile::read(&*file(&[header(), (kind, body), (Kind::End, Vec::new())]));
            assert!(read.is_ok() || kind == Kind::Header, "{kind:?} of {byte}");
        }
    }
}

#[test]
fn a_finding_of_version_2_has_an_event_and_later_ones_may_have_none() {
    let mut events = Body::default();
    for name in ["cpu-clock", "wall"] {
        events.text(name);
        [1, 99].into_iter().for_each(|number| events.number(number));
    }
    let mut finding = Body::default();
    [1, 1, 5].into_iter().for_each(|number| finding.number(number));
    ["evidence", "remedy"].into_iter().for_each(|text| finding.text(text));
    let bodies = [(Kind::Events, events), (Kind::Findings, finding)];
    let bodies = bodies.map(|(kind, body)| (kind, body.bytes().to_vec()));
    let mut bytes = file(&[vec![header()], bodies.to_vec(), vec![(Kind::End, Vec::new())]].concat());
    let event = |bytes: &[u8]| {
        let read = Profile::read(bytes).unwrap();
        assert_eq!(read.header().edits, Vec::<String>::new());
        read.findings()[0].event.map(|event| event.index())
    };
    assert_eq!(event(&bytes), Some(0), "an index plus 1");
    bytes[MAGIC.len()] = 2;
    assert_eq!(event(&bytes), Some(1), "an index");
}

/// As in recordings of versions without facts.
#[test]
fn findings_without_facts_are_read_and_facts_without_a_finding_are_damage() {
    let mut finding = Body::default();
    [1, 0, 5].into_iter().for_each(|number| finding.number(number));
    ["evidence", "remedy"].into_iter().for_each(|text| finding.text(text));
    let finding = (Kind::Findings, finding.bytes().to_vec());
    let mut facts = Body::default();
    super::facts::push_facts(&FindingFacts { threads: Some(3), ..FindingFacts::default() }, &mut facts);
    let facts = (Kind::FindingFacts, facts.bytes().to_vec());
    let read = |sections: &[(Kind, Vec<u8>)]| {
        let end = vec![(Kind::End, Vec::new())];
        Profile::read(&*file(&[vec![header()], sections.to_vec(), end].concat())).unwrap()
    };
    assert_eq!(read(std::slice::from_ref(&finding)).findings()[0].facts, FindingFacts::default());
    assert_eq!(read(&[finding, facts.clone()]).findings()[0].facts.threads, Some(3));
    assert!(read(&[facts]).header().edits[0].contains("inconsistent"));
}

#[test]
fn a_stated_length_without_bytes_takes_no_memory() {
    let mut body = Body::default();
    body.number(u64::MAX >> 1);
    for kind in [Kind::Samples, Kind::Stacks, Kind::Ledger] {
        let read = Profile::read(&*file(&[header(), (kind, body.bytes().to_vec())])).unwrap();
        assert!(read.header().edits[0].contains("inconsistent"));
    }
}

#[test]
fn sums_of_counts_saturate() {
    let mut sections = vec![header()];
    sections.push((Kind::Strings, vec![1, b'a']));
    sections.push((Kind::Stacks, vec![9, 0]));
    sections.push((Kind::Processes, vec![1, 0]));
    sections.push((Kind::Threads, vec![0, 1, 0]));
    let mut body = Body::default();
    [2, 0, 0, 0, 0, 0, 0, 0, 0, u64::MAX, 1].into_iter().for_each(|number| body.number(number));
    sections.push((Kind::Samples, body.bytes().to_vec()));
    let read = Profile::read(&*file(&sections)).unwrap();
    assert_eq!((read.samples().len(), read.total_value()), (2, u64::MAX));
}

#[test]
fn an_unknown_section_is_skipped() {
    let mut bytes = file(&[header()]);
    let mut unknown = Vec::new();
    section::write(Kind::End, b"new", &mut Packer::new(), &mut unknown).unwrap();
    unknown[0] = 99;
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&unknown[..9]);
    checksum.update(&unknown[13..]);
    unknown[9..13].copy_from_slice(&checksum.finalize().to_le_bytes());
    bytes.extend(unknown);
    section::write(Kind::End, b"", &mut Packer::new(), &mut bytes).unwrap();
    assert_eq!(Profile::read(&*bytes).unwrap().header().edits, Vec::<String>::new());
}

#[test]
fn later_versions_and_other_files_are_refused() {
    let mut later = file(&[header()]);
    later[MAGIC.len()] = 9;
    let error = Profile::read(&*later).unwrap_err();
    assert!(!matches!(error, ReadError::Io(_)), "{error}");
    assert!(error.to_string().contains("version 9"), "{error}");
    for other in [&b""[..], b"main;work 5\n", b"\x7fELF", &MAGIC] {
        let error = Profile::read(other).unwrap_err();
        assert!(error.to_string().contains("not a recorded profile"), "{error}");
    }
}

#[test]
fn a_write_error_is_returned() {
    let full: &mut [u8] = &mut [];
    let error = write(&test_profile::random(1), full).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}

#[test]
fn a_section_does_not_depend_on_the_sections_before_it() {
    let bodies = [&b"mapmapmapmap"[..], b"", &[7; 70_000], b"mapmapmapmap"];
    let section = |body: &[u8], packer: &mut Packer| {
        let mut bytes = Vec::new();
        section::write(Kind::Strings, body, packer, &mut bytes).unwrap();
        bytes
    };
    let mut packer = Packer::new();
    for body in bodies {
        assert_eq!(section(body, &mut packer), section(body, &mut Packer::new()));
    }
}
