//! Rows for code that no known function reaches, such as landing pads.

use std::ops::Range;

use crate::{
    Error,
    address_set::AddressSet,
    discovery::ends_path,
    function::{FunctionFlow, Surroundings},
    function_rows::FunctionRuns,
    knowledge::Knowledge,
    padding::padding_length,
    row::{Confidence, StackRow},
    run::{Run, rows_of},
    scan::frame_by_scan,
    state::AbstractState,
};

/// The most instructions that are interpreted from one address.
const MAX_STEPS: u64 = 4000;

/// The number of runs after which they count as known code.
const RUNS_PER_MERGE: usize = 1024;

/// Adds the runs of code in a window that has no frame in `runs`. They are less reliable than those of functions.
pub(crate) fn add_runs_of_gaps(
    knowledge: &mut Knowledge<'_>,
    runs: &mut Vec<Run>,
    window: &Range<u64>,
) -> Result<(), Error> {
    let mut known = rows_of(runs);
    let mut merged = runs.len();
    let mut covered = AddressSet::new(std::slice::from_ref(window))?;
    for run in runs.iter() {
        covered.insert(run.start.max(window.start), run.end);
    }
    let mut address = window.start;
    while address < window.end && !knowledge.work.is_scarce() {
        knowledge.work.spend(1)?;
        address = covered.next_absent(address, window.end);
        if address == window.end {
            break;
        }
        let Some(instruction) = knowledge.code.decode(address) else {
            address += 1;
            continue;
        };
        if let Some(length) = padding_length(&instruction, knowledge.code.bytes(address)) {
            address += length;
            continue;
        }
        let found = runs_from(knowledge, &known, address, window)?;
        for run in &found {
            covered.insert(run.start, run.end);
        }
        runs.extend(found);
        if !covered.contains(address) {
            address = skip_path(knowledge, &covered, address)?;
        }
        if runs.len() - merged > RUNS_PER_MERGE {
            known = rows_of(runs);
            merged = runs.len();
        }
    }
    Ok(())
}

/// The runs of the code that is reached from an address, if its frame is found and nothing contradicts it.
fn runs_from(
    knowledge: &mut Knowledge<'_>,
    known: &[StackRow],
    start: u64,
    window: &Range<u64>,
) -> Result<Vec<Run>, Error> {
    let Some(frame) = frame_by_scan(knowledge, start, known)? else { return Ok(Vec::new()) };
    let Some(state) = AbstractState::of_frame(frame) else { return Ok(Vec::new()) };
    let flow = FunctionFlow::of(knowledge, start, &state, &Surroundings { known, max_steps: MAX_STEPS })?;
    let is_refuted = flow.is_incomplete
        || flow.outcomes().failures > 0
        || flow.conflicts > 0
        || flow.pops_return_address
        || !flow.has_aligned_calls();
    let runs = if is_refuted {
        Vec::new()
    } else {
        FunctionRuns::of(knowledge, &flow, window, Confidence::ReturnMustFollowCall)?.confirmed
    };
    flow.recycle(knowledge);
    Ok(runs)
}

/// The address behind the path that begins at one, or of the next known code.
fn skip_path(knowledge: &mut Knowledge<'_>, covered: &AddressSet, start: u64) -> Result<u64, Error> {
    let mut address = start;
    loop {
        knowledge.work.spend(1)?;
        let Some(instruction) = knowledge.code.decode(address) else { return Ok(address + 1) };
        address = instruction.next_ip();
        if ends_path(&instruction) || covered.contains(address) {
            return Ok(address);
        }
    }
}
