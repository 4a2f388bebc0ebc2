//! Stacks of waits with those of their wakers, as offwaketime of BCC shows them: from the root, the stack that waits, `--`, the
//! stack of the waker from its leaf to its root, and the name of the waker.

use std::collections::HashMap;

use profiler_addresses::{ElfAddress, MonotonicTime};
use profiler_processes::{Pid, Process};
use profiler_profile::{
    FoundBy, Frame, FrameId, FrameKind, ProfileBuilder, StackId, SymbolSource, Symbolization, ThreadId,
};
use profiler_sampler::{Comm, Origin, RawSample};
use profiler_symbolize::Symbolizer;

use super::{CachedStack, MAX_DEFERRED_SAMPLES, ProfileAssembler, SampleOfThread, SampleStacks};

/// The frame between a waiting stack and that of its waker.
const SEPARATOR: &str = "--";

/// The name of the waker where a thread was woken by an interrupt: a timer, a device. The task that was interrupted is a
/// bystander.
const INTERRUPT: &str = "[interrupt]";

/// The kernel function that wakes. Frames below it are of the tracepoint.
const WAKE_UP: &str = "try_to_wake_up";

/// The frames at the leaf among which the kernel function that wakes is searched: the BPF program, the tracepoint, the function.
const MAX_TRACEPOINT_FRAMES: usize = 8;

/// The waker of a thread that waited.
pub(in crate::session) struct SampleWaker<'a> {
    /// Its process; that of the waiting thread where its own is no target: then it has a kernel stack alone.
    pub(in crate::session) process: &'a Process,
    pub(in crate::session) stacks: SampleStacks,
    pub(in crate::session) name: WakerName,
}

/// The name of a waker: that of its thread, and the id of its process if it is not that of the thread that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::session) struct WakerName {
    pub(in crate::session) comm: Comm,
    pub(in crate::session) other_pid: Option<Pid>,
}

impl WakerName {
    fn text(self) -> String {
        let comm = self.comm.text();
        self.other_pid.map_or_else(|| comm.to_string(), |pid| format!("{comm} (pid {pid})"))
    }
}

/// A sample of a wait whose waker is known. Both stacks are put together at the end of the interval.
#[derive(Debug)]
pub(super) struct DeferredWake {
    pub(super) time: MonotonicTime,
    cpu: u32,
    thread: ThreadId,
    pub(super) value: u64,
    pub(super) origin: Origin,
    pub(super) stack: CachedStack,
    pub(super) waker: CachedStack,
    waker_name: WakerName,
}

/// Stacks that were put together: of the wait, of the waker, its name.
pub(super) type WokenStacks = HashMap<(StackId, StackId, WakerName), StackId>;

impl ProfileAssembler {
    /// Adds a sample with its waker.
    pub(super) fn add_wake(
        &mut self,
        symbolizer: &mut Symbolizer,
        sample: &RawSample,
        (thread, stack): (ThreadId, CachedStack),
        waker: SampleWaker<'_>,
    ) {
        let waker_name = waker.name;
        let waker = self.cached_stack(symbolizer, waker.process, sample.time, waker.stacks);
        let RawSample { time, cpu, value, origin, .. } = *sample;
        let wake = DeferredWake { time, cpu, thread, value, origin, stack, waker, waker_name };
        self.deferred_wakes.push(wake);
    }

    /// Whether a waker can be kept until the end of the interval.
    pub(super) fn may_defer_wake(&self) -> bool {
        self.deferred_wakes.len() < MAX_DEFERRED_SAMPLES
    }

    /// Adds the sample of a wait; `waker` is `None` where the waker's process has ended.
    pub(super) fn push_wake(
        &mut self,
        wake: &DeferredWake,
        stack: StackId,
        waker: Option<StackId>,
        known: &mut WokenStacks,
    ) {
        let stack = waker.map_or(stack, |waker| {
            *known
                .entry((stack, waker, wake.waker_name))
                .or_insert_with(|| put_together(&mut self.builder, stack, waker, &wake.waker_name.text()))
        });
        let DeferredWake { time, cpu, thread, value, origin, .. } = *wake;
        self.push(origin, SampleOfThread { time, cpu, thread, stack, value });
    }
}

/// The stack of a wait below that of its waker.
fn put_together(builder: &mut ProfileBuilder, stack: StackId, waker: StackId, name: &str) -> StackId {
    let (waker_frames, is_interrupt) = waker_frames(builder, waker);
    let name = label(builder, if is_interrupt { INTERRUPT } else { name });
    let separator = label(builder, SEPARATOR);
    let wait = builder.get_stack(stack);
    let end = wait.end;
    let wait: Vec<_> = wait.frames.iter().copied().zip(wait.found_by.iter().copied()).collect();
    let frames = [(name, FoundBy::NotRecorded)]
        .into_iter()
        .chain(waker_frames.into_iter().rev())
        .chain([(separator, FoundBy::NotRecorded)])
        .chain(wait);
    let frames: Vec<_> = frames.collect();
    builder.unwound_stack(frames, end)
}

/// The frames of a waker, leaf first, from the function that wakes on, and whether it was interrupted: then up to the interrupt.
fn waker_frames(builder: &ProfileBuilder, waker: StackId) -> (Vec<(FrameId, FoundBy)>, bool) {
    let stack = builder.get_stack(waker);
    let kernel_name = |frame: &FrameId| {
        let frame = builder.get_frame(*frame);
        (frame.kind == FrameKind::Kernel).then(|| builder.get_string(frame.name))
    };
    let wakes = |frame: &FrameId| kernel_name(frame) == Some(WAKE_UP);
    let begin = stack.frames.iter().take(MAX_TRACEPOINT_FRAMES).position(wakes).unwrap_or(0);
    let interrupt = stack.frames.iter().position(|frame| kernel_name(frame).is_some_and(is_interrupt_entry));
    let end = interrupt.map_or(stack.frames.len(), |interrupt| interrupt + 1).max(begin);
    let frames = stack.frames[begin..end].iter().copied().zip(stack.found_by[begin..end].iter().copied());
    (frames.collect(), interrupt.is_some())
}

/// Whether a kernel function is the entry of an interrupt (`arch/x86/include/asm/idtentry.h`). Exceptions, such as a page fault,
/// are of the task itself.
fn is_interrupt_entry(name: &str) -> bool {
    name.starts_with("asm_sysvec_") || name == "asm_common_interrupt"
}

/// A frame that is no code.
fn label(builder: &mut ProfileBuilder, text: &str) -> FrameId {
    let name = builder.string(text);
    builder.frame(Frame {
        name,
        kind: FrameKind::Label,
        module: None,
        address: ElfAddress(0),
        location: None,
        symbolization: Symbolization::Symbol(SymbolSource::Kallsyms),
    })
}

#[cfg(test)]
mod tests {
    use profiler_profile::StackEnd;

    use super::*;

    fn frame(builder: &mut ProfileBuilder, kind: FrameKind, name: &str) -> FrameId {
        let name = builder.string(name);
        builder.frame(Frame {
            name,
            kind,
            module: None,
            address: ElfAddress(0),
            location: None,
            symbolization: Symbolization::Symbol(SymbolSource::Kallsyms),
        })
    }

    /// The folded frames of a wait in `main`, `read` with a waker of these kernel frames, leaf first, below `user`.
    fn folded(kernel: &[&str], user: &str) -> String {
        let mut builder = ProfileBuilder::default();
        let wait: Vec<_> = ["read", "main"].map(|name| frame(&mut builder, FrameKind::Native, name)).to_vec();
        let wait = builder.stack(wait, StackEnd::Root);
        let mut waker: Vec<_> =
            kernel.iter().map(|name| frame(&mut builder, FrameKind::Kernel, name)).collect();
        waker.push(frame(&mut builder, FrameKind::Native, user));
        let waker = builder.stack(waker, StackEnd::Root);
        let stack = put_together(&mut builder, wait, waker, "writer");
        let frames = builder.get_stack(stack).frames.iter().rev();
        frames.map(|id| builder.get_string(builder.get_frame(*id).name)).collect::<Vec<_>>().join(";")
    }

    #[test]
    fn the_waker_follows_from_its_leaf_to_its_root() {
        let kernel = ["bpf_prog_1", "bpf_trace_run1", "try_to_wake_up", "pipe_write", "ksys_write"];
        let expected = "main;read;--;try_to_wake_up;pipe_write;ksys_write;write;writer";
        assert_eq!(folded(&kernel, "write"), expected);
    }

    #[test]
    fn the_task_that_an_interrupt_hits_is_no_waker() {
        let kernel = ["try_to_wake_up", "hrtimer_wakeup", "asm_sysvec_apic_timer_interrupt", "do_read"];
        let expected =
            "main;read;--;try_to_wake_up;hrtimer_wakeup;asm_sysvec_apic_timer_interrupt;[interrupt]";
        assert_eq!(folded(&kernel, "compute"), expected);
    }

    #[test]
    fn a_waker_of_another_process_has_its_id() {
        let comm = Comm(*b"writer\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(WakerName { comm, other_pid: None }.text(), "writer");
        assert_eq!(WakerName { comm, other_pid: Some(Pid(7)) }.text(), "writer (pid 7)");
    }

    #[test]
    fn kernel_frames_without_names_are_all_kept() {
        assert_eq!(folded(&["[kernel]"], "write"), "main;read;--;[kernel];write;writer");
    }
}
