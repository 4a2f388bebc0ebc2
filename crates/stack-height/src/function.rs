//! Forward data flow over the code of one function.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use iced_x86::{Instruction, Mnemonic};

use crate::{
    Error,
    knowledge::{Knowledge, TableJump},
    row::{Frame, StackRow},
    state::State,
    step::Flow,
};

/// The most blocks of one function; the largest real ones have some 10,000.
const MAX_BLOCKS: usize = 1 << 15;

/// The most instructions that are interpreted for one function.
const MAX_STEPS: u64 = 1 << 21;

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
    pub(crate) blocks: BTreeMap<u64, Block>,
    pending: BTreeSet<u64>,
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

/// Instructions that are executed one after the other.
pub(crate) struct Block {
    /// The address behind its last instruction.
    pub(crate) end: u64,
    /// The state before its first instruction.
    pub(crate) state: Box<State>,
    pub(crate) successors: Vec<u64>,
    pub(crate) outcome: Outcome,
}

/// How a block leaves its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It does not.
    Stays,
    /// By `ret`, with the stack and frame pointers of the caller.
    Returns,
    /// By a jump to the start of another function, with the stack and frame pointers of the caller.
    TailJump,
    /// By a jump with the stack and frame pointers of the caller, to what may not be the start of a function.
    LikelyTailJump,
    /// By a jump to an unknown address.
    UnknownJump,
    /// It continues in code whose frame is known.
    Joins,
    /// With other stack or frame pointers than the caller's: the states that lead here are wrong.
    Fails,
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
        state: State,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Error> {
        let mut flow = Self {
            start,
            extent: knowledge.extent(start),
            blocks: BTreeMap::new(),
            pending: BTreeSet::new(),
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
        flow.enter(start, Box::new(state));
        while let Some(block) = flow.pending.pop_first() {
            if flow.steps > surroundings.max_steps {
                flow.is_incomplete = true;
                break;
            }
            flow.follow(knowledge, block, surroundings)?;
        }
        Ok(flow)
    }

    /// The state at the first instruction of a function.
    pub(crate) fn entry_state(knowledge: &mut Knowledge<'_>, start: u64) -> State {
        if is_first_plt_entry(knowledge, start) { State::at_first_plt_entry() } else { State::at_entry() }
    }

    /// How often the function is left in each way.
    pub(crate) fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for block in self.blocks.values() {
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
        let mut predecessors: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut pending = Vec::new();
        for (start, block) in &self.blocks {
            if block.outcome == Outcome::Fails {
                pending.push(*start);
            }
            for successor in &block.successors {
                predecessors.entry(*successor).or_default().push(*start);
            }
        }
        let mut found = BTreeSet::new();
        while let Some(block) = pending.pop() {
            if found.insert(block) {
                pending.extend(predecessors.get(&block).into_iter().flatten());
            }
        }
        found
    }

    /// Joins a state into the block at an address, and schedules the block if its state changed; `false` if there is no
    /// block.
    fn join(&mut self, address: u64, state: &State) -> bool {
        let Some(block) = self.blocks.get_mut(&address) else { return false };
        let had_frame = block.state.has_frame();
        if block.state.join(state) {
            if had_frame && !block.state.has_frame() {
                self.conflicts += 1;
            }
            self.pending.insert(address);
        }
        true
    }

    /// Joins a state into the block at an address, or begins one there.
    fn enter(&mut self, address: u64, state: Box<State>) {
        if self.join(address, &state) {
            return;
        }
        if self.blocks.len() >= MAX_BLOCKS {
            self.is_incomplete = true;
            return;
        }
        // The block that this one is a part of ends here from now on.
        if let Some((outer, block)) = self.blocks.range(..address).next_back()
            && address < block.end
        {
            self.pending.insert(*outer);
        }
        let block = Block { end: address, state, successors: Vec::new(), outcome: Outcome::Stays };
        self.blocks.insert(address, block);
        self.pending.insert(address);
    }

    /// Interprets a block from its start to its end.
    fn follow(
        &mut self,
        knowledge: &mut Knowledge<'_>,
        start: u64,
        surroundings: &Surroundings<'_>,
    ) -> Result<(), Error> {
        let Some(mut state) = self.blocks.get(&start).map(|block| block.state.clone()) else { return Ok(()) };
        let next_function = self.extent_end_after(knowledge, start);
        let mut next_block = self.next_block(start);
        let next_known = next_known_frame(surroundings.known, start);
        let mut address = start;
        let mut path = Path::default();
        let mut successors: Vec<(u64, Box<State>)> = Vec::new();
        let mut cases: Option<(Vec<u64>, Box<State>)> = None;
        let outcome = loop {
            if address != start && next_block == Some(address) {
                successors.push((address, state));
                break Outcome::Stays;
            }
            if address == next_function && address != start {
                break path.outcome_at_function(&state);
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
                next_block = self.next_block(address);
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
                    break self.jump(knowledge, &instruction, target, state, &mut successors);
                }
                Flow::ConditionalJump(target) => {
                    let mut taken = state.clone();
                    taken.refine(&instruction, true);
                    state.refine(&instruction, false);
                    let outcome = self.conditional_jump(knowledge, target, taken, &mut successors);
                    if next != next_function {
                        successors.push((next, state));
                    }
                    break outcome;
                }
                Flow::JumpThroughSlot(slot) if self.never_returns_through(knowledge, slot) => {
                    break Outcome::Stays;
                }
                Flow::JumpThroughSlot(_) | Flow::UnknownJump => break self.unknown_jump(before),
                Flow::TableJump { table, entries, entry_bytes } => {
                    let jump = TableJump { address: instruction.ip(), table, entries, entry_bytes };
                    let targets = self.table_targets(knowledge, &jump)?;
                    if targets.is_empty() {
                        break self.unknown_jump(before);
                    }
                    cases = Some((targets, state));
                    break Outcome::Stays;
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
        if let Some(block) = self.blocks.get_mut(&start) {
            block.end = address;
            block.outcome = outcome;
            block.successors = successors.iter().map(|(target, _)| *target).collect();
            block.successors.extend(cases.iter().flat_map(|(targets, _)| targets));
        }
        for (target, state) in successors {
            self.enter(target, state);
        }
        if let Some((targets, state)) = cases {
            self.steps += targets.len() as u64;
            for target in targets {
                if !self.join(target, &state) {
                    self.enter(target, state.clone());
                }
            }
        }
        Ok(())
    }

    fn next_block(&self, after: u64) -> Option<u64> {
        self.blocks.range(after.saturating_add(1)..).next().map(|(start, _)| *start)
    }

    /// The start of the next known function behind an address of this one.
    fn extent_end_after(&self, knowledge: &Knowledge<'_>, address: u64) -> u64 {
        let behind = address.saturating_add(1);
        let mut following = knowledge.called.range(behind..).filter(|start| **start != self.start);
        following.next().copied().unwrap_or(u64::MAX)
    }

    fn jump(
        &mut self,
        knowledge: &Knowledge<'_>,
        instruction: &Instruction,
        target: u64,
        state: Box<State>,
        successors: &mut Vec<(u64, Box<State>)>,
    ) -> Outcome {
        if !knowledge.code.contains(target) {
            return Outcome::Stays;
        }
        let is_at_entry_height = state.is_at_entry_height();
        let is_other_function = target != self.start && knowledge.called.contains(&target);
        if is_other_function || (target == self.start && is_at_entry_height) {
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
        successors.push((target, state));
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
        state: Box<State>,
        successors: &mut Vec<(u64, Box<State>)>,
    ) -> Outcome {
        if !knowledge.code.contains(target) {
            return Outcome::Stays;
        }
        if target != self.start && knowledge.called.contains(&target) {
            self.tail_targets.push(target);
            return if state.is_at_entry_height() { Outcome::TailJump } else { Outcome::Fails };
        }
        successors.push((target, state));
        Outcome::Stays
    }

    fn table_targets(&self, knowledge: &mut Knowledge<'_>, jump: &TableJump) -> Result<Vec<u64>, Error> {
        knowledge.add_data_address(jump.table);
        let mut targets = knowledge.table_targets(jump, &self.extent)?;
        targets.retain(|target| *target == self.start || !knowledge.called.contains(target));
        Ok(targets)
    }

    fn never_returns_through(&mut self, knowledge: &Knowledge<'_>, slot: u64) -> bool {
        if knowledge.never_returns(slot) {
            return true;
        }
        let Some(function) = knowledge.function_of_slot(slot) else { return false };
        self.callees.push(function);
        knowledge.never_returns(function)
    }

    fn count_call(&mut self, state: &State) {
        match state.height() {
            Some(height) if height % 16 == 0 => self.aligned_calls += 1,
            Some(_) => self.misaligned_calls += 1,
            None => {}
        }
    }

    /// Notes the address that `lea` computes.
    fn note_addresses(&mut self, knowledge: &mut Knowledge<'_>, instruction: &Instruction) {
        if instruction.mnemonic() != Mnemonic::Lea || !instruction.is_ip_rel_memory_operand() {
            return;
        }
        let address = instruction.ip_rel_memory_address();
        if knowledge.code.contains(address) {
            self.code_addresses.push(address);
        } else {
            knowledge.add_data_address(address);
        }
    }
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
    fn outcome_at_function(&self, state: &State) -> Outcome {
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
