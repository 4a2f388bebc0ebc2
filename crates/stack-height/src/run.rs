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
    // A stable sort takes little time for runs that are mostly in order.
    runs.sort();
    let mut rows = RowWriter::default();
    let mut active = Active::default();
    let mut rest = &*runs;
    loop {
        if active.ends.is_empty() {
            rest = rows.push_separate(rest);
        }
        let next_start = rest.first().map(|run| run.start);
        let Some(address) = next_start.into_iter().chain(active.first_end()).min() else { break };
        active.remove_until(address);
        while let Some((run, others)) = rest.split_first()
            && run.start == address
        {
            active.insert(run);
            rest = others;
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
    /// Adds the rows of the first runs, as far as each ends before the next one begins; the other runs.
    fn push_separate<'a>(&mut self, mut runs: &'a [Run]) -> &'a [Run] {
        while let Some((run, others)) = runs.split_first()
            && run.start < run.end
            && others.first().is_none_or(|next| run.end <= next.start)
        {
            self.push(run.start, Some((run.frame, run.confidence)));
            if others.first().is_none_or(|next| run.end < next.start) {
                self.push(run.end, None);
            }
            runs = others;
        }
        runs
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Cfa, SavedFramePointer};

    fn frame(offset: u64) -> Frame {
        Frame { cfa: Cfa::StackPointer(offset as i32), frame_pointer: SavedFramePointer::Same }
    }

    /// What all runs say about one address.
    fn expected(runs: &[Run], address: u64) -> Option<(Frame, Confidence)> {
        let here = || runs.iter().filter(|run| run.start <= address && address < run.end);
        if here().any(|run| run.frame.is_recognized()) {
            return here().map(|run| (run.frame, run.confidence)).max();
        }
        let (best, worst) =
            (here().map(|run| (run.frame, run.confidence)).min()?, here().map(|run| run.frame).max()?);
        (best.0 == worst).then_some(best)
    }

    #[test]
    fn rows_state_what_all_runs_agree_on() {
        let mut state = 1_u64;
        let mut number = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for count in (0..24).cycle().take(2000) {
            let mut runs: Vec<Run> = (0..count)
                .map(|_| {
                    let start = number(60);
                    let confidence =
                        if number(2) == 0 { Confidence::Full } else { Confidence::ReturnMustFollowCall };
                    let frame = if number(20) == 0 { Frame::ROOT } else { frame(number(3)) };
                    Run { start, end: start + 1 + number(8), frame, confidence }
                })
                .collect();
            let rows = rows_of(&mut runs);
            assert!(rows.is_sorted_by(|row, next| row.address < next.address));
            for address in 0..70 {
                let row = row_at(&rows, address).and_then(|row| Some((row.frame?, row.confidence)));
                assert_eq!(row, expected(&runs, address), "{address} in {runs:?}");
            }
        }
    }
}
