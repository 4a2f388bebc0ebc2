//! Runs of instructions with one frame, and their combination to rows.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use crate::row::{Confidence, Frame, StackRow};

/// Instructions one after the other with the same frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) frame: Frame,
    pub(crate) confidence: Confidence,
}

/// The rows of runs, which may overlap. Where runs with different frames do, nothing is known, but of recognized instructions.
pub(crate) fn rows_of(runs: &mut [Run]) -> Vec<StackRow> {
    runs.sort_unstable();
    let mut rows = RowWriter::default();
    let mut active = Active::default();
    let mut runs = runs.iter().peekable();
    loop {
        let next_start = runs.peek().map(|run| run.start);
        let next_end = active.first_end();
        let Some(address) = next_start.into_iter().chain(next_end).min() else { break };
        active.remove_until(address);
        while let Some(run) = runs.next_if(|run| run.start == address) {
            active.insert(run);
        }
        rows.push(address, active.frame());
    }
    rows.rows
}

/// The row that contains an address.
pub(crate) fn row_at(rows: &[StackRow], address: u64) -> Option<&StackRow> {
    let following = rows.partition_point(|row| row.address <= address);
    rows.get(following.checked_sub(1)?)
}

#[derive(Default)]
struct RowWriter {
    rows: Vec<StackRow>,
}

impl RowWriter {
    fn push(&mut self, address: u64, known: Option<(Frame, Confidence)>) {
        let confidence = known.map_or(Confidence::Full, |(_, confidence)| confidence);
        let row = StackRow { address, frame: known.map(|(frame, _)| frame), confidence };
        match self.rows.last() {
            Some(last) if (last.frame, last.confidence) == (row.frame, row.confidence) => {}
            _ => self.rows.push(row),
        }
    }
}

/// The runs that contain one address.
#[derive(Default)]
struct Active {
    /// How many runs have each frame.
    frames: BTreeMap<(Frame, Confidence), usize>,
    ends: BinaryHeap<Reverse<(u64, Frame, Confidence)>>,
}

impl Active {
    fn insert(&mut self, run: &Run) {
        *self.frames.entry((run.frame, run.confidence)).or_default() += 1;
        self.ends.push(Reverse((run.end, run.frame, run.confidence)));
    }

    fn first_end(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((end, ..))| *end)
    }

    fn remove_until(&mut self, address: u64) {
        while let Some(Reverse((end, frame, confidence))) = self.ends.peek().copied()
            && end <= address
        {
            self.ends.pop();
            if let Some(count) = self.frames.get_mut(&(frame, confidence)) {
                *count -= 1;
                if *count == 0 {
                    self.frames.remove(&(frame, confidence));
                }
            }
        }
    }

    /// The frame that all have, with the best confidence; that of recognized instructions, which is the last, where there is one.
    fn frame(&self) -> Option<(Frame, Confidence)> {
        let (best, _) = self.frames.first_key_value()?;
        let (last, _) = self.frames.last_key_value()?;
        if last.0.is_recognized() {
            return Some(*last);
        }
        (best.0 == last.0).then_some(*best)
    }
}
