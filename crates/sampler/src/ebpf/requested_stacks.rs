//! Copies the user stacks of waiting threads for a kernel whose task iterator cannot (before Linux 5.18).

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use profiler_blocking::Object;
use profiler_common::requested_stack::{
    CopiedStack, PART_WORDS, StackPart, StackRequest, UnwindResult, UnwindStep,
};
use profiler_processes::Pid;
use zerocopy::{FromZeros, IntoBytes};

use crate::sys::bpf;

/// The most parts of a stack that are copied.
const MAX_PARTS: u32 = 16;

/// Runs of the unwinding program for one part: as many as there can be frames.
const MAX_RUNS_PER_PART: u32 = 256;

/// The maps of requests, and the program that unwinds.
#[derive(Debug)]
pub(super) struct RequestedStacks {
    program: OwnedFd,
    requests: OwnedFd,
    copied: OwnedFd,
}

impl RequestedStacks {
    /// The program, the map of requests, and that of the copied stack.
    pub(super) fn new(program: OwnedFd, requests: OwnedFd, copied: OwnedFd) -> Self {
        Self { program, requests, copied }
    }

    /// Has the stacks of the first requests unwound. The program adds their threads to the map of waiting threads.
    pub(super) fn unwind(&self, requests: u32) -> io::Result<()> {
        let mut stack = CopiedStack::new_zeroed();
        (0..requests).try_for_each(|index| self.unwind_request(index, &mut stack))
    }

    fn unwind_request(&self, index: u32, stack: &mut CopiedStack) -> io::Result<()> {
        let mut request = StackRequest::new_zeroed();
        bpf::look_up_element(self.requests.as_fd(), &index.to_ne_bytes(), request.as_mut_bytes())?;
        stack.request = index;
        let mut wanted = request.stack_pointer;
        let mut step = UnwindStep::Begin;
        for _ in 0..MAX_PARTS {
            let is_copied = copy(Pid(request.thread.pid), wanted, &mut stack.part);
            if !is_copied && step == UnwindStep::Continue {
                break;
            }
            match self.run(stack, step)? {
                Some(next) => wanted = next,
                None => return Ok(()),
            }
            step = UnwindStep::Continue;
        }
        self.run(stack, UnwindStep::End).map(drop)
    }

    /// Runs the program until the stack has ended, or a further part is wanted, whose address it returns.
    fn run(&self, stack: &mut CopiedStack, first: UnwindStep) -> io::Result<Option<u64>> {
        stack.step = first as u32;
        for _ in 0..MAX_RUNS_PER_PART {
            bpf::update_element(self.copied.as_fd(), &0_u32.to_ne_bytes(), stack.as_bytes())?;
            let result = bpf::run_program(self.program.as_fd())?;
            if result == UnwindResult::NeedsPart as u32 {
                let mut after = CopiedStack::new_zeroed();
                bpf::look_up_element(self.copied.as_fd(), &0_u32.to_ne_bytes(), after.as_mut_bytes())?;
                return Ok(Some(after.part.wanted));
            }
            if result != UnwindResult::HasFrames as u32 {
                return Ok(None);
            }
            stack.step = UnwindStep::Continue as u32;
        }
        Err(io::Error::other("a stack has too many frames"))
    }
}

/// Copies the part of a stack from an address on. `false` where it cannot be read.
fn copy(pid: Pid, address: u64, part: &mut StackPart) -> bool {
    let read = move || {
        let mut words = [0_u64; PART_WORDS];
        let bytes = File::open(format!("/proc/{pid}/mem"))?.read_at(words.as_mut_bytes(), address)?;
        Ok((words, bytes))
    };
    // The memory can be that of a file in user space.
    let copied = profiler_blocking::run(Object::process(pid.0), read);
    part.start = address;
    part.bytes = 0;
    part.wanted = 0;
    if let Ok((words, bytes)) = copied {
        part.words = words;
        part.bytes = (bytes / size_of::<u64>() * size_of::<u64>()) as u64;
    }
    part.bytes > 0
}
