//! Tests of the archive: its compression, and what PerfView finds in it.

mod perfview;

use std::io::{Cursor, Read};

use zip::ZipArchive;

use super::*;
use crate::perf_script;
use profiler_profile::test_profile;

#[test]
fn every_compression_method_gives_the_same_text() {
    for (seed, way) in
        [Method::Whole(Compression::default()), Method::Whole(Compression::fast()), Method::Stacks]
            .into_iter()
            .enumerate()
    {
        let profile = test_profile::random(seed as u64);
        let (mut archive, mut expected, mut found) = (Vec::new(), Vec::new(), Vec::new());
        write_compressed(&profile, &Script::of(&profile), way, &mut archive).unwrap();
        perf_script::write(&profile, &mut expected).unwrap();
        let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
        archive.by_name("profiler.trace/perf.data.txt").unwrap().read_to_end(&mut found).unwrap();
        assert!(found == expected, "{way:?}");
    }
}

#[test]
fn repeated_stacks_are_compressed_once() {
    const MIB: u64 = 1 << 20;
    let way = |text, stacks| Method::of(&Sizes { text: text * MIB, stacks: stacks * MIB });
    for (text, stacks, expected) in [
        (0, 0, Method::Whole(Compression::default())),
        (50, 1, Method::Whole(Compression::default())),
        (100, 1, Method::Whole(Compression::fast())),
        (1_000, 100, Method::Stacks),
        (1_000, 300, Method::Whole(Compression::fast())),
        (10_000, 300, Method::Whole(Compression::fast())),
    ] {
        assert_eq!(way(text, stacks), expected, "{text} {stacks}");
    }
}

#[test]
fn text_sizes_are_computed_without_writing() {
    let profile = test_profile::random(3);
    let sizes = Sizes::of(&profile, &Script::of(&profile));
    let mut text = Vec::new();
    perf_script::write(&profile, &mut text).unwrap();
    let heads: usize = text
        .split(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b": "))
        .map(|line| line.len() + 1)
        .sum();
    assert_eq!(sizes.text, (text.len() - heads) as u64);
}
