//! Puts samples together: addresses become frames, frames stacks, and what was asked once is not asked again.

use std::collections::HashMap;

use profiler_common::unwind::StackEndReason;

use crate::sampler::{Comm, FrameFound, RawFrame, RawSample, RawStack, RawStackId};
use profiler_addresses::RuntimeAddress;
use profiler_processes::{Process, ProcessKey};
use profiler_profile::{
    FoundBy, Frame, FrameId, FrameKind, ProcessId, ProfileBuilder, Reason, SourceLocation, StackEnd, StackId,
    Symbolization, ThreadId,
};
use profiler_symbolize::{CodeKey, Symbolizer, placeholder};

/// One profile in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Whether user stacks are taken: without them a stack is whole when its kernel side is.
    has_user_stacks: bool,
    builder: ProfileBuilder,
    /// The frames of a code, inlined ones first.
    frames: HashMap<CodeKey, Box<[FrameId]>>,
    stacks: HashMap<StackKey, Placement>,
    processes: HashMap<ProcessKey, ProcessId>,
    threads: HashMap<(ProcessKey, u32, Comm), ThreadId>,
}

/// The two sides of a sample's stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    pub(super) kernel: Option<&'a RawStack>,
    pub(super) user: Option<&'a RawStack>,
}

/// The same key, the same stack: a process whose mappings, and whose JIT code where there is any, stand as
/// they stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackKey {
    process: ProcessKey,
    arrangement: usize,
    jit_epoch: u32,
    kernel: RawStackId,
    user: RawStackId,
}

/// What became of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Placed(StackId),
    /// The names of some of its code may still be on their way: of what was compiled at run time, or whose debug file
    /// is being downloaded.
    Waits,
}

impl Assembly {
    pub(super) fn new(has_user_stacks: bool) -> Self {
        Self { has_user_stacks, ..Self::default() }
    }

    /// Adds a sample, `started_ns` being the zero of its time. False when it has to be offered again at the
    /// end, with `names_are_complete`.
    pub(super) fn add(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        sample: &RawSample,
        sides: Sides<'_>,
        started_ns: u64,
        names_are_complete: bool,
    ) -> bool {
        let mut key = StackKey {
            process: process.key,
            arrangement: process.arrangement(sample.time_ns),
            jit_epoch: 0,
            kernel: sample.kernel_stack,
            user: sample.user_stack,
        };
        let mut placement = self.stacks.get(&key).copied();
        if placement == Some(Placement::Waits) {
            if !names_are_complete {
                return false;
            }
            key.jit_epoch = 1 + symbolizer.jit_epoch(process, sample.time_ns);
            placement = self.stacks.get(&key).copied();
        }
        let placement = placement.unwrap_or_else(|| {
            let placement = self.place(symbolizer, process, sample.time_ns, sides, names_are_complete);
            self.stacks.insert(key, placement);
            placement
        });
        let Placement::Placed(stack) = placement else { return false };
        let thread = self.thread(process, sample);
        let time_ns = sample.time_ns.saturating_sub(started_ns);
        self.builder.sample(time_ns, sample.cpu, thread, stack, 1);
        true
    }

    /// The profile so far. Names of processes are those they have now.
    pub(super) fn finish<'a>(self, process: impl Fn(ProcessKey) -> Option<&'a Process>) -> ProfileBuilder {
        let mut builder = self.builder;
        for (key, id) in &self.processes {
            if let Some(process) = process(*key) {
                builder.rename_process(*id, &process.comm);
            }
        }
        builder
    }

    fn place(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        time_ns: u64,
        sides: Sides<'_>,
        names_are_complete: bool,
    ) -> Placement {
        let (user, strays) = code_of(symbolizer, process, time_ns, sides.user);
        let kernel = sides.kernel.map(RawStack::frames).into_iter().flatten();
        let kernel = kernel.map(|frame| (CodeKey::Kernel(frame.address), frame));
        let mut frames = Vec::with_capacity(user.len());
        let mut waits = false;
        for (code, frame) in kernel.chain(user) {
            let may_wait = matches!(code, CodeKey::Jit(..)) || symbolizer.awaits_debug_file(code, process);
            if may_wait && !names_are_complete {
                // The rest is named all the same: what that takes must not wait for the end of sampling.
                waits = true;
            } else {
                let found_by = found_by(code, frame.found);
                let named = self.frames_of(symbolizer, process, code, frame.address, time_ns);
                frames.extend(named.iter().map(|frame| (*frame, found_by)));
            }
        }
        if waits {
            return Placement::Waits;
        }
        let end = if strays {
            StackEnd::BrokenFramePointer
        } else {
            self.end_of(sides, frames.last().map(|(frame, _)| *frame))
        };
        Placement::Placed(self.builder.walked_stack(frames, end))
    }

    fn frames_of(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        code: CodeKey,
        address: RuntimeAddress,
        time_ns: u64,
    ) -> &[FrameId] {
        let builder = &mut self.builder;
        self.frames
            .entry(code)
            .or_insert_with(|| name_frames(builder, symbolizer, process, code, address, time_ns))
    }

    /// Whether the outermost frame is where a process, a thread or the kernel's own work begins.
    fn end_of(&self, sides: Sides<'_>, root: Option<FrameId>) -> StackEnd {
        let Some(root) = root else { return StackEnd::Empty };
        let outer = sides.user.or(sides.kernel);
        if outer.is_some_and(|stack| stack.is_truncated) {
            return StackEnd::DepthLimit;
        }
        match outer.and_then(RawStack::end_reason) {
            Some(StackEndReason::Root) => return StackEnd::Root,
            Some(StackEndReason::NoMapping) => return StackEnd::NoMapping,
            Some(StackEndReason::UnreadableStack) => return StackEnd::UnreadableStack,
            Some(StackEndReason::UnsupportedRule) => return StackEnd::UnsupportedRule,
            Some(StackEndReason::Backwards) => return StackEnd::Backwards,
            Some(StackEndReason::DepthLimit) => return StackEnd::DepthLimit,
            // Code in which a thread begins has no caller, and need not say so.
            Some(StackEndReason::NullCaller | StackEndReason::BrokenFramePointer) | None => {}
        }
        let frame = self.builder.get_frame(root);
        let name = self.builder.get_string(frame.name);
        let is_root = match frame.kind {
            FrameKind::Kernel => !self.has_user_stacks || is_kernel_root(name),
            _ => is_user_root(name),
        };
        match outer.and_then(RawStack::end_reason) {
            _ if is_root => StackEnd::Root,
            Some(StackEndReason::BrokenFramePointer) => StackEnd::BrokenFramePointer,
            _ => StackEnd::Unknown,
        }
    }

    fn thread(&mut self, process: &Process, sample: &RawSample) -> ThreadId {
        let builder = &mut self.builder;
        let id = *self.processes.entry(process.key).or_insert_with(|| add_process(builder, process));
        *self
            .threads
            .entry((process.key, sample.tid, sample.comm))
            .or_insert_with(|| builder.thread(id, sample.tid, &sample.comm.text()))
    }
}

fn add_process(builder: &mut ProfileBuilder, process: &Process) -> ProcessId {
    let id = builder.process(process.pid, &process.comm);
    if let Some(container) = process.identity.as_ref().and_then(|identity| identity.container.as_deref()) {
        builder.set_container(id, container);
    }
    id
}

/// The functions in which processes and threads begin, in glibc and musl.
fn is_user_root(name: &str) -> bool {
    const ROOTS: [&str; 11] = [
        "_start",
        "__libc_start_call_main",
        "__libc_start_main",
        "__libc_start_main_impl",
        "libc_start_main_stage2",
        "start_thread",
        "start",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
    ];
    ROOTS.contains(&name)
}

/// The functions in which threads of the kernel begin.
fn is_kernel_root(name: &str) -> bool {
    const ROOTS: [&str; 3] = ["ret_from_fork_asm", "ret_from_fork", "kthread"];
    ROOTS.contains(&name)
}

/// The code of each frame of a user stack, as far as it leads through code; true when it strays from there. The
/// kernel's own walk takes whatever a register holds for a frame pointer, and what stands there for a return address.
fn code_of(
    symbolizer: &mut Symbolizer,
    process: &Process,
    time_ns: u64,
    stack: Option<&RawStack>,
) -> (Vec<(CodeKey, RawFrame)>, bool) {
    let mut frames = Vec::new();
    for frame in stack.map(RawStack::frames).into_iter().flatten() {
        let code = symbolizer.code_at(process, frame.address, time_ns);
        if frame.found == FrameFound::ByGetStack && matches!(code, CodeKey::Nowhere(Reason::NoMapping, _)) {
            return (frames, true);
        }
        frames.push((code, frame));
    }
    (frames, false)
}

fn found_by(code: CodeKey, found: FrameFound) -> FoundBy {
    match found {
        FrameFound::Sampled => FoundBy::Sample,
        FrameFound::ByGetStack if matches!(code, CodeKey::Kernel(_)) => FoundBy::Kernel,
        FrameFound::ByGetStack | FrameFound::ByFramePointer => FoundBy::FramePointer,
        FrameFound::ByCfi => FoundBy::Cfi,
        FrameFound::ByEpilogueScan => FoundBy::Code,
        FrameFound::Interrupted => FoundBy::SignalFrame,
    }
}

fn name_frames(
    builder: &mut ProfileBuilder,
    symbolizer: &mut Symbolizer,
    process: &Process,
    code: CodeKey,
    address: RuntimeAddress,
    time_ns: u64,
) -> Box<[FrameId]> {
    let answer = symbolizer.names(code, process, time_ns);
    let module = answer.module.as_ref().map(|(path, build_id)| builder.module(path, build_id));
    let functions = match &answer.names {
        Ok(symbolized) => &symbolized.functions[..],
        Err(reason) => {
            let mapping = process.find(address, time_ns).ok().map(|mapping| &**mapping);
            let name = builder.string(&placeholder(&answer, *reason, mapping));
            let naming = Symbolization::Address(*reason);
            let frame =
                Frame { name, kind: answer.kind, module, address: answer.address, location: None, naming };
            return [builder.frame(frame)].into();
        }
    };
    let source = answer.names.as_ref().map(|symbolized| symbolized.source);
    let frames = functions.iter().enumerate().map(|(index, function)| {
        let is_outermost = index + 1 == functions.len();
        let location = function
            .location
            .as_ref()
            .map(|(file, line)| SourceLocation { file: builder.string(file), line: *line });
        let naming = source.map_or_else(|reason| Symbolization::Address(*reason), Symbolization::Symbol);
        let name = builder.string(&function.name);
        let kind = if is_outermost { answer.kind } else { FrameKind::Inlined };
        builder.frame(Frame { name, kind, module, address: answer.address, location, naming })
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_dotnet_symbols::managed::NameStyle;
    use profiler_processes::{ProcFs, ProcessFilter, ProcessTable, root_directory::RootDirectory};
    use profiler_profile::SymbolSource;
    use profiler_symbolize::{NativeOptions, debug_file::DebugDirectories};

    const FUNCTION: &str = "work";

    fn stack(end_reason: Option<StackEndReason>) -> RawStack {
        RawStack {
            addresses: vec![1],
            end_reason: end_reason.map_or(0, |end| end as u8),
            ..RawStack::default()
        }
    }

    /// The end of a stack whose outermost frame is a function of that name.
    fn end(has_user_stacks: bool, sides: Sides<'_>, kind: FrameKind, name: &str) -> StackEnd {
        let mut assembly = Assembly::new(has_user_stacks);
        let name = assembly.builder.string(name);
        let (address, naming) = (ElfAddress(0), Symbolization::Symbol(SymbolSource::Kallsyms));
        let frame = Frame { name, kind, module: None, address, location: None, naming };
        let root = assembly.builder.frame(frame);
        assembly.end_of(sides, Some(root))
    }

    fn user_end(stack: &RawStack, name: &str) -> StackEnd {
        end(true, Sides { kernel: None, user: Some(stack) }, FrameKind::Native, name)
    }

    #[test]
    fn a_walk_by_tables_says_where_it_ended() {
        for (end_reason, expected) in [
            (StackEndReason::Root, StackEnd::Root),
            (StackEndReason::NoMapping, StackEnd::NoMapping),
            (StackEndReason::UnreadableStack, StackEnd::UnreadableStack),
            (StackEndReason::UnsupportedRule, StackEnd::UnsupportedRule),
            (StackEndReason::Backwards, StackEnd::Backwards),
            (StackEndReason::DepthLimit, StackEnd::DepthLimit),
            (StackEndReason::NullCaller, StackEnd::Unknown),
            (StackEndReason::BrokenFramePointer, StackEnd::BrokenFramePointer),
        ] {
            assert_eq!(user_end(&stack(Some(end_reason)), FUNCTION), expected);
        }
    }

    #[test]
    fn code_in_which_a_thread_begins_needs_no_caller() {
        for end_reason in [None, Some(StackEndReason::NullCaller), Some(StackEndReason::BrokenFramePointer)] {
            assert_eq!(user_end(&stack(end_reason), "_start"), StackEnd::Root);
        }
        for end_reason in [StackEndReason::NoMapping, StackEndReason::Backwards, StackEndReason::DepthLimit] {
            assert_ne!(user_end(&stack(Some(end_reason)), "_start"), StackEnd::Root);
        }
        assert_eq!(user_end(&stack(None), FUNCTION), StackEnd::Unknown);
    }

    #[test]
    fn a_stack_that_was_cut_has_no_other_end() {
        let cut = RawStack { is_truncated: true, ..stack(None) };
        assert_eq!(user_end(&cut, "_start"), StackEnd::DepthLimit);
    }

    #[test]
    fn a_stack_of_the_kernel_is_whole_when_nothing_else_was_asked_for() {
        let kernel = stack(None);
        let sides = Sides { kernel: Some(&kernel), user: None };
        assert_eq!(end(false, sides, FrameKind::Kernel, "do_syscall_64"), StackEnd::Root);
        assert_eq!(end(true, sides, FrameKind::Kernel, "do_syscall_64"), StackEnd::Unknown);
        assert_eq!(end(true, sides, FrameKind::Kernel, "ret_from_fork"), StackEnd::Root);
        assert_eq!(Assembly::new(true).end_of(sides, None), StackEnd::Empty);
    }

    /// How many frames of a stack of this process lead through code, and whether it strays.
    fn followed(addresses: &[u64], end_reason: Option<StackEndReason>) -> (usize, bool) {
        let proc = Arc::new(ProcFs::live());
        let places = Arc::new(DebugDirectories::with_host(RootDirectory::open("/".as_ref()).unwrap()));
        let options = NativeOptions { inlines: false, lines: false };
        let mut symbolizer = Symbolizer::new(
            Arc::clone(&proc),
            places,
            options,
            NameStyle::default(),
            crate::sys::kernel_names::KernelNames::load_boxed,
        );
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let key = table.sampled(std::process::id(), 1, "test");
        let stack = RawStack { addresses: addresses.into(), ..stack(end_reason) };
        let (frames, strays) = code_of(&mut symbolizer, table.get(key).unwrap(), 1, Some(&stack));
        (frames.len(), strays)
    }

    #[test]
    fn the_kernel_s_own_walk_ends_where_it_strays_from_all_mappings() {
        const NOWHERE: u64 = 0x1238;
        // Aligned to 8 bytes.
        let code = (followed as fn(_, _) -> _ as usize as u64).next_multiple_of(8);
        assert_eq!(followed(&[code, code, code], None), (3, false));
        assert_eq!(followed(&[code, code, NOWHERE, code], None), (2, true));
        assert_eq!(followed(&[NOWHERE, code], None), (2, false), "what was sampled is what ran");
        let unwound = Some(StackEndReason::NoMapping);
        assert_eq!(followed(&[code, NOWHERE], unwound), (2, false), "an unwound stack has its own end");
    }
}
