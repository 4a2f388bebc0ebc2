//! Forward data flow over the code of one function.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    mem,
    ops::Range,
};

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::{
    Error,
    blocks::{Blocks, Outcome, Successors},
    knowledge::{Knowledge, TableJump},
    row::{Frame, StackRow},
    state::AbstractState,
    step::Flow,
};

/// The most blocks of one function; the largest real ones have some 10,000.
const MAX_BLOCKS: usize = 1 << 15;

/// The most instructions that are interpreted for one function.
const MAX_STEPS: u64 = 1 << 21;

/// The numbers of blocks that are moved, when one is added before them, in the time of one step.
const BLOCKS_MOVED_PER_STEP: u64 = 1 << 8;

/// The most bytes from a jump forward to another part of its function, while starts of functions are not known.
const MAX_JUMP_WITHIN_FUNCTION: u64 = 4096;

/// What limits the analysis of one function.
pub(crate) struct Surroundings<'a> {
    /// Code that has a frame here is not followed, but its frame is compared.
    pub(crate) known: &'a [StackRow],
    /// The most steps.
    pub(crate) max_steps: u64,
}

impl Surroundings<'_> {
    /// All code is followed.
    pub(crate) const NONE: Self = Self { known: &[], max_steps: MAX_STEPS };
}

/// The code that can be reached from the start of a function, with the states at its blocks.
pub(crate) struct FunctionFlow {
    pub(crate) start: u64,
    extent: Range<u64>,
    /// The start of the next known function.
    next_function: u64,
    pub(crate) blocks: Blocks,
    /// Starts of blocks whose states changed, with repetitions.
    pending: BinaryHeap<Reverse<u64>>,
    steps: u64,
    /// Targets of direct calls, with repetitions.
    pub(crate) callees: Vec<u64>,
    /// Targets of jumps that leave the function.
    pub(crate) tail_targets: Vec<u64>,
    /// Addresses in code that instructions load.
    pub(crate) code_addresses: Vec<u64>,
    /// Whether a jump leads to an unknown address, such as that in a slot.
    leaves_for_unknown: bool,
    /// Joins at which a known frame was lost.
    pub(crate) conflicts: u32,
    /// Whether the return address was popped somewhere.
    pub(crate) pops_return_address: bool,
    /// Calls with the stack pointer at a multiple of 16 (System V ABI AMD64, 3.2.2), and other calls.
    pub(crate) aligned_calls: u32,
    pub(crate) misaligned_calls: u32,
    /// Whether too much was found: the rest is missing.
    pub(crate) is_incomplete: bool,
}

/// How often each [`Outcome`] occurs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) returns: u32,
    pub(crate) tail_jumps: u32,
    pub(crate) likely_tail_jumps: u32,
    pub(crate) unknown_jumps: u32,
    pub(crate) joins: u32,
    pub(crate) failures: u32,
}

impl FunctionFlow {
    /// Analyses the function at `start`, whose first instruction has `state` before it. Code that has a frame in
    /// `known` is not followed, but its frame is compared.
    pub(crate) fn of(
        knowledge: &mut Knowledge<'_>,
        start: u64,
        state: &AbstractState,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Error> {
        let mut flow = Self {
            start,
            extent: knowledge.extent(start),
            next_function: knowledge.next_function(start),
            blocks: mem::take(&mut knowledge.spare_blocks),
            pending: BinaryHeap::new(),
            steps: 0,
            callees: Vec::new(),
            tail_targets: Vec::new(),
            code_addresses: Vec::new(),
            leaves_for_unknown: false,
            conflicts: 0,
            pops_return_address: false,
            aligned_calls: 0,
            misaligned_calls: 0,
            is_incomplete: false,
        };
        flow.enter(knowledge, start, state)?;
        while let Some(Reverse(block)) = flow.pending.pop() {
            while flow.pending.peek() == Some(&Reverse(block)) {
                flow.pending.pop();
            }
            if flow.steps > surroundings.max_steps {
                flow.is_incomplete = true;
                break;
            }
            flow.follow(knowledge, block, surroundings)?;
        }
        Ok(flow)
    }

    /// The state at the first instruction of a function.
    pub(crate) fn entry_state(knowledge: &mut Knowledge<'_>, start: u64) -> AbstractState {
        if is_first_plt_entry(knowledge, start) {
            AbstractState::at_first_plt_entry()
        } else {
            AbstractState::at_entry()
        }
    }

    /// How often the function is left in each way.
    pub(crate) fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for block in self.blocks.iter() {
            match block.outcome {
                Outcome::Stays => {}
                Outcome::Returns => outcomes.returns += 1,
                Outcome::TailJump => outcomes.tail_jumps += 1,
                Outcome::LikelyTailJump => outcomes.likely_tail_jumps += 1,
                Outcome::UnknownJump => outcomes.unknown_jumps += 1,
                Outcome::Joins => outcomes.joins += 1,
                Outcome::Fails => outcomes.failures += 1,
            }
        }
        outcomes
    }

    /// Whether the function can return, if all functions that are not known to never return do.
    pub(crate) fn returns(&self, knowledge: &Knowledge<'_>) -> bool {
        let outcomes = self.outcomes();
        let mut tail_targets = self.tail_targets.iter().filter(|target| **target != self.start);
        outcomes.returns > 0
            || outcomes.failures > 0
            || self.leaves_for_unknown
            || self.is_incomplete
            || tail_targets.any(|target| !knowledge.never_returns(*target))
    }

    /// Whether calls are made with an aligned stack pointer, as the ABI demands: those of a landing pad are not, if it
    /// is taken for a function.
    pub(crate) fn has_aligned_calls(&self) -> bool {
        self.misaligned_calls <= self.aligned_calls / 4
    }

    /// The starts of blocks from which a failure can be reached.
    pub(crate) fn blocks_that_can_fail(&self) -> BTreeSet<u64> {
        let failing = || self.blocks.iter().filter(|block| block.outcome == Outcome::Fails);
        if failing().next().is_none() {
            return BTreeSet::new();
        }
        let mut predecessors: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for block in self.blocks.iter() {
            for successor in block.successors.iter() {
                predecessors.entry(successor).or_default().push(block.start);
            }
        }
        let mut pending: Vec<u64> = failing().map(|block| block.start).collect();
        let mut found = BTreeSet::new();
        while let Some(block) = pending.pop() {
            if found.insert(block) {
                pending.extend(predecessors.get(&block).into_iter().flatten());
            }
        }
        found
    }

    /// Gives the memory of the blocks to the next function.
    pub(crate) fn recycle(mut self, knowledge: &mut Knowledge<'_>) {
        self.blocks.clear();
        knowledge.spare_blocks = self.blocks;
    }

    /// Joins a state into the block at an address, or begins one there. It is scheduled if its state changed.
    fn enter(
        &mut self,
        knowledge: &mut Knowledge<'_>,
        address: u64,
        state: &AbstractState,
    ) -> Result<(), Error> {
        if let Some(block) = self.blocks.at_mut(address) {
            let had_frame = block.state.has_frame();
            if block.state.join(state) {
                if had_frame && !block.state.has_frame() {
                    self.conflicts += 1;
                }
                self.pending.push(Reverse(address));
            }
            return Ok(());
        }
        if self.blocks.len() >= MAX_BLOCKS {
            self.is_incomplete = true;
            return Ok(());
        }
        // The block that this one is a part of ends here from now on.
        if let Some(outer) = self.blocks.last_before(address)
            && address < outer.end
        {
            self.pending.push(Reverse(outer.start));
        }
        let moved = self.blocks.insert(address, state);
        knowledge.work.spend(moved as u64 / BLOCKS_MOVED_PER_STEP)?;
        self.pending.push(Reverse(address));
        Ok(())
    }

    /// Interprets a block from its start to its end.
    fn follow(
        &mut self,
        knowledge: &mut Knowledge<'_>,
        start: u64,
        surroundings: &Surroundings<'_>,
    ) -> Result<(), Error> {
        let Some(mut state) = self.blocks.at(start).map(|block| block.state.clone()) else { return Ok(()) };
        let next_function = self.next_function_after(knowledge, start);
        let mut next_block = self.blocks.next_start(start);
        let next_known = next_known_frame(surroundings.known, start);
        let mut address = start;
        let mut path = Path::default();
        let mut successors = Successors::default();
        let mut taken_state = None;
        let outcome = loop {
            if address != start && next_block == Some(address) {
                successors.next = Some(address);
                break Outcome::Stays;
            }
            if address == next_function && address != start {
                let outcome = path.outcome_at_function(&state);
                if outcome == Outcome::TailJump {
                    self.tail_targets.push(next_function);
                }
                break outcome;
            }
            if let Some((known_from, frame)) = next_known
                && address >= known_from
            {
                if state.frame().is_some_and(|computed| computed != frame) {
                    self.conflicts += 1;
                }
                break Outcome::Joins;
            }
            let Some(instruction) = knowledge.code.decode(address) else { break Outcome::Stays };
            knowledge.work.spend(1)?;
            self.steps += 1;
            if next_block.is_some_and(|next| next < address) {
                next_block = self.blocks.next_start(address);
            }
            self.pops_return_address |= state.is_above_return_address();
            let before = state.is_at_entry_height();
            let flow = knowledge.interpreter.step(&mut state, &instruction);
            self.note_addresses(knowledge, &instruction);
            let next = instruction.next_ip();
            address = next;
            path.is_after_call &= instruction.mnemonic() == Mnemonic::Nop;
            match flow {
                Flow::Next => {}
                Flow::Stop => break Outcome::Stays,
                Flow::Return => break if before { Outcome::Returns } else { Outcome::Fails },
                Flow::Jump(target) => {
                    break self.jump(knowledge, &instruction, target, &state, &mut successors);
                }
                Flow::ConditionalJump(target) => {
                    let mut taken = state.clone();
                    taken.refine(&instruction, true);
                    state.refine(&instruction, false);
                    let outcome = self.conditional_jump(knowledge, target, &taken, &mut successors);
                    taken_state = Some(taken);
                    successors.next = (next != next_function).then_some(next);
                    break outcome;
                }
                Flow::JumpThroughSlot(slot) if self.never_returns_through(knowledge, slot) => {
                    break Outcome::Stays;
                }
                Flow::JumpThroughSlot(_) | Flow::UnknownJump => break self.unknown_jump(before),
                Flow::TableJump { table, entries, entry_bytes } => {
                    let jump = TableJump { address: instruction.ip(), table, entries, entry_bytes };
                    successors.cases = self.table_targets(knowledge, &jump)?;
                    break if successors.cases.is_empty() {
                        self.unknown_jump(before)
                    } else {
                        Outcome::Stays
                    };
                }
                Flow::Call(target) if target == next && is_pop(knowledge, next) => {
                    state.move_stack_pointer(-8);
                }
                Flow::Call(target) => {
                    self.count_call(&state);
                    state.after_call();
                    path.is_after_call = true;
                    if knowledge.code.contains(target) {
                        self.callees.push(target);
                    }
                    if knowledge.never_returns(target) {
                        break Outcome::Stays;
                    }
                }
                Flow::IndirectCall(slot) => {
                    self.count_call(&state);
                    state.after_call();
                    path.is_after_call = true;
                    if slot.is_some_and(|slot| self.never_returns_through(knowledge, slot)) {
                        break Outcome::Stays;
                    }
                }
            }
        };
        if let Some(block) = self.blocks.at_mut(start) {
            (block.end, block.outcome) = (address, outcome);
        }
        if let (Some(target), Some(taken)) = (successors.taken, taken_state) {
            self.enter(knowledge, target, &taken)?;
        }
        if let Some(next) = successors.next {
            self.enter(knowledge, next, &state)?;
        }
        self.steps += successors.cases.len() as u64;
        for target in &successors.cases {
            self.enter(knowledge, *target, &state)?;
        }
        if let Some(block) = self.blocks.at_mut(start) {
            block.successors = successors;
        }
        Ok(())
    }

    /// The start of the next known function behind an address of this one.
    fn next_function_after(&self, knowledge: &Knowledge<'_>, address: u64) -> u64 {
        if (self.start..self.next_function).contains(&address) {
            return self.next_function;
        }
        match knowledge.next_function(address) {
            own if own == self.start => self.next_function,
            other => other,
        }
    }

    /// Whether another known function begins at an address.
    fn is_other_function(&self, knowledge: &Knowledge<'_>, address: u64) -> bool {
        !(self.start..self.next_function).contains(&address) && knowledge.called.contains(&address)
    }

    fn jump(
        &mut self,
        knowledge: &Knowledge<'_>,
        instruction: &Instruction,
        target: u64,
        state: &AbstractState,
        successors: &mut Successors,
    ) -> Outcome {
        if !knowledge.code.contains(target) {
            return Outcome::Stays;
        }
        let is_at_entry_height = state.is_at_entry_height();
        if self.is_other_function(knowledge, target) || (target == self.start && is_at_entry_height) {
            self.tail_targets.push(target);
            return if is_at_entry_height { Outcome::TailJump } else { Outcome::Fails };
        }
        let leaves = target < self.start
            || target >= self.extent.end
            || target > instruction.ip().saturating_add(MAX_JUMP_WITHIN_FUNCTION);
        if is_at_entry_height && (leaves || knowledge.likely.contains(&target)) {
            self.tail_targets.push(target);
            return Outcome::LikelyTailJump;
        }
        successors.next = Some(target);
        Outcome::Stays
    }

    fn unknown_jump(&mut self, is_at_entry_height: bool) -> Outcome {
        self.leaves_for_unknown = true;
        if is_at_entry_height { Outcome::LikelyTailJump } else { Outcome::UnknownJump }
    }

    fn conditional_jump(
        &mut self,
        knowledge: &Knowledge<'_>,
        target: u64,
        state: &AbstractState,
        successors: &mut Successors,
    ) -> Outcome {
        if !knowledge.code.contains(target) {
            return Outcome::Stays;
        }
        if self.is_other_function(knowledge, target) {
            self.tail_targets.push(target);
            return if state.is_at_entry_height() { Outcome::TailJump } else { Outcome::Fails };
        }
        successors.taken = Some(target);
        Outcome::Stays
    }

    fn table_targets(&self, knowledge: &mut Knowledge<'_>, jump: &TableJump) -> Result<Vec<u64>, Error> {
        knowledge.add_data_address(jump.table);
        let mut targets = knowledge.table_targets(jump, &self.extent)?;
        targets.retain(|target| !self.is_other_function(knowledge, *target));
        Ok(targets)
    }

    fn never_returns_through(&mut self, knowledge: &mut Knowledge<'_>, slot: u64) -> bool {
        if knowledge.never_returns(slot) {
            return true;
        }
        let Some(function) = knowledge.function_of_slot(slot) else { return false };
        self.callees.push(function);
        knowledge.never_returns(function)
    }

    fn count_call(&mut self, state: &AbstractState) {
        match state.height() {
            Some(height) if height % 16 == 0 => self.aligned_calls += 1,
            Some(_) => self.misaligned_calls += 1,
            None => {}
        }
    }

    /// Notes the address that an instruction loads.
    fn note_addresses(&mut self, knowledge: &mut Knowledge<'_>, instruction: &Instruction) {
        match instruction.mnemonic() {
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                let address = instruction.ip_rel_memory_address();
                if knowledge.code.contains(address) {
                    self.code_addresses.push(address);
                } else {
                    knowledge.add_data_address(address);
                }
            }
            Mnemonic::Mov | Mnemonic::Push if knowledge.has_fixed_addresses => {
                let constant = constant_operand(instruction);
                self.code_addresses.extend(constant.filter(|address| knowledge.code.contains(*address)));
            }
            _ => {}
        }
    }
}

/// The constant of 32 bits that an instruction loads or stores: programs that are not position-independent have addresses there
/// (System V ABI AMD64, 3.5.1, "small code model").
fn constant_operand(instruction: &Instruction) -> Option<u64> {
    let last = instruction.op_count().checked_sub(1)?;
    matches!(instruction.op_kind(last), OpKind::Immediate32 | OpKind::Immediate32to64)
        .then(|| instruction.immediate32().into())
}

/// The next address at or behind one that has a known frame, and the frame.
fn next_known_frame(known: &[StackRow], address: u64) -> Option<(u64, Frame)> {
    let following = known.partition_point(|row| row.address <= address);
    let rows = &known[following.saturating_sub(1)..];
    rows.iter().find_map(|row| Some((row.address, row.frame?)))
}

/// What matters of the instructions before one.
#[derive(Default)]
struct Path {
    /// Whether only padding follows the last call.
    is_after_call: bool,
}

impl Path {
    /// How a function ends whose code runs into the start of another.
    fn outcome_at_function(&self, state: &AbstractState) -> Outcome {
        if self.is_after_call {
            // The call before never returns, as far as this function shows.
            Outcome::Stays
        } else if state.is_at_entry_height() {
            Outcome::TailJump
        } else {
            Outcome::Fails
        }
    }
}

/// Whether PLT0 is at an address: `push GOT+8(%rip); jmp *GOT+16(%rip)` (System V ABI AMD64, 5.2).
fn is_first_plt_entry(knowledge: &mut Knowledge<'_>, address: u64) -> bool {
    let Some(bytes) = knowledge.code.bytes(address) else { return false };
    let is_jump = |bytes: &[u8]| bytes.starts_with(&[0xff, 0x25]) || bytes.starts_with(&[0xf2, 0xff, 0x25]);
    bytes.starts_with(&[0xff, 0x35]) && bytes.get(6..).is_some_and(is_jump)
}

fn is_pop(knowledge: &mut Knowledge<'_>, address: u64) -> bool {
    knowledge.code.decode(address).is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Pop)
}
