//! Finds the functions of a program, and those that never return.
//!
//! A call to a function that never returns is followed by other functions, data or padding. So all functions are analysed
//! twice: the first time finds where functions start and which never return; the second time, no function runs into the
//! next one. A function never returns if no `ret` can be reached while the functions it calls return, except for those
//! that are known not to.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::{
    Error,
    address_set::AddressSet,
    function::{FunctionFlow, Surroundings},
    knowledge::Knowledge,
    padding::padding_length,
    program::{Hints, Program},
};

/// The most functions of one program: some 100 bytes each. Real programs have at most 300,000.
const MAX_FUNCTIONS: usize = 512 << 10;

/// The most addresses that wait for a check whether a function starts there; more are not checked.
const MAX_CANDIDATES: usize = 512 << 10;

/// How many calls lead from wanted code to functions outside of it that are still analysed for whether they return.
const MAX_CALLS_OUTSIDE: u32 = 3;

/// The alignment of functions, bytes: compilers place them so for x86-64.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The most calls of one program, 8 bytes each. Real code has some 15,000 for each MB.
const MAX_CALLS: usize = 4 << 20;

/// What is kept of each function.
pub(crate) struct Function {
    /// Where its code is, as [`Parts`] says. Linkers place rarely executed blocks far from the others.
    pub(crate) parts: u64,
    returns: bool,
    /// Whether its start is certain: a direct call or a symbol.
    pub(crate) is_called: bool,
}

/// The functions of a program by their starts.
pub(crate) type Functions = BTreeMap<u64, Function>;

/// Finds all functions, and completes `knowledge`.
pub(crate) fn discover(
    knowledge: &mut Knowledge<'_>,
    hints: &Hints,
    wanted: &[Range<u64>],
) -> Result<Functions, Error> {
    sweep(knowledge, hints, wanted)?;
    sweep(knowledge, hints, wanted)
}

/// Analyses all functions once, with what is known of them from before.
fn sweep(knowledge: &mut Knowledge<'_>, hints: &Hints, wanted: &[Range<u64>]) -> Result<Functions, Error> {
    let seeds = hints.function_starts.iter().copied().filter(|start| contains(wanted, *start));
    // Of an entry point that is not wanted, no calls to other unwanted code are followed.
    let calls_outside = |start: &u64| if contains(wanted, *start) { 0 } else { MAX_CALLS_OUTSIDE };
    let entry = hints.entry.map(|start| (start, calls_outside(&start)));
    let pointers = hints.code_pointers.iter().copied().filter(|start| contains(wanted, *start));
    let mut sweep = Sweep {
        wanted,
        visited: AddressSet::new(knowledge.program.code_ranges())?,
        functions: BTreeMap::new(),
        pending: seeds.map(|start| (start, 0)).chain(entry).collect(),
        candidates: pointers.take(MAX_CANDIDATES).collect(),
        calls: Vec::new(),
    };
    knowledge.likely.clear();
    sweep.follow_calls(knowledge)?;
    sweep.follow_candidates(knowledge)?;
    sweep.follow_gaps(knowledge)?;
    let Sweep { mut functions, visited, mut calls, .. } = sweep;
    calls.sort_unstable();
    calls.dedup();
    find_functions_that_never_return(knowledge, &mut functions, &calls, &visited)?;
    let called = functions.iter().filter(|(_, function)| function.is_called);
    knowledge.called = called.map(|(start, _)| *start).collect();
    // Those outside of wanted code still limit the functions before them.
    knowledge.called.extend(hints.function_starts.iter().copied());
    Ok(functions)
}

struct Sweep<'a> {
    wanted: &'a [Range<u64>],
    visited: AddressSet,
    functions: Functions,
    /// Starts of functions that are called, and the number of calls since wanted code.
    pending: Vec<(u64, u32)>,
    /// Addresses that may be starts of functions.
    candidates: BTreeSet<u64>,
    /// Functions that are called or jumped to, each with one that does, by their numbers in `visited`.
    calls: Vec<(u32, u32)>,
}

impl Sweep<'_> {
    fn follow_calls(&mut self, knowledge: &mut Knowledge<'_>) -> Result<(), Error> {
        while let Some((start, calls_outside)) = self.pending.pop() {
            if !knowledge.code.contains(start) {
                continue;
            }
            knowledge.called.insert(start);
            if let Some(function) = self.functions.get_mut(&start) {
                function.is_called = true;
                continue;
            }
            self.analyze(knowledge, start, calls_outside, true)?;
        }
        Ok(())
    }

    fn follow_candidates(&mut self, knowledge: &mut Knowledge<'_>) -> Result<(), Error> {
        while let Some(start) = self.candidates.pop_first() {
            if self.visited.contains(start) || !is_plausible_start(knowledge, start) {
                continue;
            }
            knowledge.likely.insert(start);
            self.analyze(knowledge, start, 0, false)?;
            self.follow_calls(knowledge)?;
        }
        Ok(())
    }

    /// Analyses what is at aligned addresses in code that nothing leads to.
    fn follow_gaps(&mut self, knowledge: &mut Knowledge<'_>) -> Result<(), Error> {
        for range in intersections(knowledge.program.code_ranges(), self.wanted) {
            let mut address = range.start;
            while address < range.end {
                knowledge.work.spend(1)?;
                address = self.visited.next_absent(address, range.end);
                if address == range.end {
                    break;
                }
                let Some(instruction) = knowledge.code.decode(address) else {
                    address += 1;
                    continue;
                };
                let padding = padding_length(&instruction, knowledge.code.bytes(address));
                if let Some(length) = padding {
                    address += length;
                } else if address % FUNCTION_ALIGNMENT == 0 && is_plausible_start(knowledge, address) {
                    self.candidates.insert(address);
                    self.follow_candidates(knowledge)?;
                    // The next address has been visited.
                    address += 1;
                } else {
                    address = end_of_path(knowledge, &self.visited, address)?;
                }
            }
        }
        Ok(())
    }

    fn analyze(
        &mut self,
        knowledge: &mut Knowledge<'_>,
        start: u64,
        calls_outside: u32,
        is_called: bool,
    ) -> Result<(), Error> {
        if self.functions.len() >= MAX_FUNCTIONS {
            return Err(Error::TooLarge);
        }
        let flow = flow_of(knowledge, start)?;
        for block in flow.blocks.iter() {
            self.visited.insert(block.start, block.end);
        }
        for callee in &flow.callees {
            let calls = if contains(self.wanted, *callee) { 0 } else { calls_outside + 1 };
            if calls <= MAX_CALLS_OUTSIDE
                && !self.functions.get(callee).is_some_and(|callee| callee.is_called)
            {
                self.pending.push((*callee, calls));
            }
        }
        self.add_calls(&flow)?;
        let addresses = flow.code_addresses.iter().chain(&flow.tail_targets);
        let capacity = MAX_CANDIDATES.saturating_sub(self.candidates.len());
        self.candidates.extend(addresses.filter(|address| contains(self.wanted, **address)).take(capacity));
        self.functions.insert(start, Function::of(&flow, knowledge, is_called));
        flow.recycle(knowledge);
        Ok(())
    }

    fn add_calls(&mut self, flow: &FunctionFlow) -> Result<(), Error> {
        let Some(caller) = self.visited.index(flow.start) else { return Ok(()) };
        let callees = flow.callees.iter().chain(&flow.tail_targets);
        let mut callees: Vec<u32> = callees.filter_map(|callee| self.visited.index(*callee)).collect();
        callees.sort_unstable();
        callees.dedup();
        self.calls.extend(callees.into_iter().map(|callee| (callee, caller)));
        if self.calls.len() > MAX_CALLS { Err(Error::TooLarge) } else { Ok(()) }
    }
}

/// A set of parts of a program's code: 64 of equal length, one bit each.
pub(crate) struct Parts {
    start: u64,
    part_bytes: u64,
}

impl Parts {
    pub(crate) fn of_program(program: &dyn Program) -> Self {
        let ranges = program.code_ranges();
        let start = ranges.first().map_or(0, |range| range.start);
        let end = ranges.last().map_or(0, |range| range.end);
        Self { start, part_bytes: end.saturating_sub(start) / 64 + 1 }
    }

    /// The parts that contain addresses of a range.
    pub(crate) fn of(&self, range: &Range<u64>) -> u64 {
        let part = |address: u64| (address.saturating_sub(self.start) / self.part_bytes).min(63);
        let (first, last) = (part(range.start), part(range.end.saturating_sub(1).max(range.start)));
        (u64::MAX >> (63 - last)) & (u64::MAX << first)
    }
}

impl Function {
    fn of(flow: &FunctionFlow, knowledge: &Knowledge<'_>, is_called: bool) -> Self {
        let parts = Parts::of_program(knowledge.program);
        let parts = flow.blocks.iter().fold(0, |bits, block| bits | parts.of(&(block.start..block.end)));
        let returns = flow.returns(knowledge);
        Self { parts, returns, is_called }
    }
}

fn flow_of(knowledge: &mut Knowledge<'_>, start: u64) -> Result<FunctionFlow, Error> {
    let state = FunctionFlow::entry_state(knowledge, start);
    FunctionFlow::of(knowledge, start, &state, &Surroundings::NONE)
}

/// Repeats until no function is found that never returns: that of one can be the reason for that of its callers. `calls` is
/// sorted.
fn find_functions_that_never_return(
    knowledge: &mut Knowledge<'_>,
    functions: &mut Functions,
    calls: &[(u32, u32)],
    numbers: &AddressSet,
) -> Result<(), Error> {
    let silent = functions.iter().filter(|(_, function)| !function.returns).map(|(start, _)| *start);
    let mut found: Vec<u64> = silent.collect();
    while !found.is_empty() {
        // A function can call many that never return, and is analysed again once for all of them.
        let mut callers = BTreeSet::new();
        for callee in std::mem::take(&mut found) {
            if knowledge.never_return.insert(callee)
                && let Some(number) = numbers.index(callee)
            {
                let first = calls.partition_point(|(callee, _)| *callee < number);
                let of_callee = calls[first..].iter().take_while(|(callee, _)| *callee == number);
                callers.extend(of_callee.filter_map(|(_, caller)| numbers.address(*caller)));
            }
        }
        for caller in callers {
            let Some(is_called) =
                functions.get(&caller).filter(|caller| caller.returns).map(|caller| caller.is_called)
            else {
                continue;
            };
            let flow = flow_of(knowledge, caller)?;
            let function = Function::of(&flow, knowledge, is_called);
            flow.recycle(knowledge);
            if !function.returns {
                found.push(caller);
            }
            functions.insert(caller, function);
        }
    }
    Ok(())
}

/// Whether the instructions at an address can be the first of a function: they do not end one.
fn is_plausible_start(knowledge: &mut Knowledge<'_>, address: u64) -> bool {
    const INSTRUCTIONS: usize = 4;
    let mut next = address;
    for _ in 0..INSTRUCTIONS {
        let Some(instruction) = knowledge.code.decode(next) else { return false };
        if matches!(instruction.mnemonic(), Mnemonic::Pop | Mnemonic::Leave) {
            return false;
        }
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
        next = instruction.next_ip();
    }
    true
}

/// The address behind the next instruction after which execution continues elsewhere, or the next visited address.
fn end_of_path(knowledge: &mut Knowledge<'_>, visited: &AddressSet, start: u64) -> Result<u64, Error> {
    let mut address = start;
    loop {
        knowledge.work.spend(1)?;
        let Some(instruction) = knowledge.code.decode(address) else { return Ok(address + 1) };
        address = instruction.next_ip();
        if visited.contains(address) || ends_path(&instruction) {
            return Ok(address);
        }
    }
}

pub(crate) fn ends_path(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Hlt
        || matches!(
            instruction.flow_control(),
            FlowControl::Return
                | FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Exception
        )
}

/// Whether one of the sorted ranges contains an address.
pub(crate) fn contains(ranges: &[Range<u64>], address: u64) -> bool {
    let following = ranges.partition_point(|range| range.start <= address);
    following > 0 && ranges[following - 1].contains(&address)
}

/// The parts that both lists of sorted ranges contain.
pub(crate) fn intersections(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let part = a.start.max(b.start)..a.end.min(b.end);
        if part.start < part.end {
            parts.push(part);
        }
        if a.end < b.end { i += 1 } else { j += 1 }
    }
    parts
}
