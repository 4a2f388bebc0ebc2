//! Reads an archive by the rules of PerfView, and finds every process, frame and map of a profile in it.
//!
//! The rules are those of `LinuxPerfScriptEventParser.cs`, `LinuxPerfScriptMapper` in it, and
//! `LinuxPerfScriptStackSource.cs` of microsoft/perfview. PerfView takes bytes for Latin-1; these names are ASCII.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
};

use zip::ZipArchive;

use crate::Format;
use profiler_addresses::ElfAddress;
use profiler_profile::{
    Event, Frame, FrameKind, Header, Profile, ProfileBuilder, StackEnd, SymbolSource, Symbolization,
    test_profile,
};

/// What PerfView and perf read from an archive.
struct Trace {
    samples: Vec<Sample>,
    /// The lines of each `perf-PID.map`, by address.
    symbols: BTreeMap<u32, Vec<Symbol>>,
    /// The paths and GUIDs of each `perfinfo-PID.map`.
    images: BTreeMap<u32, Vec<(String, String)>>,
    log: String,
}

#[derive(Debug, PartialEq)]
struct Sample {
    command: String,
    pid: u32,
    tid: u32,
    cpu: u32,
    time_us: u64,
    event: String,
    frames: Vec<StackFrame>,
}

#[derive(Clone, Debug, PartialEq)]
struct StackFrame {
    address: u64,
    module: String,
    symbol: String,
}

struct Symbol {
    start: u64,
    size: u64,
    text: String,
}

impl Trace {
    fn read(archive: &[u8]) -> Self {
        let files = files(archive);
        // The first entry with this suffix has the samples.
        let (_, text) = files.iter().find(|(name, _)| name.ends_with(".data.txt")).unwrap();
        let (mut symbols, mut images) = (BTreeMap::new(), BTreeMap::new());
        for (name, text) in &files {
            let name = name.rsplit('/').next().unwrap();
            let pid = |prefix: &str| -> Option<u32> {
                name.strip_prefix(prefix)?.strip_suffix(".map")?.parse().ok()
            };
            // PerfView's own pattern has no folder, so that perf alone, for `perfcollect view`, reads this one.
            if let Some(pid) = pid("perf-") {
                assert!(symbols.insert(pid, symbols_of(text)).is_none(), "{name} is there once");
            }
            if let Some(pid) = pid("perfinfo-") {
                assert!(images.insert(pid, images_of(text)).is_none(), "{name} is there once");
            }
        }
        let log = files.iter().find(|(name, _)| name.ends_with("/perfcollect.log")).unwrap();
        Self { samples: samples_of(text), symbols, images, log: log.1.clone() }
    }

    /// The module and the symbol of an address by the map of a process.
    fn look_up(&self, pid: u32, address: u64) -> Option<(String, String)> {
        let symbols = self.symbols.get(&pid)?;
        let found = symbols.iter().find(|symbol| address.wrapping_sub(symbol.start) < symbol.size)?;
        // The first word in brackets is the module, and the rest of the line the symbol.
        let (module, symbol) = found.text.split_once("] ").unwrap_or(("", &found.text));
        Some((module.trim_start_matches('[').to_owned(), symbol.to_owned()))
    }
}

/// The names and texts of all files.
fn files(archive: &[u8]) -> Vec<(String, String)> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
    let count = archive.len();
    let read = |index| {
        let mut file = archive.by_index(index).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        (file.name().unwrap().into_owned(), text)
    };
    (0..count).map(read).collect()
}

/// A sample ends with a line that is followed by one without a tab.
fn samples_of(text: &str) -> Vec<Sample> {
    let mut lines = text.lines().peekable();
    let mut samples = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let mut sample = header(line);
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            sample.frames.push(frame(line));
        }
        samples.push(sample);
    }
    samples
}

/// `COMMAND PID/TID [CPU] TIME: PERIOD EVENT:`, where the command ends at the first space before a number and a slash.
fn header(line: &str) -> Sample {
    let is_id = |rest: &str| {
        let rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        rest.strip_prefix('/').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    assert!(!line.starts_with(|c: char| c.is_ascii_digit()), "that would be the process id: {line:?}");
    let end = line.char_indices().find(|(at, c)| *c == ' ' && is_id(&line[*at..])).unwrap().0;
    let (ids, rest) = line[end..].trim_start().split_once(' ').unwrap();
    let (pid, tid) = ids.split_once('/').unwrap();
    let (cpu, rest) = rest.trim_start().strip_prefix('[').unwrap().split_once(']').unwrap();
    let (time, rest) = rest.trim_start().split_once(':').unwrap();
    let (period, rest) = rest.trim_start().split_once(' ').unwrap();
    assert!(period.parse::<u64>().is_ok(), "{line:?}");
    let (event, details) = rest.trim_start().split_once(':').unwrap();
    assert_eq!(details.trim(), "", "details make another kind of event of it");
    Sample {
        command: line[..end].to_owned(),
        pid: pid.parse().unwrap(),
        tid: tid.parse().unwrap(),
        cpu: cpu.parse().unwrap(),
        time_us: (time.parse::<f64>().unwrap() * 1e6).round() as u64,
        event: event.to_owned(),
        frames: Vec::new(),
    }
}

/// `ADDRESS SYMBOL (MODULE)`, where the last parenthesis begins the module.
fn frame(line: &str) -> StackFrame {
    let (address, rest) = line.trim_start().split_once(' ').unwrap();
    let (symbol, module) = rest.split_at(rest.rfind('(').unwrap());
    let (symbol, module) = (without_brackets(symbol.trim()), without_brackets(module.trim()));
    // `+0x...` at the end of a symbol is its offset.
    let symbol = symbol.rfind("+0x").filter(|at| *at > 0).map_or(symbol, |at| &symbol[..at]);
    StackFrame {
        address: u64::from_str_radix(address, 16).unwrap(),
        module: module.rsplit(['/', '\\']).next().unwrap().to_owned(),
        symbol: symbol.trim().to_owned(),
    }
}

fn without_brackets(mut text: &str) -> &str {
    while let Some(inner) = [('(', ')'), ('[', ']')]
        .iter()
        .find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close))
    {
        assert!(!inner.is_empty(), "PerfView fails on brackets around nothing");
        text = inner;
    }
    text
}

/// Lines `ADDRESS SIZE SYMBOL` with hexadecimal numbers.
fn symbols_of(text: &str) -> Vec<Symbol> {
    let symbol = |line: &str| {
        let [start, size, text] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        Symbol { start: number(start), size: number(size), text: text.to_owned() }
    };
    let symbols: Vec<_> = text.lines().map(symbol).collect();
    assert!(symbols.is_sorted_by_key(|symbol| symbol.start), "PerfView and perf search by halves");
    symbols
}

/// Lines `ImageLoad;PATH;GUID;`, to which a base address can be appended.
fn images_of(text: &str) -> Vec<(String, String)> {
    let image = |line: &str| match line.split(';').collect::<Vec<_>>()[..] {
        ["ImageLoad", path, guid, ""] => (path.to_owned(), guid.to_owned()),
        _ => panic!("{line:?}"),
    };
    text.lines().map(image).collect()
}

fn written(profile: &Profile) -> Trace {
    let mut archive = Vec::new();
    Format::TraceZip.write(profile, &mut archive).unwrap();
    Trace::read(&archive)
}

/// Two .NET processes and one without managed code.
fn known() -> Profile {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 1_000));
    let mut frame = |name: &str, kind, module: Option<&str>, address| {
        let module = module.map(|path| builder.module(path, &[]));
        let (name, address) = (builder.string(name), ElfAddress(address));
        let symbolization = Symbolization::Symbol(SymbolSource::RuntimeEvents);
        builder.frame(Frame { name, kind, module, address, location: None, symbolization })
    };
    let hot = frame("App!Demo.Program.Hot(int32[])", FrameKind::Jit, None, 0x7f12_0000_1020);
    let hotter = frame("App!Demo.Program.Hot(int32[])", FrameKind::Jit, None, 0x7f12_0000_10ff);
    let stub = frame("stub", FrameKind::Jit, None, 0x7f12_0000_2000);
    let run = frame("System.Private.CoreLib!System.Run()", FrameKind::Precompiled, Some("/rt/Lib.dll"), 0x40);
    let main = frame("main", FrameKind::Native, Some("/app/run (x)"), 0x1f00);
    for (time, (pid, comm, frames)) in (0..).zip([
        (1, "dotnet", vec![hot, run, main]),
        (1, "dotnet", vec![stub, hotter, run, main]),
        (20, ".NET TP 5/6 [0]", vec![hotter, main]),
        (30, "nginx: worker", vec![main]),
    ]) {
        let stack = builder.stack(frames, StackEnd::Root);
        let process = builder.process(pid, comm);
        let thread = builder.thread(process, pid + 1, comm);
        builder.sample(time * 1_000_000, 3, thread, stack, 1);
    }
    builder.finish(Header {
        target: "all processes".to_owned(),
        started_unix_ns: 1_700_000_000_000_000_000,
        started_monotonic_ns: 12_000_000_000,
        ..Header::default()
    })
}

#[test]
fn perfview_finds_every_process_and_frame() {
    let frame = |address, module: &str, symbol: &str| StackFrame {
        address,
        module: module.to_owned(),
        symbol: symbol.to_owned(),
    };
    let hot = |address| frame(address, "App", "Demo.Program.Hot(int32[])");
    let run = frame(0x40, "System.Private.CoreLib", "System.Run()");
    let main = frame(0x1f00, "run__x_", "main");
    let sample = |time_ms: u64, pid, command: &str, frames: &[StackFrame]| Sample {
        command: command.to_owned(),
        pid,
        tid: pid + 1,
        cpu: 3,
        time_us: 12_000_000 + time_ms * 1_000,
        event: "cpu-clock".to_owned(),
        frames: frames.to_vec(),
    };
    let stub = frame(0x7f12_0000_2000, "anon", "stub");
    assert_eq!(
        written(&known()).samples,
        [
            sample(0, 1, "dotnet", &[hot(0x7f12_0000_1020), run.clone(), main.clone()]),
            sample(1, 1, "dotnet", &[stub, hot(0x7f12_0000_10ff), run, main.clone()]),
            sample(2, 20, ".NET_TP_5/6_[0]", &[hot(0x7f12_0000_10ff), main.clone()]),
            sample(3, 30, "nginx:_worker", &[main]),
        ]
    );
}

#[test]
fn each_process_with_managed_code_has_a_map_of_its_jit_functions_and_one_of_its_images() {
    let trace = written(&known());
    assert_eq!(trace.symbols.keys().collect::<Vec<_>>(), [&1, &20]);
    let hot = Some(("App".to_owned(), "Demo.Program.Hot(int32[])".to_owned()));
    assert_eq!(trace.look_up(1, 0x7f12_0000_1020), hot);
    assert_eq!(trace.look_up(1, 0x7f12_0000_10ff), hot);
    assert_eq!(trace.look_up(1, 0x7f12_0000_1100), None, "no sample says whose code this is");
    assert_eq!(trace.look_up(1, 0x7f12_0000_2000), Some((String::new(), "stub".to_owned())));
    assert_eq!(trace.look_up(20, 0x7f12_0000_10ff), hot);
    assert_eq!(trace.look_up(20, 0x7f12_0000_1020), None, "another process had the sample");
    let image = ("/rt/Lib.dll".to_owned(), String::new());
    assert_eq!(trace.images, BTreeMap::from([(1, vec![image]), (20, Vec::new())]));
}

#[test]
fn the_log_names_the_measurement_and_the_maps() {
    let log = written(&known()).log;
    assert!(log.starts_with("Sampling started at 2023-11-14T22:13:20Z\nOn-CPU: all processes\n"), "{log}");
    assert!(log.contains("Saving perf-1.map and perfinfo-1.map\nSaving perf-20.map"), "{log}");
    let nothing = written(&ProfileBuilder::default().finish(Header::default()));
    assert!(nothing.log.contains("no map is saved") && nothing.symbols.is_empty(), "{}", nothing.log);
}

#[test]
fn perfview_finds_every_sample_and_jit_frame_of_random_profiles() {
    for seed in 0..30 {
        let profile = test_profile::random(seed);
        let profile = profile.single_event(profile.event_ids().next().unwrap());
        let trace = written(&profile);
        let ids = profile.samples().iter().map(|sample| {
            let thread = profile.thread(sample.thread);
            (profile.process(thread.process).pid, thread.tid, profile.stack(sample.stack).frames.len())
        });
        let found = trace.samples.iter().map(|sample| (sample.pid, sample.tid, sample.frames.len()));
        assert!(found.eq(ids), "seed {seed}");
        for sample in profile.samples() {
            let pid = profile.process(profile.thread(sample.thread).process).pid;
            let frames = profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame));
            let is_jit = |frame: &&Frame| {
                frame.kind == FrameKind::Jit && matches!(frame.symbolization, Symbolization::Symbol(_))
            };
            for frame in frames.filter(is_jit) {
                assert!(trace.look_up(pid, frame.address.0).is_some(), "seed {seed}: {frame:?}");
            }
        }
    }
}
