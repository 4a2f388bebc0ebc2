//! Which method a function of precompiled code belongs to.

use super::{
    bytes::Bytes,
    native_format::{array_elements, hash_table_entries},
    readytorun::Method,
    signature::InstanceSignature,
};
use crate::elf::Defect;

/// The first function of each method, in order. The functions up to the next method's are its own: handlers of
/// exceptions have one each.
#[derive(Debug, Default)]
pub(super) struct EntryPoints(Vec<(u32, Method)>);

impl EntryPoints {
    /// Reads the methods of the image's own types and the instances of generic ones, and takes them and the types in
    /// their signatures off those that are left.
    pub(super) fn read(
        definitions: &[u8],
        instances: &[u8],
        methods_left: &mut u64,
        types_left: &mut u32,
    ) -> Result<Self, Defect> {
        let limit = usize::try_from(*methods_left).unwrap_or(usize::MAX);
        let mut methods = Vec::new();
        if !definitions.is_empty() {
            for (index, position) in array_elements(definitions)?.take(limit) {
                let function = first_function(definitions, position)?;
                methods.push((function, Method::Definition(index + 1)));
            }
        }
        if !instances.is_empty() {
            for position in hash_table_entries(instances, limit.saturating_sub(methods.len()))? {
                let mut reader = Bytes::at(instances, position);
                InstanceSignature::read(&mut reader, types_left)?;
                let function = first_function(instances, reader.position())?;
                methods.push((function, Method::Instance(position as u32)));
            }
        }
        *methods_left = methods_left.saturating_sub(methods.len() as u64);
        methods.sort_unstable();
        methods.shrink_to_fit();
        Ok(Self(methods))
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
fn first_function(bytes: &[u8], position: usize) -> Result<u32, Defect> {
    const HAS_FIXUPS: u32 = 1;
    let value = Bytes::at(bytes, position).native_unsigned()?;
    Ok(if value & HAS_FIXUPS == 0 { value >> 1 } else { value >> 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_up_to_the_next_method_are_the_methods_own() {
        let methods = EntryPoints(vec![(2, Method::Definition(7)), (5, Method::Instance(9))]);
        assert_eq!(methods.method_of(1), None);
        assert_eq!(methods.method_of(2), Some(Method::Definition(7)));
        assert_eq!(methods.method_of(4), Some(Method::Definition(7)));
        assert_eq!(methods.method_of(5), Some(Method::Instance(9)));
        assert_eq!(methods.method_of(u32::MAX), Some(Method::Instance(9)));
        assert_eq!(EntryPoints::default().method_of(0), None);
    }

    #[test]
    fn flags_stand_below_the_number_of_a_function() {
        assert_eq!(first_function(&[(5 << 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[(5 << 2 | 1) << 1], 0), Ok(5));
        assert_eq!(first_function(&[], 0), Err(Defect::Malformed));
    }
}
