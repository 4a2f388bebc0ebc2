//! One profile built in code, in every format, as it is kept in a file.

use std::{
    fs,
    io::{Cursor, Read},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::{GzDecoder, ZlibDecoder};
use profiler::{Difference, Format, OutputOptions, Profile, Shape, profile::EventId};
use profiler_tests::{assert_matches_file, file, golden_profile, golden_profile_without_runtime_events};
use zip::ZipArchive;

const EVERYTHING: OutputOptions = OutputOptions {
    wait_frames: true,
    event: Some(EventId::FIRST),
    annotate: true,
    per_thread: true,
    per_process: true,
    per_container: true,
    per_state: true,
    addresses: true,
    width_columns: Some(120),
};

fn profile() -> Profile {
    golden_profile(1)
}

fn bytes(profile: &Profile, format: Format, options: &OutputOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.write_with(profile, options, &mut bytes).unwrap();
    bytes
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn assert_is_kept(profile: &Profile, format: Format, options: &OutputOptions, name: &str) {
    assert_bytes_are_kept(bytes(profile, format, options), format, name);
}

fn assert_bytes_are_kept(bytes: Vec<u8>, format: Format, name: &str) {
    let (text, extension) = match format {
        Format::Html => (profile_of_page(&text(bytes)), "html.json"),
        Format::Svg => (boxes_of_picture(&text(bytes)), "svg"),
        Format::Speedscope | Format::Firefox => (a_line_for_each_entry(&text(bytes)), format.extensions()[0]),
        Format::Pprof => (fields_of_message(&unpacked(&bytes)), "pb.txt"),
        Format::TraceZip => (texts_of_archive(&bytes, name), "trace.txt"),
        // Other bytes may hold the same: `recordings_of_all_versions_are_read`.
        Format::Recording => return,
        _ => (text(bytes), format.extensions()[0]),
    };
    assert_matches_file(&text, &file("golden").join(format!("{name}.{extension}")));
}

/// The profile that a page has in it. What is around it is the same in each page.
fn profile_of_page(page: &str) -> String {
    let (_, rest) = page.split_once("id=\"profile\">").unwrap();
    let (base64, _) = rest.split_once("</script>").unwrap();
    let mut json = String::new();
    ZlibDecoder::new(&*STANDARD.decode(base64).unwrap()).read_to_string(&mut json).unwrap();
    a_line_for_each_entry(&json)
}

/// The titles and boxes of a picture, each on a line. The style and the script before them are those of inferno, the same in
/// each picture.
fn boxes_of_picture(picture: &str) -> String {
    let (_, boxes) = picture.split_once("]]></script>").unwrap();
    boxes.replace("<g>", "\n<g>") + "\n"
}

/// To see what changed.
fn a_line_for_each_entry(json: &str) -> String {
    json.replace(",\"", ",\n\"") + "\n"
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut message).unwrap();
    message
}

/// A line for each field of a message of protocol buffers: its number, and its number or bytes.
fn fields_of_message(message: &[u8]) -> String {
    const BYTES: u64 = 2;
    let (mut at, mut text) = (0, String::new());
    let number = |at: &mut usize| {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = message[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    };
    while at < message.len() {
        let tag = number(&mut at);
        let value = number(&mut at);
        let shown = if tag & 7 == BYTES {
            let bytes = &message[at..at + usize::try_from(value).unwrap()];
            at += bytes.len();
            bytes.escape_ascii().to_string()
        } else {
            value.to_string()
        };
        text += &format!("{}: {shown}\n", tag >> 3);
    }
    text
}

/// The files of an archive after their names. The first one is compared with the file of perf script text.
fn texts_of_archive(bytes: &[u8], name: &str) -> String {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut texts = String::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        if index == 0 {
            assert_eq!(file.name().unwrap(), "profiler.trace/perf.data.txt");
            assert_matches_file(&text, &self::file("golden").join(format!("{name}.perf.txt")));
        } else {
            texts += &format!("{}\n{text}", file.name().unwrap());
        }
    }
    texts
}

#[test]
fn every_format_is_as_it_is_kept() {
    for &format in Format::ALL {
        assert_is_kept(&profile(), format, &OutputOptions::default(), "plain");
        assert_is_kept(&profile(), format, &EVERYTHING, "everything");
    }
}

#[test]
fn an_output_is_the_same_each_time() {
    for &format in Format::ALL {
        assert_eq!(bytes(&profile(), format, &EVERYTHING), bytes(&profile(), format, &EVERYTHING));
    }
}

#[test]
fn a_recording_gives_every_output_byte_for_byte() {
    let read = Profile::read(&*bytes(&profile(), Format::Recording, &EVERYTHING)).unwrap();
    for &format in Format::ALL {
        assert_eq!(bytes(&read, format, &EVERYTHING), bytes(&profile(), format, &EVERYTHING));
    }
}

/// When the version rises: `BLESS=1` writes the file of the new one. Those of older versions stay as they are; what
/// they cannot say is what this test says of them then.
#[test]
fn recordings_of_all_versions_are_read() {
    const FIRST_WITH_RUNTIME_EVENTS: u32 = 3;
    let written = bytes(&profile(), Format::Recording, &EVERYTHING);
    let version = u32::from_le_bytes(written[8..12].try_into().unwrap());
    let place = |version| file("golden").join(format!("version{version}.profile"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(place(version), written).unwrap();
    }
    for version in 1..=version {
        let kept = fs::read(place(version))
            .unwrap_or_else(|error| panic!("version {version}, write it with BLESS=1: {error}"));
        let read = Profile::read(&*kept).unwrap();
        let expected = match version {
            ..FIRST_WITH_RUNTIME_EVENTS => golden_profile_without_runtime_events(),
            _ => profile(),
        };
        assert_eq!(format!("{read:?}"), format!("{expected:?}"), "version {version}");
    }
}

#[test]
fn a_difference_is_as_it_is_kept() {
    let (before, after) = (profile(), profile().shaped(&shape()));
    for &format in Format::OF_DIFFERENCES {
        let mut bytes = Vec::new();
        format.write_difference(&Difference::between(&before, &after), &EVERYTHING, &mut bytes).unwrap();
        assert_bytes_are_kept(bytes, format, "difference");
    }
}

fn shape() -> Shape {
    Shape { ignore: Some("libfoo".parse().unwrap()), ..Shape::default() }
}

#[test]
fn folded_stacks_are_read_back_as_they_were() {
    let stacks = profiler_tests::FoldedStacks::from_profile(&profile());
    assert_eq!(stacks.total(), profile().total_value());
    assert_eq!(stacks.count(|stack| stack.has("main")), 40 + 5 + 20 + 1 + 3 + 1 + 6);
}

#[test]
fn a_flame_graph_has_no_markup_of_a_name() {
    let svg = text(bytes(&profile(), Format::Svg, &EVERYTHING));
    assert!(!svg.contains("<script>alert") && svg.contains("&lt;script&gt;alert"), "{svg}");
}
