//! Rows of other origin than the FDEs of one section: those of further sections, of PLTs, of gaps and of epilogues.

use std::ops::Range;

use profiler_binary_reader::ParseError;
use profiler_common::unwind::Rule;

use super::{Compiler, Function, FunctionRows, is_padding};
use crate::{
    coverage::Coverage,
    instruction_rows::{Instructions, MAX_CODE_BYTES, first_bytes, total_bytes},
    managed_code::{ManagedCode, ReturnTest},
    packed_rows::take_pair,
    rule_set::UNKNOWN,
};

/// The functions of managed code between two calls of the callback that can cancel the compilation.
const FUNCTIONS_BETWEEN_CANCEL_CHECKS: usize = 256;

impl Compiler<'_> {
    /// Adds the functions of the sections before. Of those that are there already, what none of these covers remains.
    pub(super) fn add_covering(&mut self, covering: Vec<Function>) -> Result<(), ParseError> {
        if covering.is_empty() {
            return Ok(());
        }
        let covered = Coverage::of(covering.iter().map(|function| function.start..function.end()));
        let functions = std::mem::replace(&mut self.functions, covering);
        for (index, function) in functions.iter().enumerate() {
            let next_start = functions.get(index + 1).map_or(u64::MAX, |next| next.start);
            self.add_uncovered(*function, function.end().min(next_start), &covered)?;
        }
        self.functions.sort_unstable();
        Ok(())
    }

    /// Adds the parts of a function up to an address that are not covered.
    fn add_uncovered(&mut self, function: Function, end: u64, covered: &Coverage) -> Result<(), ParseError> {
        let parts: Vec<_> = covered.gaps(function.start..end).collect();
        if matches!(&parts[..], [whole] if *whole == (function.start..end)) {
            self.functions.push(function);
            return Ok(());
        }
        let rows = if parts.is_empty() { Vec::new() } else { self.rows_of(function) };
        for part in parts {
            let first = rows.partition_point(|(address, _)| *address <= part.start).saturating_sub(1);
            let mut copy = self.begin_function(part.start, part.end)?;
            for (address, rule) in rows.iter().skip(first).take_while(|(address, _)| *address < part.end) {
                self.push_row(&mut copy, (*address).max(part.start), *rule);
            }
            copy.known_until = part.end;
            self.end_function(copy)?;
        }
        Ok(())
    }

    /// The rows of a function: the address of each, and the index of its rule. The first one is at its start.
    fn rows_of(&self, function: Function) -> Vec<(u64, u16)> {
        let mut packed = self.packed_rows.get(function.rows as usize..).unwrap_or_default();
        let mut address = function.start;
        let mut rows = Vec::new();
        while let Some((distance @ 1.., rule)) = take_pair(&mut packed) {
            address += u64::from(distance - 1);
            rows.push((address, rule as u16));
        }
        rows
    }

    /// Adds PLTs that no FDE covers, and sorts the functions. Of functions with the same start, the longest is last: its rules
    /// are used.
    pub(super) fn add_known_code(&mut self) -> Result<(), ParseError> {
        self.functions.sort_unstable();
        for (plt, rule) in &self.code.known_code {
            let is_code = self.code.code_range_at(plt.start).is_some_and(|code| code.end >= plt.end);
            let before = self.functions.partition_point(|function| function.start < plt.end);
            let is_covered = before.checked_sub(1).is_some_and(|last| self.functions[last].end() > plt.start);
            if is_code && !is_covered && !plt.is_empty() {
                let mut rows = self.begin_function(plt.start, plt.end)?;
                let rule = self.rules.index_of(*rule)?;
                self.push_row(&mut rows, plt.start, rule);
                rows.known_until = plt.end;
                self.end_function(rows)?;
            }
        }
        self.functions.sort_unstable();
        Ok(())
    }

    /// The parts of sorted ranges that nothing covers, without padding.
    pub(super) fn gaps(&self, text: &[Range<u64>]) -> Vec<Range<u64>> {
        let covered = Coverage::of(self.functions.iter().map(|function| function.start..function.end()));
        let gaps = text.iter().flat_map(|text| covered.gaps(text.clone()));
        gaps.filter(|gap| !is_padding(gap.clone())).collect()
    }

    /// Adds the code that neither an FDE nor a PLT covers, with the rows computed from its instructions, up to a limit.
    pub(super) fn add_gaps(&mut self, instructions: &Instructions) -> Result<(), ParseError> {
        let gaps = first_bytes(&self.gaps(instructions.readable_text()), MAX_CODE_BYTES);
        let all_bytes = total_bytes(&self.gaps(instructions.text()));
        self.statistics.bytes_not_analysed = all_bytes.saturating_sub(total_bytes(&gaps));
        self.add_rows_of_gaps(&gaps, &instructions.rows(&gaps, self.should_continue))
    }

    /// Adds sorted gaps with the rows within them.
    pub(super) fn add_rows_of_gaps(
        &mut self,
        gaps: &[Range<u64>],
        rows: &[(u64, Rule)],
    ) -> Result<(), ParseError> {
        for gap in gaps {
            let first = rows.partition_point(|(address, _)| *address < gap.start);
            let within = rows.iter().skip(first).take_while(|(address, _)| *address < gap.end);
            let mut function = self.begin_function(gap.start, gap.end)?;
            if rows.get(first).is_none_or(|(address, _)| *address > gap.start) {
                self.push_row(&mut function, gap.start, UNKNOWN);
            }
            for (address, rule) in within {
                let rule = self.rules.index_of(*rule)?;
                self.push_row(&mut function, *address, rule);
            }
            function.known_until = gap.end;
            self.end_function(function)?;
        }
        self.functions.sort_unstable();
        Ok(())
    }

    /// Replaces the rows in the epilogues of managed code, if its call frame information does not describe them.
    pub(super) fn replace_epilogues(&mut self, code: &ManagedCode) -> Result<(), ParseError> {
        let mut all = ReturnTest::default();
        let mut functions = self.functions.clone();
        for index in 0..functions.len() {
            if index % FUNCTIONS_BETWEEN_CANCEL_CHECKS == 0 && !(self.should_continue)() {
                return Err(ParseError::TooLarge);
            }
            let function = functions[index];
            let next_start = functions.get(index + 1).map_or(u64::MAX, |next| next.start);
            let range = function.start..function.end().min(next_start);
            if !code.contains(&range) {
                continue;
            }
            let rows = self.rows_of(function).into_iter();
            let rows: Vec<_> = rows.map(|(address, rule)| (address, self.rules.get(rule))).collect();
            let tested = code.test(range, &rows);
            all.add(&tested);
            if let Some(rows) = tested.rows {
                functions[index].rows = self.push_rows(function, &rows)?;
            }
        }
        if all.has_failed() {
            self.functions = functions;
        }
        Ok(())
    }

    /// Packs other rows of a function; their position.
    fn push_rows(&mut self, function: Function, rows: &[(u64, Rule)]) -> Result<u32, ParseError> {
        let position = u32::try_from(self.packed_rows.len()).map_err(|_| ParseError::TooLarge)?;
        let packed = FunctionRows {
            end: function.end(),
            last: function.start,
            last_rule: None,
            known_until: function.end(),
        };
        self.push_rules(packed, rows)?;
        Ok(position)
    }

    /// Adds all rows of a function.
    pub(super) fn push_rules(
        &mut self,
        mut function: FunctionRows,
        rows: &[(u64, Rule)],
    ) -> Result<(), ParseError> {
        for (address, rule) in rows {
            let rule = self.rules.index_of(*rule)?;
            self.push_row(&mut function, *address, rule);
        }
        function.known_until = function.end;
        self.end_function(function)
    }
}
