//! Tests the formats of other tools with these tools.

mod dotnet;
mod flame_graph;
mod known;
mod pprof;
mod printed_pictures;
mod pyroscope;
mod readers;
mod workflows;

use std::{fs, path::Path};

use profiler::{
    Format, OutputOptions, Profile,
    profile::{Header, ProfileBuilder},
};

use self::known::known;

const FORMATS: [Format; 5] =
    [Format::Pprof, Format::Speedscope, Format::Firefox, Format::PerfScript, Format::TraceZip];

#[test]
fn other_tools_read_their_formats() {
    let folder = tempfile::tempdir().unwrap();
    write(&known(), folder.path(), "known");
    write(&ProfileBuilder::default().finish(Header::default()), folder.path(), "empty");
    readers::run_script("readers/known.test.mjs", folder.path(), &[]);
}

fn write(profile: &Profile, folder: &Path, name: &str) {
    for format in FORMATS {
        fs::write(folder.join(format!("{name}.{}", format.extensions()[0])), bytes(profile, format)).unwrap();
    }
}

fn bytes(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.write_with(profile, &OutputOptions::default(), &mut bytes).unwrap();
    bytes
}
