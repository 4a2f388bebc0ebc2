//! `perf-PID.map` and `perfinfo-PID.map` of the processes with JIT or precompiled code, from the frames of the profile.
//!
//! The runtime writes these files with all of its methods and images. A profile has those that were sampled.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt::Write as _,
};

use profiler_profile::{FrameId, FrameKind, FrameView, Profile, StackId, StringId, Symbolization};

use crate::{
    label,
    perf_script::{Printed, is_managed},
};

/// The longest distance between two sampled addresses of one line, bytes. Few methods are longer, so that a longer
/// distance can contain code of methods that were not sampled.
const MAX_GAP_BYTES: u64 = 4 << 10;

/// The JIT and precompiled frames of each process that has such frames, by process id.
///
/// Frames do not name the runtime. Such code is that of .NET, except with a perf map or jitdump of another runtime.
pub(super) fn managed_frames(profile: &Profile) -> BTreeMap<u32, BTreeSet<FrameId>> {
    let mut stacks = BTreeMap::<u32, HashSet<StackId>>::new();
    for sample in profile.sample_views() {
        stacks.entry(sample.thread().process().pid()).or_default().insert(sample.stack().id());
    }
    let is_managed: Vec<bool> = profile.frame_views().map(is_managed).collect();
    let frames = stacks.into_iter().map(|(pid, stacks)| {
        let frames = stacks.iter().flat_map(|stack| &profile.stack(*stack).frames);
        (pid, frames.copied().filter(|frame| is_managed[frame.index()]).collect::<BTreeSet<_>>())
    });
    frames.filter(|(_, frames)| !frames.is_empty()).collect()
}

/// The text of `perf-PID.map`: a line `ADDRESS SIZE SYMBOL` for each range of JIT code, with hexadecimal numbers.
///
/// A range reaches from the lowest to the highest sampled address of a function, without addresses of others between.
pub(super) fn perf_map(profile: &Profile, frames: &BTreeSet<FrameId>) -> String {
    let mut text = String::new();
    for Range { first, last, frame } in ranges(profile, frames) {
        let size = last.saturating_sub(first).saturating_add(1);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{first:x} {size:x} {}", symbol(profile.frame_view(frame)));
    }
    text
}

/// The text of `perfinfo-PID.map`: a line `ImageLoad;PATH;GUID;` for each image with precompiled code.
///
/// A profile has neither the GUIDs of images nor their base addresses: the fields are empty and absent.
pub(super) fn perf_info(profile: &Profile, frames: &BTreeSet<FrameId>) -> String {
    let frames = frames.iter().map(|id| profile.frame_view(*id));
    let images = frames.filter(|frame| frame.kind() == FrameKind::Precompiled).filter_map(FrameView::module);
    let paths = images.map(|module| label::clean(module.path()));
    let paths: BTreeSet<_> = paths.filter(|path| !path.is_empty()).collect();
    paths.iter().map(|path| format!("ImageLoad;{path};;\n")).collect()
}

/// Addresses of one function of JIT code.
struct Range {
    first: u64,
    last: u64,
    /// A frame of the function.
    frame: FrameId,
}

/// The ranges of the symbolized JIT frames, by address.
fn ranges(profile: &Profile, frames: &BTreeSet<FrameId>) -> Vec<Range> {
    let mut addresses: Vec<(u64, StringId, FrameId)> = frames
        .iter()
        .map(|id| (*id, profile.frame(*id)))
        .filter(|(_, frame)| frame.kind == FrameKind::Jit)
        .filter(|(_, frame)| matches!(frame.symbolization, Symbolization::Symbol(_)))
        .map(|(id, frame)| (frame.address.0, frame.name, id))
        .collect();
    addresses.sort_unstable();
    let mut ranges = Vec::<Range>::new();
    for (address, name, frame) in addresses {
        match ranges.last_mut() {
            Some(range)
                if profile.frame(range.frame).name == name && address - range.last <= MAX_GAP_BYTES =>
            {
                range.last = address;
            }
            _ => ranges.push(Range { first: address, last: address, frame }),
        }
    }
    ranges
}

/// The symbol as .NET writes it into a perf map, with its assembly in brackets before it: `[App] Demo.Work(int64)`.
fn symbol(frame: FrameView<'_>) -> String {
    let Printed { module, name, has_assembly } = Printed::of(frame);
    if has_assembly { format!("[{module}] {name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{Frame, Header, ProfileBuilder, Reason, StackEnd, SymbolSource};

    const SYMBOL: Symbolization = Symbolization::Symbol(SymbolSource::RuntimeEvents);

    /// A profile of process 7 with a sample of each frame.
    fn profile(frames: &[(&str, FrameKind, u64, Symbolization)]) -> Profile {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(7, "app");
        let thread = builder.thread(process, 7, "app");
        let image = builder.module("/app/A;pp.dll", &[]);
        for &(name, kind, address, symbolization) in frames {
            let module = (kind != FrameKind::Jit).then_some(image);
            let (name, address) = (builder.string(name), ElfAddress(address));
            let frame = Frame { name, kind, module, address, location: None, symbolization };
            let frame = builder.frame(frame);
            let stack = builder.stack(vec![frame], StackEnd::Root);
            builder.sample(0, 0, thread, stack, 1);
        }
        builder.finish(Header::default())
    }

    #[test]
    fn a_line_ends_where_another_function_or_a_gap_begins() {
        let jit = |name, address| (name, FrameKind::Jit, address, SYMBOL);
        let profile = profile(&[
            jit("App!A.F(int32)", 0x7f00_0000_1040),
            jit("App!A.F(int32)", 0x7f00_0000_1000),
            jit("stub", 0x7f00_0000_1041),
            jit("App!A.F(int32)", 0x7f00_0000_1050),
            jit("App!A.F(int32)", 0x7f00_0000_2051),
            (
                "[jit 0x7f0000001060]",
                FrameKind::Jit,
                0x7f00_0000_1060,
                Symbolization::Address(Reason::NoMapping),
            ),
            ("App!A.G()", FrameKind::Precompiled, 0x1060, SYMBOL),
        ]);
        let frames = managed_frames(&profile);
        assert_eq!(
            perf_map(&profile, &frames[&7]),
            "7f0000001000 41 [App] A.F(int32)\n\
             7f0000001041 1 stub\n\
             7f0000001050 1 [App] A.F(int32)\n\
             7f0000002051 1 [App] A.F(int32)\n"
        );
        assert_eq!(perf_info(&profile, &frames[&7]), "ImageLoad;/app/A:pp.dll;;\n");
    }

    #[test]
    fn a_process_without_managed_code_has_no_map() {
        let profile = profile(&[("main", FrameKind::Native, 0x1000, SYMBOL)]);
        assert!(managed_frames(&profile).is_empty());
    }

    #[test]
    fn the_largest_addresses_have_lines() {
        let profile = profile(&[("f", FrameKind::Jit, u64::MAX, SYMBOL), ("f", FrameKind::Jit, 0, SYMBOL)]);
        assert_eq!(perf_map(&profile, &managed_frames(&profile)[&7]), "0 1 f\nffffffffffffffff 1 f\n");
    }
}
