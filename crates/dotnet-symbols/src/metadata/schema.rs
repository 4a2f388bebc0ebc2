//! Defines the columns of the metadata tables and decodes coded indexes (ECMA-335 II.22, II.24.2.6).

/// The tables that names need, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// The module itself.
    Module = 0x00,
    /// Types of other modules.
    TypeRef = 0x01,
    /// Types that the module defines.
    TypeDef = 0x02,
    /// Methods that the module defines.
    MethodDef = 0x06,
    /// Methods and fields of other modules or of generic instances.
    MemberRef = 0x0a,
    /// Other modules.
    ModuleRef = 0x1a,
    /// Constructed types.
    TypeSpec = 0x1b,
    /// The assembly, if the module has its manifest.
    Assembly = 0x20,
    /// Other assemblies.
    AssemblyRef = 0x23,
    /// The enclosing type of each nested type.
    NestedClass = 0x29,
}

/// The type of a column, which determines its width.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    U16,
    U32,
    String,
    Guid,
    Blob,
    /// An index of a row of one table.
    Row(u8),
    /// An index of a row of one of several tables. The lowest bits are the tag of the table.
    Coded(&'static [u8]),
}

use Column::{Blob, Coded, Guid, Row, String, U16, U32};

/// A tag without a table.
const UNUSED_TAG: u8 = 0x3f;

pub(super) const TYPE_DEF_OR_REF: &[u8] = &[0x02, 0x01, 0x1b];
pub(super) const RESOLUTION_SCOPE: &[u8] = &[0x00, 0x1a, 0x23, 0x01];
pub(super) const MEMBER_REF_PARENT: &[u8] = &[0x02, 0x01, 0x1a, 0x06, 0x1b];
const HAS_CONSTANT: &[u8] = &[0x04, 0x08, 0x17];
const HAS_CUSTOM_ATTRIBUTE: &[u8] = &[
    0x06, 0x04, 0x01, 0x02, 0x08, 0x09, 0x0a, 0x00, 0x0e, 0x17, 0x14, 0x11, 0x1a, 0x1b, 0x20, 0x23, 0x26,
    0x27, 0x28, 0x2a, 0x2c, 0x2b,
];
const HAS_FIELD_MARSHAL: &[u8] = &[0x04, 0x08];
const HAS_DECLARATIVE_SECURITY: &[u8] = &[0x02, 0x06, 0x20];
const HAS_SEMANTICS: &[u8] = &[0x14, 0x17];
const METHOD_DEF_OR_REF: &[u8] = &[0x06, 0x0a];
const MEMBER_FORWARDED: &[u8] = &[0x04, 0x06];
const IMPLEMENTATION: &[u8] = &[0x26, 0x23, 0x27];
const CUSTOM_ATTRIBUTE_TYPE: &[u8] = &[UNUSED_TAG, UNUSED_TAG, 0x06, 0x0a, UNUSED_TAG];

/// The columns of each table, up to the last table that names need.
pub(super) const TABLES: [&[Column]; 0x2a] = [
    &[U16, String, Guid, Guid, Guid],
    &[Coded(RESOLUTION_SCOPE), String, String],
    &[U32, String, String, Coded(TYPE_DEF_OR_REF), Row(0x04), Row(0x06)],
    &[Row(0x04)],
    &[U16, String, Blob],
    &[Row(0x06)],
    &[U32, U16, U16, String, Blob, Row(0x08)],
    &[Row(0x08)],
    &[U16, U16, String],
    &[Row(0x02), Coded(TYPE_DEF_OR_REF)],
    &[Coded(MEMBER_REF_PARENT), String, Blob],
    &[U16, Coded(HAS_CONSTANT), Blob],
    &[Coded(HAS_CUSTOM_ATTRIBUTE), Coded(CUSTOM_ATTRIBUTE_TYPE), Blob],
    &[Coded(HAS_FIELD_MARSHAL), Blob],
    &[U16, Coded(HAS_DECLARATIVE_SECURITY), Blob],
    &[U16, U32, Row(0x02)],
    &[U32, Row(0x04)],
    &[Blob],
    &[Row(0x02), Row(0x14)],
    &[Row(0x14)],
    &[U16, String, Coded(TYPE_DEF_OR_REF)],
    &[Row(0x02), Row(0x17)],
    &[Row(0x17)],
    &[U16, String, Blob],
    &[U16, Row(0x06), Coded(HAS_SEMANTICS)],
    &[Row(0x02), Coded(METHOD_DEF_OR_REF), Coded(METHOD_DEF_OR_REF)],
    &[String],
    &[Blob],
    &[U16, Coded(MEMBER_FORWARDED), String, Row(0x1a)],
    &[U32, Row(0x04)],
    &[U32, U32],
    &[U32],
    &[U32, U16, U16, U16, U16, U32, Blob, String, String],
    &[U32],
    &[U32, U32, U32],
    &[U16, U16, U16, U16, U32, Blob, String, String, Blob],
    &[U32, Row(0x23)],
    &[U32, U32, U32, Row(0x23)],
    &[U32, String, Blob],
    &[U32, U32, String, String, Coded(IMPLEMENTATION)],
    &[U32, U32, String, Coded(IMPLEMENTATION)],
    &[Row(0x02), Row(0x02)],
];

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The table.
    pub table: Table,
    /// The number of the row, from 1.
    pub row: u32,
}

impl Token {
    /// Decodes an index as in signatures (`TypeDefOrRef`).
    pub fn from_type_def_or_ref(coded: u32) -> Option<Self> {
        Self::from_coded_index(TYPE_DEF_OR_REF, coded)
    }

    /// Decodes a coded index. `None` is a table that is not in [`Table`].
    pub(super) fn from_coded_index(tables: &[u8], coded: u32) -> Option<Self> {
        const TABLES_WITH_NAMES: [Table; 9] = [
            Table::TypeRef,
            Table::TypeDef,
            Table::MethodDef,
            Table::MemberRef,
            Table::ModuleRef,
            Table::TypeSpec,
            Table::Assembly,
            Table::AssemblyRef,
            Table::NestedClass,
        ];
        let bits = tag_bits(tables);
        let number = *tables.get((coded & ((1 << bits) - 1)) as usize)?;
        let table = TABLES_WITH_NAMES.into_iter().find(|table| *table as u8 == number)?;
        Some(Self { table, row: coded >> bits })
    }
}

/// The number of tag bits of a coded index.
pub(super) fn tag_bits(tables: &[u8]) -> u32 {
    tables.len().next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_bits_select_the_table() {
        assert_eq!(tag_bits(TYPE_DEF_OR_REF), 2);
        assert_eq!(tag_bits(HAS_CUSTOM_ATTRIBUTE), 5);
        assert_eq!(tag_bits(METHOD_DEF_OR_REF), 1);
        assert_eq!(Token::from_type_def_or_ref(0x49), Some(Token { table: Table::TypeRef, row: 0x12 }));
        assert_eq!(Token::from_type_def_or_ref(3), None);
        assert_eq!(
            Token::from_coded_index(RESOLUTION_SCOPE, 0),
            None,
            "the table Module has no names of types"
        );
    }
}
