//! What the tests expect of ASP.NET Core under load, wherever it runs.

use std::process::Command;

use profiler::{
    Profile,
    profile::{Frame, FrameKind, Reason, Stack, StackEnd, Symbolization},
};

use crate::{Stacks, Workload, built, outcome};

/// Of the frames of managed methods that are named.
const NAMED_PERCENT: f64 = 99.5;

/// Of stacks that reach their root, while much of the server is still compiled without optimization.
const WHOLE_PERCENT: f64 = 90.0;

/// Paths whose answers take all layers of a server about as much.
pub const EVERY_LAYER: [&str; 3] = ["/plaintext", "/json", "/orders"];

/// What every flame graph of a server under load shows, and the least share of samples that have it.
const LAYERS: [(&str, f64); 4] = [
    ("Microsoft.AspNetCore.Server.Kestrel", 10.0),
    ("Microsoft.AspNetCore.Routing", 1.0),
    ("System.Private.CoreLib!System.Threading.", 10.0),
    ("web!Workload.", 1.0),
];

/// Asks the workload for each of the paths so often that it is compiled.
///
/// # Panics
/// When it does not answer.
pub fn warm_up(port: &str, paths: &[&str]) {
    const SECONDS: &str = "4";
    const CONNECTIONS: &str = "4";
    let asked = outcome(Command::new(built("load")).args([SECONDS, port.trim(), CONNECTIONS]).args(paths));
    assert_eq!(asked.code(), 0, "{}", asked.stderr);
}

/// Starts load on the ASP.NET Core workload: each of the paths as often as the others.
#[must_use]
pub fn load(port: &str, connections: u32, paths: &[&str]) -> Workload {
    let connections = connections.to_string();
    Workload::start_with("load", &[&["60", port.trim(), &connections], paths].concat())
}

/// Checks that a profile of it reads by name: the kernel, the runtime, the framework and the app.
///
/// # Panics
/// When it does not.
pub fn assert_reads_by_name(profile: &Profile) {
    let ledger = profile.ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
    for (what, named, least) in [
        ("methods", named_percent(methods(profile)), NAMED_PERCENT),
        ("the kernel's frames", named_percent(frames(profile).filter(|frame| is_kernel(frame))), 100.0),
    ] {
        assert!(named >= least, "{named} % of {what} have names, {:?}", ledger.unnamed);
    }
    let stacks = Stacks::of(profile);
    for (part, least) in LAYERS {
        let share = stacks.percent(|stack| stack.frames.iter().any(|frame| frame.starts_with(part)));
        assert!(share >= least, "{part} has {share} %: {stacks:#?}");
    }
    let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or(0);
    let whole = 100.0 * whole as f64 / ledger.reported as f64;
    assert!(whole >= WHOLE_PERCENT, "{whole} % of stacks are whole: {:?}", ledger.stacks);
    assert!(frames(profile).any(|frame| is_of(profile, frame, "/libcoreclr.so")), "{stacks:#?}");
}

/// Managed code in every sample. A young server spends a tenth of its time in stubs, which count calls or look for the
/// method that is meant; what calls others is never one of them.
fn methods(profile: &Profile) -> impl Iterator<Item = &Frame> {
    stacks(profile).flat_map(|stack| {
        let frames = stack.frames.iter().map(|frame| profile.frame(*frame));
        let user = frames.skip_while(|frame| is_kernel(frame)).enumerate();
        let methods = user.filter(|(depth, frame)| *depth > 0 || !is_stub(frame)).map(|(_, frame)| frame);
        methods.filter(|frame| matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled))
    })
}

fn is_kernel(frame: &Frame) -> bool {
    frame.kind == FrameKind::Kernel
}

fn is_stub(frame: &Frame) -> bool {
    frame.naming == Symbolization::Address(Reason::RuntimeStub)
}

fn is_of(profile: &Profile, frame: &Frame, file: &str) -> bool {
    frame.module.is_some_and(|module| profile.string(profile.module(module).path).ends_with(file))
}

fn named_percent<'a>(frames: impl Iterator<Item = &'a Frame>) -> f64 {
    let frames: Vec<_> = frames.collect();
    assert!(!frames.is_empty(), "there is nothing to name");
    let named = frames.iter().filter(|frame| matches!(frame.naming, Symbolization::Symbol(_))).count();
    100.0 * named as f64 / frames.len() as f64
}

/// The frames of every sample.
fn frames(profile: &Profile) -> impl Iterator<Item = &Frame> {
    stacks(profile).flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame))
}

/// The stack of every sample.
fn stacks(profile: &Profile) -> impl Iterator<Item = &Stack> {
    profile.samples().iter().map(|sample| profile.stack(sample.stack))
}
