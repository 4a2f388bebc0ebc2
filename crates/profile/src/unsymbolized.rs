//! Merges consecutive unsymbolized frames of one module into one frame `[module]`, for pictures and tables.

use std::{borrow::Cow, collections::HashMap};

use profiler_addresses::ElfAddress;

use crate::{
    FoundBy, Frame, FrameId, FrameKind, ModuleId, Profile, ProfileCopy, Stack, StackId, Symbolization,
    ThreadId,
};

/// What threads of the .NET runtime do, by their names, which the kernel cuts after 15 bytes.
const RUNTIME_THREADS: [(&str, &str); 11] = [
    (".NET BGC", "background garbage collection"),
    (".NET EventPipe", "EventPipe"),
    (".NET Finalizer", "finalizer"),
    (".NET Server GC", "garbage collection"),
    (".NET SigHandler", "signal handler"),
    (".NET Sockets", "sockets"),
    (".NET SynchManag", "synchronization"),
    (".NET TP Gate", "thread pool gate"),
    (".NET TP Worker", "thread pool worker"),
    (".NET Tiered Com", "tiered compilation"),
    (".NET Timer", "timer"),
];

/// The beginnings of the file names of libraries that start threads.
const THREAD_LIBRARIES: [&str; 3] = ["libc.", "libpthread", "ld-"];

impl Profile {
    /// A copy in which each run of unsymbolized frames of one module is one frame `[libfoo.so]`, with the reason of its
    /// leaf-most frame. Frames without a module stay as they are, and so does the ledger.
    ///
    /// The addresses of a stripped module otherwise fill half of a flame graph with boxes that say nothing. The frame at the
    /// root of a thread of the .NET runtime is `[libcoreclr.so: tiered compilation]`, by the name of the thread.
    #[must_use]
    pub fn with_merged_unsymbolized_frames(&self) -> Cow<'_, Self> {
        if !self.frames().any(|frame| unsymbolized_module(frame).is_some()) {
            return Cow::Borrowed(self);
        }
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let role = self.runtime_role(sample.thread);
            let stack = *stacks
                .entry((sample.stack, role))
                .or_insert_with(|| merge_stack(self, self.stack(sample.stack), role, &mut copy));
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        Cow::Owned(copy.finish(self.header().clone()))
    }

    /// What a thread of the .NET runtime does.
    fn runtime_role(&self, thread: ThreadId) -> Option<&'static str> {
        let name = self.string(self.thread(thread).comm);
        RUNTIME_THREADS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }
}

/// The position of the frame at the root, without those that start threads, if it is unsymbolized native code.
fn unsymbolized_root(profile: &Profile, stack: &Stack) -> Option<usize> {
    let starts_threads = |id: &FrameId| {
        let file = profile.module_name(profile.frame(*id).module);
        THREAD_LIBRARIES.iter().any(|library| file.starts_with(library))
    };
    let root = stack.frames.iter().rposition(|id| !starts_threads(id))?;
    let frame = profile.frame(stack.frames[root]);
    (frame.kind == FrameKind::Native && unsymbolized_module(frame).is_some()).then_some(root)
}

/// The module of an unsymbolized frame; `None` for symbolized frames and those without a module.
fn unsymbolized_module(frame: &Frame) -> Option<ModuleId> {
    match frame.symbolization {
        Symbolization::Address(_) => frame.module,
        Symbolization::Symbol(_) => None,
    }
}

fn merge_stack(profile: &Profile, stack: &Stack, role: Option<&str>, copy: &mut ProfileCopy<'_>) -> StackId {
    let root = role.and_then(|_| unsymbolized_root(profile, stack));
    // The run of the root begins at its leaf-most frame.
    let root_run = root.map(|root| {
        let module = profile.frame(stack.frames[root]).module;
        let is_other = |id: &FrameId| unsymbolized_module(profile.frame(*id)) != module;
        stack.frames[..root].iter().rposition(is_other).map_or(0, |other| other + 1)
    });
    let mut merged: Vec<(FrameId, FoundBy)> = Vec::with_capacity(stack.frames.len());
    let mut run = None;
    for (index, (id, found_by)) in stack.frames.iter().zip(&stack.found_by).enumerate() {
        let frame = profile.frame(*id);
        let module = unsymbolized_module(frame);
        if module.is_some() && module == run {
            continue;
        }
        run = module;
        let id = match module {
            Some(module) => {
                let role = role.filter(|_| root_run == Some(index));
                module_frame(profile, frame, module, role, copy)
            }
            None => copy.frame(*id),
        };
        merged.push((id, *found_by));
    }
    copy.builder().unwound_stack(merged, stack.end)
}

fn module_frame(
    profile: &Profile,
    frame: &Frame,
    module: ModuleId,
    role: Option<&str>,
    copy: &mut ProfileCopy<'_>,
) -> FrameId {
    let file_name = profile.module_name(Some(module));
    let name = match role {
        // Kernel modules and the vdso have their brackets already.
        _ if file_name.starts_with('[') => file_name.to_owned(),
        None => format!("[{file_name}]"),
        Some(role) => format!("[{file_name}: {role}]"),
    };
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
        profile_of_thread("app", frames)
    }

    fn profile_of_thread(comm: &str, frames: &[&str]) -> Profile {
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
        let thread = builder.thread(process, 1, comm);
        builder.sample(0, 0, thread, stack, 1);
        builder.finish(Header::default())
    }

    /// The names of the only stack, root first.
    fn merged(frames: &[&str]) -> Vec<String> {
        merged_of(&profile(frames))
    }

    fn merged_of(profile: &Profile) -> Vec<String> {
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
    fn the_root_of_a_thread_of_the_runtime_has_its_role() {
        let names = |frames: &[&str]| merged_of(&profile_of_thread(".NET Tiered Com", frames));
        let runtime = "?@/rt/libcoreclr.so";
        let role = "[libcoreclr.so: tiered compilation]";
        let frames = ["?@/lib/libc.so.6", runtime, runtime, "?@/rt/libclrjit.so", runtime];
        assert_eq!(names(&frames), ["[libc.so.6]", role, "[libclrjit.so]", "[libcoreclr.so]"]);
        assert_eq!(names(&[runtime, runtime, "managed"]), [role, "managed"]);
        assert_eq!(names(&["managed", runtime]), ["managed", "[libcoreclr.so]"]);
        let below_another_library = ["?@/app/libhost.so", runtime];
        assert_eq!(names(&below_another_library), ["[libhost.so: tiered compilation]", "[libcoreclr.so]"]);
        assert_eq!(merged_of(&profile_of_thread(".NET Tiered", &frames))[1], "[libcoreclr.so]");
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
            assert_eq!(merged.total_value(), profile.total_value());
            assert_eq!(merged.ledger(), profile.ledger());
            assert_eq!(merged.header(), profile.header());
        }
    }
}
