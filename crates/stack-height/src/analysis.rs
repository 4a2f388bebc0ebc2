//! The analysis of a program: functions first, then rows, window by window.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use crate::{
    Error,
    blocks::Blocks,
    code::MachineCode,
    discovery::{Functions, Parts, discover, intersections},
    entry::{has_prologue, looks_like_entry},
    function::{FunctionFlow, Surroundings},
    function_rows::FunctionRuns,
    gaps::add_runs_of_gaps,
    knowledge::Knowledge,
    program::{Hints, MAX_CODE_ADDRESS, Program},
    root::thread_start_runs,
    row::{Confidence, StackRow},
    run::{Run, row_at, rows_of},
    signal_return::signal_return_runs,
    step::Interpreter,
    work::Work,
};

/// The code whose runs are in memory at the same time, bytes.
const WINDOW_BYTES: u64 = 8 << 20;

/// The most rows of [`analyze`]: 24 bytes each. Code has some 40,000 for each MB.
const MAX_ROWS: usize = 4 << 20;

/// The most bytes of a function that only jumps to an unknown address: a stub, or a PLT entry.
const SHORT_FUNCTION_BYTES: u64 = 40;

/// Computes the unwind rows of the code in `wanted` (sorted ranges). Code outside is followed only to decide whether a
/// function returns, and from the entry point to `main`.
///
/// The rows are sorted by address. Each is valid up to the next one. `should_continue` is called regularly.
///
/// # Errors
/// [`Error::Cancelled`] when `should_continue` returns `false`, [`Error::TooLarge`] when the program exceeds a limit, also that
/// of its addresses.
pub fn analyze(
    program: &dyn Program,
    hints: &Hints,
    wanted: &[Range<u64>],
    should_continue: &dyn Fn() -> bool,
) -> Result<Vec<StackRow>, Error> {
    let mut rows = Vec::new();
    analyze_in_parts(program, hints, wanted, should_continue, &mut |part| {
        rows.extend_from_slice(part);
        if rows.len() > MAX_ROWS { Err(Error::TooLarge) } else { Ok(()) }
    })?;
    Ok(rows)
}

/// As [`analyze`], for programs of any size: the rows are given to `add_rows` in parts, in ascending order, so that only those
/// of 8 MiB of code are in memory.
///
/// # Errors
/// Those of [`analyze`] and of `add_rows`. The last row before an error is not limited.
pub fn analyze_in_parts(
    program: &dyn Program,
    hints: &Hints,
    wanted: &[Range<u64>],
    should_continue: &dyn Fn() -> bool,
    add_rows: &mut dyn FnMut(&[StackRow]) -> Result<(), Error>,
) -> Result<(), Error> {
    if program.code_ranges().iter().any(|range| range.end > MAX_CODE_ADDRESS) {
        return Err(Error::TooLarge);
    }
    let parts = intersections(program.code_ranges(), wanted);
    let lengths = parts.iter().map(|range| range.end.saturating_sub(range.start));
    let wanted_bytes = lengths.fold(0_u64, u64::saturating_add);
    let mut knowledge = Knowledge {
        program,
        code: MachineCode::new(program),
        interpreter: Interpreter::new(),
        work: Work::new(wanted_bytes, should_continue),
        has_fixed_addresses: hints.has_fixed_addresses,
        called: BTreeSet::new(),
        likely: BTreeSet::new(),
        never_return: HashSet::from_iter(hints.never_return.iter().copied()),
        data_addresses: BTreeSet::new(),
        spare_blocks: Blocks::default(),
    };
    knowledge.called.extend(hints.function_starts.iter().copied());
    let functions = discover(&mut knowledge, hints, wanted)?;
    let mut is_known_before = false;
    for range in parts {
        let mut start = range.start;
        while start < range.end {
            let window = start..range.end.min(start.saturating_add(WINDOW_BYTES));
            let mut rows = rows_of_window(&mut knowledge, &functions, &window)?;
            if is_known_before && rows.first().is_none_or(|row| row.address > window.start) {
                let end_of_last =
                    StackRow { address: window.start, frame: None, confidence: Confidence::Full };
                rows.insert(0, end_of_last);
            }
            is_known_before = rows.last().is_some_and(|row| row.frame.is_some());
            add_rows(&rows)?;
            start = window.end;
        }
    }
    Ok(())
}

fn rows_of_window(
    knowledge: &mut Knowledge<'_>,
    functions: &Functions,
    window: &Range<u64>,
) -> Result<Vec<StackRow>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    let parts = Parts::of_program(knowledge.program).of(window);
    for (start, function) in functions {
        if !function.is_called || function.parts & parts == 0 {
            continue;
        }
        let state = FunctionFlow::entry_state(knowledge, *start);
        let flow = FunctionFlow::of(knowledge, *start, &state, &Surroundings::NONE)?;
        let outcomes = flow.outcomes();
        let is_confirmed = outcomes.returns + outcomes.tail_jumps + outcomes.failures > 0;
        let confidence = if is_confirmed { Confidence::Full } else { Confidence::ReturnMustFollowCall };
        runs.extend(FunctionRuns::of(knowledge, &flow, window, confidence)?.confirmed);
        flow.recycle(knowledge);
    }
    let called_rows = rows_of(&mut runs);
    for (start, function) in functions {
        if function.is_called || function.parts & parts == 0 {
            continue;
        }
        runs.extend(runs_of_likely(knowledge, *start, window, &called_rows)?);
    }
    drop(called_rows);
    add_runs_of_gaps(knowledge, &mut runs, window)?;
    runs.extend(signal_return_runs(knowledge, window)?);
    runs.extend(thread_start_runs(knowledge, window)?);
    let mut rows = rows_of(&mut runs);
    rows.retain(|row| window.contains(&row.address));
    Ok(rows)
}

/// The runs of what may be a function; none if its code does not confirm that it is one.
fn runs_of_likely(
    knowledge: &mut Knowledge<'_>,
    start: u64,
    window: &Range<u64>,
    called_rows: &[StackRow],
) -> Result<Vec<Run>, Error> {
    if row_at(called_rows, start).is_some_and(|row| row.frame.is_some()) {
        return Ok(Vec::new());
    }
    let state = FunctionFlow::entry_state(knowledge, start);
    let flow = FunctionFlow::of(knowledge, start, &state, &Surroundings::NONE)?;
    let runs = match confidence_of_likely(knowledge, &flow) {
        Some(confidence) => FunctionRuns::of(knowledge, &flow, window, confidence)?.confirmed,
        None => Vec::new(),
    };
    flow.recycle(knowledge);
    let contradicts = |run: &Run| {
        row_at(called_rows, run.start).is_some_and(|row| row.frame.is_some_and(|frame| frame != run.frame))
    };
    Ok(if runs.iter().any(contradicts) { Vec::new() } else { runs })
}

/// How far the rows of what may be a function can be relied on; `None` if its code does not confirm that it is one.
fn confidence_of_likely(knowledge: &mut Knowledge<'_>, flow: &FunctionFlow) -> Option<Confidence> {
    let start = flow.start;
    let outcomes = flow.outcomes();
    if outcomes.failures > 0 || flow.conflicts > 0 || flow.pops_return_address || !flow.has_aligned_calls() {
        return None;
    }
    let is_short =
        flow.blocks.at(start).is_some_and(|block| block.end.saturating_sub(start) <= SHORT_FUNCTION_BYTES);
    let is_function = outcomes.returns > 0
        || (looks_like_entry(knowledge, start)
            && (outcomes.tail_jumps > 0
                || has_prologue(knowledge, start)
                || (outcomes.likely_tail_jumps > 0 && flow.blocks.len() == 1 && is_short)));
    if !is_function {
        return None;
    }
    let is_confirmed = outcomes.returns + outcomes.tail_jumps > 0;
    Some(if is_confirmed { Confidence::Full } else { Confidence::ReturnMustFollowCall })
}
