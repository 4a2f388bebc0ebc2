//! The rows of a function that the JIT compiler of .NET compiled: from its `UNWIND_INFO`, and from its instructions, in which
//! epilogues are found.

use std::{ops::Range, sync::Arc};

use profiler_addresses::RuntimeAddress;
use profiler_binary_reader::ParseError;
use profiler_common::unwind::{CfaRule, PAGE_BITS, Rule};

use crate::{
    managed_code::ManagedCode,
    precompiled::{FUNCTION_ALIGNMENT_BYTES, UnwindInfoSection},
    row_writer::RowWriter,
    rule::rule_without_offsets,
    rule_set::RuleSet,
    table::{TableStatistics, UnwindTable},
};

/// The rows of one function of JIT code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagedFunction {
    code: Range<RuntimeAddress>,
    /// By the distance from the start of the code, in ascending order from 0.
    rows: Arc<[(u32, Rule)]>,
}

impl ManagedFunction {
    /// Compiles the rows of a function. `unwind_info` is its `UNWIND_INFO` (Microsoft, "x64 exception handling"), which describes the
    /// prologue, `instructions` the bytes of its code.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the unwind information is malformed, or the instructions are not those of the code.
    pub fn compile(
        code: Range<RuntimeAddress>,
        unwind_info: Vec<u8>,
        instructions: Vec<u8>,
    ) -> Result<Self, ParseError> {
        let length = u32::try_from(code.end.0.saturating_sub(code.start.0)).ok().filter(|length| *length > 0);
        let length = length.filter(|length| instructions.len() as u64 == u64::from(*length));
        let length = length.ok_or(ParseError::Malformed)?;
        let prologue = UnwindInfoSection { address: 0, bytes: unwind_info }.prologue(0)?;
        let rows: Vec<(u64, Rule)> = prologue
            .frames
            .iter()
            // A hostile prologue can be longer than its function.
            .filter(|(offset, _)| u32::from(*offset) < length)
            .map(|(offset, frame)| {
                let rule = frame.rule().unwrap_or(rule_without_offsets(CfaRule::Unsupported));
                (u64::from(*offset), rule)
            })
            .collect();
        let epilogues = ManagedCode::new(0, instructions).test(0..length.into(), &rows);
        let rows = epilogues.rows.unwrap_or(rows);
        Ok(Self { code, rows: rows.into_iter().map(|(offset, rule)| (offset as u32, rule)).collect() })
    }

    /// The addresses of its code.
    pub fn code(&self) -> Range<RuntimeAddress> {
        self.code.clone()
    }

    /// The memory that it takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.rows)
    }
}

/// Everything that the unwind table of compiled methods depends on. Addresses of the table are relative to the start of the memory.
#[derive(Hash)]
pub(crate) struct ManagedSource {
    memory_start: RuntimeAddress,
    functions: Vec<ManagedFunction>,
}

impl ManagedSource {
    /// Takes the functions in one range of memory. They are in ascending order; those outside of the memory, and those that begin in
    /// another one, are left out.
    pub(crate) fn new<'a>(
        memory: &Range<RuntimeAddress>,
        functions: impl IntoIterator<Item = &'a ManagedFunction>,
    ) -> Self {
        let mut end = memory.start;
        let mut contained: Vec<ManagedFunction> = Vec::new();
        for function in functions {
            if function.code.start >= end && function.code.end <= memory.end {
                end = function.code.end;
                contained.push(function.clone());
            }
        }
        Self { memory_start: memory.start, functions: contained }
    }

    /// Compiles the table; empty without functions.
    ///
    /// # Errors
    /// [`ParseError::TooLarge`] when a limit is exceeded or `should_continue` returns `false`.
    pub(crate) fn compile(&self, should_continue: &dyn Fn() -> bool) -> Result<UnwindTable, ParseError> {
        /// The number of functions between two calls of the callback that can cancel the compilation.
        const FUNCTIONS_BETWEEN_CANCEL_CHECKS: usize = 1024;
        let offset = |address: RuntimeAddress| address.0 - self.memory_start.0;
        let first = self.functions.first().map_or(0, |function| offset(function.code.start) >> PAGE_BITS);
        let first_page = u32::try_from(first).map_err(|_| ParseError::TooLarge)?;
        let mut rows = RowWriter::new(first_page, RuleSet::new());
        let mut statistics = TableStatistics::default();
        for (index, function) in self.functions.iter().enumerate() {
            if index.is_multiple_of(FUNCTIONS_BETWEEN_CANCEL_CHECKS) && !should_continue() {
                return Err(ParseError::TooLarge);
            }
            statistics.functions += 1;
            for (row, rule) in &*function.rows {
                rows.write(offset(function.code.start) + u64::from(*row), *rule)?;
                statistics.unsupported_rows += u32::from(rule.cfa == CfaRule::Unsupported as u8);
            }
            let end = function.code.end;
            let next = self.functions.get(index + 1).map_or(u64::MAX, |next| next.code.start.0);
            if next - end.0 >= FUNCTION_ALIGNMENT_BYTES.into() {
                rows.write(offset(end), Rule::default())?;
            }
        }
        Ok(rows.finish(statistics))
    }
}

#[cfg(test)]
mod tests;
