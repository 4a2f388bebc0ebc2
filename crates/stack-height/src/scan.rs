//! Finds the frame at an instruction in the middle of a function, from what follows it.
//!
//! All paths from the instruction are followed until they return or join code with a known frame. The stack pointer at a
//! `ret` is CFA - 8, so that the distance that it moved on the way is the distance from the CFA at the start.

use std::collections::HashMap;

use crate::{
    Error,
    knowledge::{Knowledge, TableJump},
    row::{Cfa, Confidence, Frame, SavedFramePointer, StackRow},
    run::row_at,
    state::AbstractState,
    step::Flow,
    value::Value,
};

/// The most instructions that one scan follows.
const MAX_STEPS: u32 = 2000;

/// The distance from the CFA to the return address, bytes.
const RETURN_ADDRESS_BYTES: i32 = 8;

/// The frame at any address in code; `None` when the paths from it do not determine one.
pub(crate) fn frame_by_scan(
    knowledge: &mut Knowledge<'_>,
    start: u64,
    known: &[StackRow],
) -> Result<Option<Frame>, Error> {
    let mut scan = Scan {
        start,
        known,
        stack_pointers: HashMap::new(),
        pending: vec![(start, AbstractState::at_scan_start())],
        evidence: Evidence::default(),
        steps: 0,
    };
    while let Some((address, state)) = scan.pending.pop() {
        if scan.follow(knowledge, address, state)?.is_none() {
            return Ok(None);
        }
    }
    Ok(scan.evidence.frame())
}

struct Scan<'a> {
    start: u64,
    known: &'a [StackRow],
    /// The stack pointer at each instruction that was followed.
    stack_pointers: HashMap<u64, Value>,
    pending: Vec<(u64, AbstractState)>,
    evidence: Evidence,
    steps: u32,
}

impl Scan<'_> {
    /// Follows one path to its end; `None` when the paths do not determine a frame.
    fn follow(
        &mut self,
        knowledge: &mut Knowledge<'_>,
        from: u64,
        mut state: AbstractState,
    ) -> Result<Option<()>, Error> {
        let mut address = from;
        loop {
            knowledge.work.spend(1)?;
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Ok(None);
            }
            if let Some(before) = self.stack_pointers.insert(address, state.stack_pointer()) {
                return Ok((before == state.stack_pointer()).then_some(()));
            }
            if address != self.start
                && let Some(frame) = self.known_frame(address)
                && self.evidence.add_known(&state, frame)?
            {
                return Ok(self.evidence.checked());
            }
            if address != self.start && knowledge.called.contains(&address) {
                return Ok((address != from).then_some(()).or_else(|| self.evidence.add_tail_jump(&state)));
            }
            let Some(instruction) = knowledge.code.decode(address) else { return Ok(None) };
            let flow = knowledge.interpreter.step(&mut state, &instruction);
            address = instruction.next_ip();
            match flow {
                Flow::Next => {}
                // Neither `ret` nor `jmp` has changed the state.
                Flow::Return => return Ok(self.evidence.add_return(&state)),
                Flow::Stop => return Ok(Some(())),
                Flow::Jump(target) => {
                    self.pending.push((target, state));
                    return Ok(knowledge.code.contains(target).then_some(()));
                }
                Flow::ConditionalJump(target) => {
                    if !knowledge.code.contains(target) {
                        return Ok(None);
                    }
                    let mut taken = state.clone();
                    taken.refine(&instruction, true);
                    state.refine(&instruction, false);
                    self.pending.push((target, taken));
                }
                Flow::JumpThroughSlot(_) => return Ok(self.evidence.add_tail_jump(&state)),
                Flow::UnknownJump => return Ok(None),
                Flow::TableJump { table, entries, entry_bytes } => {
                    let jump = TableJump { address: instruction.ip(), table, entries, entry_bytes };
                    let extent = knowledge.extent_around(instruction.ip());
                    let targets = knowledge.table_targets(&jump, &extent)?;
                    if targets.is_empty() {
                        return Ok(None);
                    }
                    self.pending.extend(targets.into_iter().map(|target| (target, state.clone())));
                    return Ok(Some(()));
                }
                Flow::Call(target) if target == address => return Ok(None),
                Flow::Call(function_or_slot) | Flow::IndirectCall(Some(function_or_slot)) => {
                    if knowledge.never_returns(function_or_slot) {
                        return Ok(Some(()));
                    }
                    state.after_call();
                }
                Flow::IndirectCall(None) => state.after_call(),
            }
        }
    }

    fn known_frame(&self, address: u64) -> Option<Frame> {
        let row = row_at(self.known, address)?;
        row.frame.filter(|_| row.confidence == Confidence::Full)
    }
}

/// What the ends of paths say about the frame at the start.
#[derive(Default)]
struct Evidence {
    /// CFA - stack pointer.
    from_stack_pointer: Option<i32>,
    /// CFA - frame pointer.
    from_frame_pointer: Option<i32>,
    /// The place of the saved frame pointer - CFA.
    saved: Option<i32>,
    keeps_frame_pointer: bool,
    contradicts: bool,
}

impl Evidence {
    fn checked(&self) -> Option<()> {
        (!self.contradicts).then_some(())
    }

    fn set(&mut self, which: fn(&mut Self) -> &mut Option<i32>, value: i32) {
        let known = *which(self).get_or_insert(value);
        self.contradicts |= known != value;
    }

    /// At `ret`, the stack pointer is CFA - 8 and the frame pointer that of the caller.
    fn add_return(&mut self, state: &AbstractState) -> Option<()> {
        match state.stack_pointer() {
            Value::Cfa(moved) => {
                let height = moved.checked_add(RETURN_ADDRESS_BYTES)?;
                self.set(|evidence| &mut evidence.from_stack_pointer, height);
                match state.frame_pointer() {
                    Value::EntryFramePointer(0) => self.keeps_frame_pointer = true,
                    Value::WordAtStackPointer(offset) => {
                        self.set(|evidence| &mut evidence.saved, offset.checked_sub(height)?);
                    }
                    _ => {}
                }
            }
            Value::EntryFramePointer(moved) => {
                let height = moved.checked_add(RETURN_ADDRESS_BYTES)?;
                self.set(|evidence| &mut evidence.from_frame_pointer, height);
                if let Value::WordAtFramePointer(offset) = state.frame_pointer() {
                    self.set(|evidence| &mut evidence.saved, offset.checked_sub(height)?);
                }
            }
            _ => return None,
        }
        self.checked()
    }

    /// A jump to another function: the stack pointer is CFA - 8.
    fn add_tail_jump(&mut self, state: &AbstractState) -> Option<()> {
        if let Value::Cfa(moved) = state.stack_pointer() {
            let height = moved.checked_add(RETURN_ADDRESS_BYTES)?;
            self.set(|evidence| &mut evidence.from_stack_pointer, height);
            self.keeps_frame_pointer |= state.frame_pointer() == Value::EntryFramePointer(0);
        }
        self.checked()
    }

    /// Code with a known frame follows. Whether it says anything about the start.
    fn add_known(&mut self, state: &AbstractState, frame: Frame) -> Result<bool, Error> {
        let distance = match (frame.cfa, state.stack_pointer(), state.frame_pointer()) {
            (Cfa::StackPointer(height), Value::Cfa(moved), _)
            | (Cfa::FramePointer(height), _, Value::Cfa(moved)) => {
                self.set(|evidence| &mut evidence.from_stack_pointer, moved.saturating_add(height));
                true
            }
            (Cfa::StackPointer(height), Value::EntryFramePointer(moved), _)
            | (Cfa::FramePointer(height), _, Value::EntryFramePointer(moved)) => {
                self.set(|evidence| &mut evidence.from_frame_pointer, moved.saturating_add(height));
                true
            }
            _ => false,
        };
        if !distance {
            return Ok(false);
        }
        match frame.frame_pointer {
            SavedFramePointer::AtCfa(offset) => self.set(|evidence| &mut evidence.saved, offset.into()),
            SavedFramePointer::Same => {
                self.keeps_frame_pointer |= state.frame_pointer() == Value::EntryFramePointer(0);
            }
            _ => {}
        }
        Ok(true)
    }

    fn frame(&self) -> Option<Frame> {
        if self.contradicts || self.from_stack_pointer.is_some_and(|height| height < RETURN_ADDRESS_BYTES) {
            return None;
        }
        let cfa = match (self.from_frame_pointer, self.from_stack_pointer) {
            (Some(height), _) => Cfa::FramePointer(height),
            (None, Some(height)) => Cfa::StackPointer(height),
            (None, None) => return None,
        };
        let saved = self.saved.and_then(|offset| i16::try_from(offset).ok()).filter(|offset| *offset <= -16);
        let frame_pointer = match saved {
            Some(offset) => SavedFramePointer::AtCfa(offset),
            None if self.keeps_frame_pointer => SavedFramePointer::Same,
            None => SavedFramePointer::Unknown,
        };
        Some(Frame { cfa, frame_pointer })
    }
}
