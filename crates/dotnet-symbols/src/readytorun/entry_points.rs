//! Which method a function of precompiled code belongs to.

use super::{
    native_format::{array_elements, hash_table_entries},
    readytorun::Method,
    signature::InstanceSignature,
};
use profiler_binary_reader::{ByteCursor, ParseError};

/// The first function of each method, in order. The functions up to the next method's are its own: handlers of
/// exceptions have one each.
#[derive(Debug, Default)]
pub(super) struct EntryPoints(Vec<(u32, Method)>);

impl EntryPoints {
    /// Adds the methods of an assembly's own types, and takes them off those that are left.
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
            let method = Method::Definition { assembly, row: index + 1 };
            self.0.push((first_function(table, position)?, method));
        }
        *methods_left = methods_left.saturating_sub((self.0.len() - before) as u64);
        Ok(())
    }

    /// Adds the instances of generic methods and of methods of generic types, and takes them and the types in their
    /// signatures off those that are left.
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
            self.0.push((function, Method::Instance(position as u32)));
        }
        Ok(())
    }

    /// Brings them into the order in which they are looked for.
    pub(super) fn sort(&mut self) {
        self.0.sort_unstable();
        self.0.shrink_to_fit();
    }

    #[cfg(test)]
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> {
        self.0.iter().map(|(_, method)| *method)
    }

    /// The method that a function belongs to.
    pub(super) fn method_of(&self, function: u32) -> Option<Method> {
        let above = self.0.partition_point(|(first, _)| *first <= function);
        Some(self.0.get(above.checked_sub(1)?)?.1)
    }
}

/// The number of a method's first function, with a bit or two of flags before it.
fn first_function(bytes: &[u8], position: usize) -> Result<u32, ParseError> {
    const HAS_FIXUPS: u32 = 1;
    let value = ByteCursor::new(bytes, position).native_unsigned()?;
    Ok(if value & HAS_FIXUPS == 0 { value >> 1 } else { value >> 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_up_to_the_next_method_are_the_methods_own() {
        let seventh = Method::Definition { assembly: 0, row: 7 };
        let methods = EntryPoints(vec![(2, seventh), (5, Method::Instance(9))]);
        assert_eq!(methods.method_of(1), None);
        assert_eq!(methods.method_of(2), Some(seventh));
        assert_eq!(methods.method_of(4), Some(seventh));
        assert_eq!(methods.method_of(5), Some(Method::Instance(9)));
        assert_eq!(methods.method_of(u32::MAX), Some(Method::Instance(9)));
        assert_eq!(EntryPoints::default().method_of(0), None);
    }

    #[test]
    fn flags_stand_below_the_number_of_a_function() {
        assert_eq!(first_function(&[(5 << 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[(5 << 2 | 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[], 0), Err(ParseError::Malformed));
    }
}
