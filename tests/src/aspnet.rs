//! Assertions on profiles of an ASP.NET Core server under load, shared by the tests on the host and in containers.

use std::process::Command;

use profiler::{
    Profile,
    profile::{Frame, FrameKind, Reason, Stack, StackEnd, SymbolSource, Symbolization},
};

use crate::{FoldedStacks, Workload, run_command, workload_path};

/// The least share of managed frames that are symbolized.
const NAMED_PERCENT: f64 = 99.5;

/// The least share of stacks that reach their root, once the unwind tables are loaded.
const WHOLE_PERCENT: f64 = 98.0;

/// The largest share of samples in which managed code calls an unsymbolized native function.
const MAX_UNSYMBOLIZED_CALLEES_PERCENT: f64 = 5.0;

/// The largest share of samples with a stub of unknown kind.
const MAX_UNKNOWN_STUBS_PERCENT: f64 = 5.0;

/// Request paths that exercise all layers of a server about equally.
pub const EVERY_LAYER: [&str; 3] = ["/plaintext", "/json", "/orders"];

/// Name prefixes that every flame graph of a server under load contains, and the least share of samples with each.
const LAYERS: [(&str, f64); 4] = [
    ("Microsoft.AspNetCore.Server.Kestrel", 10.0),
    ("Microsoft.AspNetCore.Routing", 1.0),
    ("System.Private.CoreLib!System.Threading.", 10.0),
    ("web!Workload.", 1.0),
];

/// Requests each of the paths until the JIT has compiled their code.
///
/// # Panics
/// Panics if a request fails.
pub fn warm_up(port: &str, paths: &[&str]) {
    const SECONDS: &str = "4";
    const CONNECTIONS: &str = "4";
    let asked = run_command(
        Command::new(workload_path("load")).args([SECONDS, port.trim(), CONNECTIONS]).args(paths),
    );
    assert_eq!(asked.code(), 0, "{}", asked.stderr);
}

/// Starts load on the ASP.NET Core workload. Each path is requested as often as the others.
#[must_use]
pub fn load(port: &str, connections: u32, paths: &[&str]) -> Workload {
    let connections = connections.to_string();
    Workload::start_with("load", &[&["600", port.trim(), &connections], paths].concat())
}

/// Checks that kernel, runtime, framework and application frames of a profile are symbolized.
///
/// # Panics
/// Panics if they are not.
pub fn assert_symbolized(profile: &Profile) {
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
    for (what, named, least) in [
        ("methods", named_percent(methods(profile)), NAMED_PERCENT),
        ("the kernel's frames", named_percent(frames(profile).filter(|frame| is_kernel(frame))), 100.0),
    ] {
        assert!(named >= least, "{named} % of {what} have names, {:?}", ledger.unsymbolized);
    }
    for (what, percent, most) in [
        ("callees", percent_of_stacks(profile, has_unsymbolized_callee), MAX_UNSYMBOLIZED_CALLEES_PERCENT),
        ("stubs", percent_of_stacks(profile, has_unknown_stub), MAX_UNKNOWN_STUBS_PERCENT),
    ] {
        assert!(percent <= most, "{percent} % of stacks have unsymbolized {what}, {:?}", ledger.unsymbolized);
    }
    let stacks = FoldedStacks::from_profile(profile);
    for (part, least) in LAYERS {
        let share = stacks.percent(|stack| stack.frames.iter().any(|frame| frame.starts_with(part)));
        assert!(share >= least, "{part} has {share} %: {stacks:#?}");
    }
    let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or(0);
    let whole = 100.0 * whole as f64 / ledger.reported as f64;
    assert!(whole >= WHOLE_PERCENT, "{whole} % of stacks are whole: {:?}", ledger.stacks);
    assert!(frames(profile).any(|frame| is_of(profile, frame, "/libcoreclr.so")), "{stacks:#?}");
}

/// The managed frames of every sample, without leaf stubs: a newly started server spends a tenth of its time in
/// call-counting and lookup stubs, which are never callers.
fn methods(profile: &Profile) -> impl Iterator<Item = &Frame> {
    stacks(profile).flat_map(|stack| {
        let frames = stack.frames.iter().map(|frame| profile.frame(*frame));
        let user = frames.skip_while(|frame| is_kernel(frame)).enumerate();
        let methods = user.filter(|(depth, frame)| *depth > 0 || !is_stub(frame)).map(|(_, frame)| frame);
        methods.filter(|frame| is_method(frame))
    })
}

/// Whether a managed method calls an unsymbolized native function, in these frames, leaf first.
fn has_unsymbolized_callee(frames: &[&Frame]) -> bool {
    let is_unsymbolized = |frame: &Frame| matches!(frame.symbolization, Symbolization::Address(_));
    let is_native = |frame: &Frame| frame.kind == FrameKind::Native;
    frames.windows(2).any(|pair| is_native(pair[0]) && is_unsymbolized(pair[0]) && is_method(pair[1]))
}

/// Whether a stub is of unknown kind.
fn has_unknown_stub(frames: &[&Frame]) -> bool {
    frames.iter().any(|frame| frame.symbolization == Symbolization::Address(Reason::RuntimeStub))
}

/// The share of samples whose frames satisfy a condition, leaf first.
fn percent_of_stacks(profile: &Profile, is_counted: impl Fn(&[&Frame]) -> bool) -> f64 {
    let frames = |stack: &Stack| stack.frames.iter().map(|frame| profile.frame(*frame)).collect::<Vec<_>>();
    let counted = stacks(profile).filter(|stack| is_counted(&frames(stack))).count();
    100.0 * counted as f64 / profile.samples().len() as f64
}

fn is_method(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled)
}

fn is_kernel(frame: &Frame) -> bool {
    frame.kind == FrameKind::Kernel
}

fn is_stub(frame: &Frame) -> bool {
    let reason = Symbolization::Address(Reason::RuntimeStub);
    [reason, Symbolization::Symbol(SymbolSource::StubCode)].contains(&frame.symbolization)
}

fn is_of(profile: &Profile, frame: &Frame, file: &str) -> bool {
    frame.module.is_some_and(|module| profile.string(profile.module(module).path).ends_with(file))
}

fn named_percent<'a>(frames: impl Iterator<Item = &'a Frame>) -> f64 {
    let frames: Vec<_> = frames.collect();
    assert!(!frames.is_empty(), "there is nothing to name");
    let named = frames.iter().filter(|frame| matches!(frame.symbolization, Symbolization::Symbol(_))).count();
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
