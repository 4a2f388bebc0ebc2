//! Merges consecutive unsymbolized frames of one module into one frame `[module]`, for pictures and tables.

use std::{borrow::Cow, collections::HashMap};

use profiler_addresses::ElfAddress;

use crate::{FoundBy, Frame, FrameId, ModuleId, Profile, ProfileCopy, Stack, StackId, Symbolization};

impl Profile {
    /// A copy in which each run of unsymbolized frames of one module is one frame `[libfoo.so]`, with the reason of its
    /// leaf-most frame. Frames without a module stay as they are, and so does the ledger.
    ///
    /// The addresses of a stripped module otherwise fill half of a flame graph with boxes that say nothing.
    #[must_use]
    pub fn with_merged_unsymbolized_frames(&self) -> Cow<'_, Self> {
        if !self.frames().any(|frame| unsymbolized_module(frame).is_some()) {
            return Cow::Borrowed(self);
        }
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let stack = *stacks
                .entry(sample.stack)
                .or_insert_with(|| merge_stack(self, self.stack(sample.stack), &mut copy));
            copy.sample(sample, stack);
        }
        Cow::Owned(copy.finish(self.header().clone()))
    }
}

/// The module of an unsymbolized frame; `None` for symbolized frames and those without a module.
fn unsymbolized_module(frame: &Frame) -> Option<ModuleId> {
    match frame.symbolization {
        Symbolization::Address(_) => frame.module,
        Symbolization::Symbol(_) => None,
    }
}

fn merge_stack(profile: &Profile, stack: &Stack, copy: &mut ProfileCopy<'_>) -> StackId {
    let mut merged: Vec<(FrameId, FoundBy)> = Vec::with_capacity(stack.frames.len());
    let mut run = None;
    for (id, found_by) in stack.frames.iter().zip(&stack.found_by) {
        let frame = profile.frame(*id);
        let module = unsymbolized_module(frame);
        if module.is_some() && module == run {
            continue;
        }
        run = module;
        let id = match module {
            Some(module) => module_frame(profile, frame, module, copy),
            None => copy.frame(*id),
        };
        merged.push((id, *found_by));
    }
    copy.builder().unwound_stack(merged, stack.end)
}

fn module_frame(profile: &Profile, frame: &Frame, module: ModuleId, copy: &mut ProfileCopy<'_>) -> FrameId {
    let file_name = profile.module_name(Some(module));
    // Kernel modules and the vdso have their brackets already.
    let name = if file_name.starts_with('[') { file_name.to_owned() } else { format!("[{file_name}]") };
    let name = copy.builder().string(&name);
    let translated = copy.translated(frame);
    copy.builder().frame(Frame { name, address: ElfAddress(0), location: None, ..translated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameKind, Header, ProfileBuilder, Reason, StackEnd, test_profile};

    /// A stack of `name@module` frames, root first; `?` is an unsymbolized frame at a new address.
    fn profile(frames: &[&str]) -> Profile {
        let mut builder = ProfileBuilder::default();
        let mut ids: Vec<_> = frames
            .iter()
            .enumerate()
            .map(|(index, text)| {
                let address = index as u64 * 16;
                let Some(module) = text.strip_prefix("?@") else {
                    return test_profile::function(&mut builder, text, address);
                };
                let module = (!module.is_empty()).then(|| builder.module(module, &[]));
                let name = builder.string(&format!("[{address:#x}]"));
                builder.frame(Frame {
                    name,
                    kind: FrameKind::Native,
                    module,
                    address: ElfAddress(address),
                    location: None,
                    symbolization: Symbolization::Address(Reason::NoSymbols),
                })
            })
            .collect();
        ids.reverse();
        let stack = builder.stack(ids, StackEnd::Root);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(0, 0, thread, stack, 1);
        builder.finish(Header::default())
    }

    /// The names of the only stack, root first.
    fn merged(frames: &[&str]) -> Vec<String> {
        let profile = profile(frames);
        let merged = profile.with_merged_unsymbolized_frames();
        let stack = merged.stack(merged.samples()[0].stack);
        let names = stack.frames.iter().rev().map(|id| merged.string(merged.frame(*id).name).to_owned());
        names.collect()
    }

    #[test]
    fn a_run_of_unsymbolized_frames_of_one_module_is_one_frame() {
        let frames = ["main", "?@/rt/libclrjit.so", "?@/rt/libclrjit.so", "?@/rt/libcoreclr.so", "leaf"];
        assert_eq!(merged(&frames), ["main", "[libclrjit.so]", "[libcoreclr.so]", "leaf"]);
    }

    #[test]
    fn a_symbolized_frame_separates_two_runs() {
        let frames = ["?@/a.so", "main", "?@/a.so", "?@[vdso]"];
        assert_eq!(merged(&frames), ["[a.so]", "main", "[a.so]", "[vdso]"]);
    }

    #[test]
    fn frames_without_a_module_keep_their_addresses() {
        assert_eq!(merged(&["main", "?@", "?@"]), ["main", "[0x10]", "[0x20]"]);
        assert!(matches!(profile(&["main"]).with_merged_unsymbolized_frames(), Cow::Borrowed(_)));
    }

    #[test]
    fn merging_keeps_every_sample_and_the_ledger() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            let merged = profile.with_merged_unsymbolized_frames();
            assert_eq!(merged.sample_count(), profile.sample_count());
            assert_eq!(merged.ledger(), profile.ledger());
            assert_eq!(merged.header(), profile.header());
        }
    }
}
