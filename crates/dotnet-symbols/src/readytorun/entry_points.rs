//! Maps functions of precompiled code to methods: the entry point tables of a ReadyToRun image.

use profiler_binary_reader::{ByteCursor, ParseError};

use super::{
    method_tables::MethodKey,
    native_format::{array_elements, hash_table_entries},
};
use crate::signature::InstanceSignature;

/// The first function of each method, sorted. A method also has the functions up to the first one of the next method:
/// each exception handler is a function.
#[derive(Debug, Default)]
pub(super) struct EntryPoints(Vec<(u32, MethodKey)>);

impl EntryPoints {
    /// Adds the methods of the types of an assembly, and subtracts their number from `methods_left`.
    pub(super) fn add_definitions(
        &mut self,
        assembly: u16,
        table: &[u8],
        methods_left: &mut u64,
    ) -> Result<(), ParseError> {
        if table.is_empty() {
            return Ok(());
        }
        let before = self.0.len();
        let limit = usize::try_from(*methods_left).unwrap_or(usize::MAX);
        for (index, position) in array_elements(table)?.take(limit) {
            let method = MethodKey::Definition { assembly, row: index + 1 };
            self.0.push((first_function(table, position)?, method));
        }
        *methods_left = methods_left.saturating_sub((self.0.len() - before) as u64);
        Ok(())
    }

    /// Adds the instances of generic methods and of methods of generic types. Subtracts their number from `methods_left`,
    /// and the number of types in their signatures from `types_left`.
    pub(super) fn add_instances(
        &mut self,
        table: &[u8],
        methods_left: &mut u64,
        types_left: &mut u32,
    ) -> Result<(), ParseError> {
        if table.is_empty() {
            return Ok(());
        }
        let limit = usize::try_from(*methods_left).unwrap_or(usize::MAX);
        let positions = hash_table_entries(table, limit)?;
        *methods_left = methods_left.saturating_sub(positions.len() as u64);
        for position in positions {
            let mut reader = ByteCursor::new(table, position);
            InstanceSignature::read(&mut reader, types_left)?;
            let function = first_function(table, reader.position())?;
            self.0.push((function, MethodKey::Instance(position as u32)));
        }
        Ok(())
    }

    /// Sorts the entries for [`method_of`](Self::method_of).
    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
        self.0.shrink_to_fit();
    }

    #[cfg(feature = "testing")]
    pub(super) fn methods(&self) -> impl Iterator<Item = MethodKey> {
        self.0.iter().map(|(_, method)| *method)
    }

    /// The method that a function belongs to.
    pub(super) fn method_of(&self, function: u32) -> Option<MethodKey> {
        let after = self.0.partition_point(|(first, _)| *first <= function);
        Some(self.0.get(after.checked_sub(1)?)?.1)
    }
}

/// Reads the index of a method's first function, which follows one or two flag bits.
fn first_function(bytes: &[u8], position: usize) -> Result<u32, ParseError> {
    const HAS_FIXUPS: u32 = 1;
    let value = ByteCursor::new(bytes, position).native_unsigned()?;
    Ok(if value & HAS_FIXUPS == 0 { value >> 1 } else { value >> 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_the_functions_up_to_the_next_method() {
        let seventh = MethodKey::Definition { assembly: 0, row: 7 };
        let methods = EntryPoints(vec![(2, seventh), (5, MethodKey::Instance(9))]);
        assert_eq!(methods.method_of(1), None);
        assert_eq!(methods.method_of(2), Some(seventh));
        assert_eq!(methods.method_of(4), Some(seventh));
        assert_eq!(methods.method_of(5), Some(MethodKey::Instance(9)));
        assert_eq!(methods.method_of(u32::MAX), Some(MethodKey::Instance(9)));
        assert_eq!(EntryPoints::default().method_of(0), None);
    }

    #[test]
    fn flag_bits_precede_the_index_of_a_function() {
        assert_eq!(first_function(&[(5 << 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[(5 << 2 | 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[], 0), Err(ParseError::Malformed));
    }
}
