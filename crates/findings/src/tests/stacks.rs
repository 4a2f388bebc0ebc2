//! The causes of real stacks: files of stacks with the thread's name, the frames as folded stacks have them, and the
//! expected cause.
//!
//! `BLESS=1 cargo test -p profiler-findings` writes the causes that the rules give: look at each line that changes.

use std::{fs, path::Path};

use profiler_addresses::ElfAddress;
use profiler_profile::{
    EventId, Frame, FrameId, FrameKind, Header, ProfileBuilder, Reason, Sample, StackEnd, SymbolSource,
    Symbolization, ThreadState,
};

use crate::Waits;

/// A frame of a folded stack with annotations: `futex_wait_[k]`.
fn frame(builder: &mut ProfileBuilder, text: &str) -> FrameId {
    let (name, kind) = match text.split_at(text.len().saturating_sub(4)) {
        (name, "_[k]") => (name, FrameKind::Kernel),
        (name, "_[j]") => (name, FrameKind::Jit),
        _ => (text, FrameKind::Native),
    };
    let unsymbolized = name.strip_prefix('[').and_then(|rest| rest.split_once("+0x"));
    // Native functions with a symbol are those of runtimes, if they have no module.
    let (name, module) = match unsymbolized {
        Some((module, _)) => (name, module),
        None if kind == FrameKind::Native => name.split_once('@').unwrap_or((name, "libc.so.6")),
        None => (name, "libc.so.6"),
    };
    let module = Some(builder.module(module, &[]));
    let symbolization = match unsymbolized {
        Some(_) => Symbolization::Address(Reason::NoSymbols),
        None => Symbolization::Symbol(SymbolSource::SymbolTable),
    };
    let name = builder.string(name);
    builder.frame(Frame { name, kind, module, address: ElfAddress(0), location: None, symbolization })
}

/// The file with stacks in the state disk. All others are in the state blocked.
const DISK: &str = "disk";

/// The cause of a wait in a state of a thread with this name and this folded stack.
fn cause(state: ThreadState, thread: &str, folded: &str) -> String {
    let mut builder = ProfileBuilder::default();
    let frames = folded.split(';').rev().map(|text| frame(&mut builder, text)).collect();
    let stack = builder.stack(frames, StackEnd::Root);
    let process = builder.process(1, "p");
    let thread = builder.thread(process, 1, thread);
    // The second sample: a process that does nothing but sleep is idle.
    for state in [Some(state), Some(ThreadState::OnCpu)] {
        let event = EventId::FIRST;
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 1 });
    }
    let profile = builder.finish(Header::default());
    let waits = Waits::of(&profile);
    waits.cause(&profile.samples()[0]).expect("the thread waits").to_string()
}

#[test]
fn real_stacks_have_their_causes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("stacks");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let kept = fs::read_to_string(&path).unwrap();
        let is_disk = path.file_stem().is_some_and(|stem| stem == DISK);
        let state = if is_disk { ThreadState::Disk } else { ThreadState::Blocked };
        let mut found = String::new();
        for line in kept.lines() {
            let mut fields = line.split('\t');
            let [_, thread, folded] = [(); 3].map(|()| fields.next().unwrap_or_else(|| panic!("{line}")));
            found += &format!("{}\t{thread}\t{folded}\n", cause(state, thread, folded));
        }
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &found).unwrap();
        } else {
            assert_eq!(found, kept, "{}", path.display());
        }
    }
}
