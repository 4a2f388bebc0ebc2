//! One profile built in code, in every format, as it is kept in a file.

use std::io::Read;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use profiler::{
    Difference, ElfAddress, Format, OutputOptions, Profile, Shape,
    profile::{
        Frame, FrameId, FrameKind, Header, Naming, ProfileBuilder, Reason, SourceLocation, StackEnd,
        SymbolSource,
    },
};
use profiler_tests::{assert_matches_file, file};

const EVERYTHING: OutputOptions = OutputOptions {
    annotate: true,
    per_thread: true,
    per_process: true,
    per_container: false,
    width_columns: Some(120),
};

/// The formats that are text.
const TEXTS: [Format; 7] = [
    Format::Folded,
    Format::Svg,
    Format::Html,
    Format::Top,
    Format::Speedscope,
    Format::Firefox,
    Format::PerfScript,
];

fn frame(builder: &mut ProfileBuilder, name: &str, kind: FrameKind) -> FrameId {
    let name = builder.string(name);
    let naming = match kind {
        FrameKind::Kernel => Naming::Symbol(SymbolSource::Kallsyms),
        FrameKind::Jit => Naming::Symbol(SymbolSource::PerfMap),
        _ => Naming::Symbol(SymbolSource::SymbolTable),
    };
    builder.frame(Frame { name, kind, module: None, address: ElfAddress(0x1000), location: None, naming })
}

/// Two processes with native, inlined, generated, kernel and unnamed frames, with names that mean harm.
fn profile() -> Profile {
    let mut builder = ProfileBuilder::default();
    let main = frame(&mut builder, "main", FrameKind::Native);
    let generic =
        frame(&mut builder, "std::vector<int, std::allocator<int>>::push_back(int&&)", FrameKind::Native);
    let managed = frame(&mut builder, "app!Demo.Program.Work(int64, string)", FrameKind::Jit);
    let hostile = frame(&mut builder, "a;b\n\u{1b}[31m<script>alert(\"&\")</script>\u{202e}", FrameKind::Jit);
    let read = frame(&mut builder, "ksys_read", FrameKind::Kernel);
    let (name, file) = (builder.string("[libfoo.so+0x1234]"), builder.string("/src/lib.rs"));
    let module = Some(builder.module("/usr/lib/libfoo.so", &[0xab; 20]));
    let unnamed = builder.frame(Frame {
        name,
        kind: FrameKind::Native,
        module,
        address: ElfAddress(0x1234),
        location: None,
        naming: Naming::Address(Reason::NoSymbols),
    });
    let name = builder.string("inlined");
    let inlined = builder.frame(Frame {
        name,
        kind: FrameKind::Inlined,
        module,
        address: ElfAddress(0x2000),
        location: Some(SourceLocation { file, line: 12 }),
        naming: Naming::Symbol(SymbolSource::Dwarf),
    });
    let stacks = [
        (vec![managed, generic, main], StackEnd::Root, 40),
        (vec![hostile, generic, main], StackEnd::Root, 8),
        (vec![read, inlined, main], StackEnd::Root, 20),
        (vec![unnamed], StackEnd::Unknown, 3),
        (vec![], StackEnd::Empty, 1),
    ];
    let first = builder.process(7, "app");
    let second = builder.process(8, "other app");
    let threads = [builder.thread(first, 7, "app"), builder.thread(second, 9, "worker;1")];
    for (at_ns, (frames, end, count)) in stacks.into_iter().enumerate() {
        let stack = builder.stack(frames, end);
        builder.sample(at_ns as u64, 0, threads[0], stack, count);
        builder.sample(at_ns as u64, 1, threads[1], stack, 1);
    }
    builder.finish(Header {
        target: "pid 7 (app)".to_owned(),
        event: "cpu-clock".to_owned(),
        frequency_hz: 99,
        duration_ns: 1_500_000_000,
        started_unix_ns: 1_700_000_000_000_000_000,
        started_monotonic_ns: 5,
        cpus: 2,
        edits: Vec::new(),
    })
}

fn bytes(profile: &Profile, format: Format, options: &OutputOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write_with(format, options, &mut bytes).unwrap();
    bytes
}

fn written(format: Format, options: &OutputOptions) -> String {
    String::from_utf8(bytes(&profile(), format, options)).unwrap()
}

fn assert_is_kept(profile: &Profile, format: Format, options: &OutputOptions, name: &str) {
    assert_bytes_are_kept(bytes(profile, format, options), format, name);
}

fn assert_bytes_are_kept(bytes: Vec<u8>, format: Format, name: &str) {
    let text = String::from_utf8(bytes).unwrap();
    let (text, extension) = match format {
        Format::Html => (profile_of_page(&text), "html.json"),
        Format::Speedscope | Format::Firefox => (a_line_for_each_entry(&text), format.extensions()[0]),
        _ => (text, format.extensions()[0]),
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

/// To see what changed.
fn a_line_for_each_entry(json: &str) -> String {
    json.replace(",\"", ",\n\"") + "\n"
}

#[test]
fn every_format_is_as_it_is_kept() {
    for format in TEXTS {
        assert_is_kept(&profile(), format, &OutputOptions::default(), "plain");
        assert_is_kept(&profile(), format, &EVERYTHING, "everything");
    }
}

#[test]
fn an_output_is_the_same_each_time() {
    for format in Format::ALL {
        assert_eq!(bytes(&profile(), format, &EVERYTHING), bytes(&profile(), format, &EVERYTHING));
    }
}

#[test]
fn a_recording_gives_every_output_byte_for_byte() {
    let read = Profile::read(&*bytes(&profile(), Format::Recording, &EVERYTHING)).unwrap();
    for format in Format::ALL {
        assert_eq!(bytes(&read, format, &EVERYTHING), bytes(&profile(), format, &EVERYTHING));
    }
}

#[test]
fn recordings_of_all_versions_are_read() {
    let kept = std::fs::read(file("golden/version1.profile")).unwrap();
    let read = Profile::read(&*kept).unwrap();
    assert_eq!(read.header(), profile().header());
    for format in TEXTS {
        assert_is_kept(&read, format, &EVERYTHING, "everything");
    }
}

#[test]
fn a_difference_is_as_it_is_kept() {
    let (before, after) = (profile(), profile().shaped(&shape()));
    for format in Difference::FORMATS {
        let mut bytes = Vec::new();
        Difference::between(&before, &after).write_with(format, &EVERYTHING, &mut bytes).unwrap();
        assert_bytes_are_kept(bytes, format, "difference");
    }
}

fn shape() -> Shape {
    Shape { ignore: Some("libfoo".parse().unwrap()), ..Shape::default() }
}

#[test]
fn folded_stacks_are_read_back_as_they_were() {
    let stacks = profiler_tests::Stacks::of(&profile());
    assert_eq!(stacks.total(), profile().sample_count());
    assert_eq!(stacks.count(|stack| stack.has("main")), 40 + 8 + 20 + 3);
    assert!(stacks.0.iter().all(|stack| stack.frames.len() <= 3), "{stacks:#?}");
}

#[test]
fn a_flame_graph_has_no_markup_of_a_name() {
    let svg = written(Format::Svg, &EVERYTHING);
    assert!(!svg.contains("<script>alert") && svg.contains("&lt;script&gt;alert"), "{svg}");
}
