//! Entry point tables: pairs of a function's name and the function (dotnet/runtime, `src/native/minipal/entrypoints.h`).

use profiler_binary_reader::ParseError;

use super::{NamedFunction, POINTER_BYTES, TableReader};

/// Pointers per record.
const POINTERS: usize = 2;

impl TableReader<'_> {
    pub(super) fn read_entry_points(&mut self) -> Result<(), ParseError> {
        let mut index = 0;
        while index < self.relocations.len() {
            let run = self.entry_points_from(index)?;
            index += (run.len() * POINTERS).max(1);
            self.add_table(run);
        }
        Ok(())
    }

    /// The records from an index of a relocation on, each right behind the one before.
    fn entry_points_from(&mut self, first: usize) -> Result<Vec<NamedFunction>, ParseError> {
        let mut run = Vec::new();
        let mut index = first;
        while let Some(function) = self.entry_point(index)? {
            run.push(function);
            index += POINTERS;
            if !self.has_distance(index - POINTERS, index, POINTERS as u64 * POINTER_BYTES) {
                break;
            }
        }
        Ok(run)
    }

    fn entry_point(&mut self, index: usize) -> Result<Option<NamedFunction>, ParseError> {
        match self.pointers_at(index) {
            Some([name, function]) if function.is_function && !name.is_function => {
                let name = self.name(name.target, b"_")?;
                Ok(name.map(|name| NamedFunction { address: function.target, name }))
            }
            _ => Ok(None),
        }
    }
}
