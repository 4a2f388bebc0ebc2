//! Formats of other tools, read by these tools themselves: their published libraries, and speedscope in a browser.

use std::{
    fs,
    io::{Cursor, Read},
    path::Path,
    process::Command,
};

use flate2::read::GzDecoder;
use inferno::collapse::{Collapse, perf};
use profiler::{
    ElfAddress, Format, OutputOptions, Profile,
    profile::{
        Frame, FrameId, FrameKind, Header, Naming, ProfileBuilder, SourceLocation, StackEnd, SymbolSource,
    },
};
use profiler_tests::{Workload, assert_matches_file, file, outcome, privileged, profiler};

const FORMATS: [Format; 5] =
    [Format::Pprof, Format::Speedscope, Format::Firefox, Format::PerfScript, Format::TraceZip];

/// A count beyond 32 bits.
const MANY: u64 = (1 << 32) + 1;

/// Every kind of frame, two threads, and names that mean harm.
fn known() -> Profile {
    let mut builder = ProfileBuilder::default();
    let mut frame = |name: &str, kind, module: Option<&str>, line: u32| -> FrameId {
        let module = module.map(|path| builder.module(path, &[0xab, 0x01]));
        let (name, file) = (builder.string(name), builder.string("/src/a.rs"));
        let location = (line > 0).then_some(SourceLocation { file, line });
        let naming = Naming::Symbol(SymbolSource::SymbolTable);
        builder.frame(Frame {
            name,
            kind,
            module,
            address: ElfAddress(0x1f00 + u64::from(line)),
            location,
            naming,
        })
    };
    let main = frame("main", FrameKind::Native, Some("/app/run"), 0);
    let outer = frame("outer", FrameKind::Native, Some("/app/run"), 7);
    let inlined = frame("inlined", FrameKind::Inlined, Some("/app/run"), 7);
    let read = frame("ksys_read", FrameKind::Kernel, Some("[kernel]"), 0);
    let jit = frame("App!Demo.Program.Hot(class System.String)", FrameKind::Jit, None, 0);
    let ready = frame("App!Demo.Program.Main()", FrameKind::Precompiled, Some("/app/App.dll"), 0);
    let odd = frame("a;b\n\u{1b}[31m<script>\"'\u{202e} 5/6 [0] 1.0: x:", FrameKind::Jit, None, 0);
    let process = builder.process(7, "app");
    let threads = [builder.thread(process, 7, "app"), builder.thread(process, 8, "wor\nker 1/2")];
    for (time, (thread, frames, count)) in [
        (0, vec![inlined, outer, main], 1),
        (1, vec![read, main], MANY),
        (0, vec![jit, ready, main], 2),
        (0, vec![odd, main], 1),
        (0, vec![inlined, outer, main], 1),
    ]
    .into_iter()
    .enumerate()
    {
        let stack = builder.stack(frames, StackEnd::Root);
        builder.sample(time as u64 * 10_000_000, 0, threads[thread], stack, count);
    }
    builder.finish(Header {
        target: "pid 7 (app)".to_owned(),
        event: "cpu-clock".to_owned(),
        frequency_hz: 100,
        duration_ns: 50_000_000,
        started_unix_ns: 1_700_000_000_000_000_000,
        started_monotonic_ns: 5_000_000_000,
        cpus: 2,
        ..Header::default()
    })
}

fn bytes(profile: &Profile, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.write_with(format, &OutputOptions::default(), &mut bytes).unwrap();
    bytes
}

fn write(profile: &Profile, folder: &Path, name: &str) {
    for format in FORMATS {
        fs::write(folder.join(format!("{name}.{}", format.extensions()[0])), bytes(profile, format)).unwrap();
    }
}

#[test]
fn a_pprof_profile_is_as_it_is_kept() {
    let mut message = Vec::new();
    GzDecoder::new(&*bytes(&known(), Format::Pprof)).read_to_end(&mut message).unwrap();
    assert_matches_file(&fields(&message), &file("golden/known.pb.txt"));
}

/// A line for each field of a message: its number, and its number or bytes.
fn fields(message: &[u8]) -> String {
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

#[test]
fn perf_script_text_collapses_to_stacks_with_the_time_they_took() {
    let mut collapsed = Vec::new();
    let text = bytes(&known(), Format::PerfScript);
    perf::Folder::default().collapse(Cursor::new(text), &mut collapsed).unwrap();
    assert_eq!(
        String::from_utf8(collapsed).unwrap().lines().collect::<Vec<_>>(),
        [
            "app;main;Demo.Program.Main;Demo.Program.Hot 20000000",
            "app;main;a:b  [31m<script>\"'  5/6 [0] 1.0: x: 10000000",
            "app;main;outer;inlined 20000000",
            "wor_ker_1/2;main;ksys_read 42949672970000000",
        ]
    );
}

#[test]
fn the_readers_of_other_tools_read_what_is_written_for_them() {
    let folder = tempfile::tempdir().unwrap();
    write(&known(), folder.path(), "known");
    write(&ProfileBuilder::default().finish(Header::default()), folder.path(), "empty");
    read(&["readers/known.test.mjs"], folder.path());
}

#[test]
fn the_readers_of_other_tools_read_the_profile_of_a_real_dotnet_process() {
    let Some(_turn) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
    let pid = workload.pid().to_string();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let names = [
        "a.html",
        "a.profile",
        "a.folded",
        "a.pb.gz",
        "a.speedscope.json",
        "a.json",
        "a.perf.txt",
        "a.trace.zip",
    ];
    let mut command = profiler(&["-p", &pid, "-F", "499", "-d", "3"]);
    for name in names {
        command.args(["-o", &place(name)]);
    }
    let run = outcome(&mut command);
    assert_eq!(run.code(), 0, "{run:?}");
    read(&["readers/dotnet.test.mjs"], folder.path());
}

/// Runs these scripts on the files of a folder.
fn read(scripts: &[&str], profiles: &Path) {
    let readers = file("../target/readers/node_modules");
    if !readers.is_dir() {
        assert!(std::env::var_os("PROFILER_REQUIRE_PRIVILEGED").is_none(), "the readers are missing");
        eprintln!("skipped: the readers are missing: cargo xtask setup");
        return;
    }
    let scripts = scripts.iter().map(|script| file(script));
    let mut node = Command::new("node");
    node.arg("--test").args(scripts).env("PROFILES", profiles).env("READERS", readers);
    let node = node.output().unwrap();
    let said = String::from_utf8_lossy(&node.stdout);
    assert!(node.status.success(), "{said}{}", String::from_utf8_lossy(&node.stderr));
}
