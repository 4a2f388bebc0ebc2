//! Runs with known frames from the data flow of a function.

use std::ops::Range;

use crate::{
    Error,
    function::FunctionFlow,
    knowledge::Knowledge,
    row::{Confidence, Frame},
    run::Run,
};

/// The runs of a function within a window, by whether the function's ends confirm them.
#[derive(Default)]
pub(crate) struct FunctionRuns {
    pub(crate) confirmed: Vec<Run>,
    /// Those that a `ret` with other registers than the caller's can be reached from.
    pub(crate) refuted: Vec<Run>,
}

impl FunctionRuns {
    /// Interprets each block once more.
    pub(crate) fn of(
        knowledge: &mut Knowledge<'_>,
        flow: &FunctionFlow,
        window: &Range<u64>,
        confidence: Confidence,
    ) -> Result<Self, Error> {
        let failing = flow.blocks_that_can_fail();
        let mut runs = Self::default();
        for block in flow.blocks.iter() {
            if block.end <= window.start || block.start >= window.end {
                continue;
            }
            let into = if failing.contains(&block.start) { &mut runs.refuted } else { &mut runs.confirmed };
            let mut state = block.state.clone();
            let mut address = block.start;
            while address < block.end {
                knowledge.work.spend(1)?;
                let Some(instruction) = knowledge.code.decode(address) else { break };
                let frame = state.frame();
                if window.contains(&address)
                    && let Some(frame) = frame
                {
                    extend(into, address, instruction.next_ip(), frame, confidence);
                }
                let is_call_of_next =
                    instruction.is_call_near() && instruction.near_branch64() == instruction.next_ip();
                knowledge.interpreter.step(&mut state, &instruction);
                address = instruction.next_ip();
                if is_call_of_next {
                    state.move_stack_pointer(-8);
                } else if instruction.is_call_near() || instruction.is_call_near_indirect() {
                    state.after_call();
                }
            }
        }
        Ok(runs)
    }
}

/// Adds an instruction to the last run, or begins another.
fn extend(runs: &mut Vec<Run>, start: u64, end: u64, frame: Frame, confidence: Confidence) {
    match runs.last_mut() {
        Some(last) if last.end == start && last.frame == frame => last.end = end,
        _ => runs.push(Run { start, end, frame, confidence }),
    }
}
