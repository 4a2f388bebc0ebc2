//! The names that a .NET module knows: its own types and methods, and what it refers to (ECMA-335 II.22, II.24).

mod schema;
mod tables;

pub(super) use self::schema::{Table, Token};
use self::{
    schema::{MEMBER_REF_PARENT, RESOLUTION_SCOPE},
    tables::Tables,
};
use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

/// The longest name that is read. C# allows 511 characters.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The largest signature that is read. That of a method with the most parameters that compilers emit is smaller.
const MAX_SIGNATURE_BYTES: u64 = 64 << 10;

/// Types within types. Compilers write a handful.
const MAX_NESTING: usize = 32;

/// The largest header of the metadata: a version, and five streams with their names.
const MAX_ROOT_BYTES: u64 = 1 << 10;

/// Streams there may be.
const MAX_STREAMS: u16 = 16;

/// The tables and heaps of a module.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    tables: Tables,
    strings: ByteRange,
    blobs: ByteRange,
    guids: ByteRange,
}

/// A type's name, outermost type first, with the namespace before the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeName {
    pub(super) namespace: String,
    pub(super) nested: Vec<String>,
}

impl Metadata {
    pub(super) fn read(pieces: &mut PagedImage, root: ByteRange) -> Result<Self, ParseError> {
        let bytes = pieces.read_up_to(root, MAX_ROOT_BYTES)?;
        let mut header = ByteCursor::new(&bytes, 0);
        if header.array()? != *b"BSJB" {
            return Err(ParseError::Malformed);
        }
        header.skip(8);
        let version_bytes = header.u32()? as usize;
        header.skip(version_bytes.saturating_add(2));
        let streams = header.u16()?.min(MAX_STREAMS);
        let mut found = [ByteRange::default(); 4];
        for _ in 0..streams {
            let (offset, size) = (header.u32()?, header.u32()?);
            let place = root.skip(offset.into())?.prefix(size.into())?;
            match &*stream_name(&mut header)? {
                b"#~" | b"#-" => found[0] = place,
                b"#Strings" => found[1] = place,
                b"#Blob" => found[2] = place,
                b"#GUID" => found[3] = place,
                _ => {}
            }
        }
        let [tables, strings, blobs, guids] = found;
        Ok(Self { tables: Tables::read(pieces, tables)?, strings, blobs, guids })
    }

    /// How many rows a table has.
    pub(super) fn rows(&self, table: Table) -> u32 {
        self.tables.rows(table)
    }

    /// The name of the assembly that the module is of.
    pub(super) fn assembly(&self, pieces: &mut PagedImage) -> Result<String, ParseError> {
        self.string(pieces, Table::Assembly, 1, 7)
    }

    /// The name of an assembly that the module refers to.
    pub(super) fn reference(&self, pieces: &mut PagedImage, row: u32) -> Result<String, ParseError> {
        self.string(pieces, Table::AssemblyRef, row, 6)
    }

    /// What tells this build of the module from all others.
    pub(super) fn mvid(&self, pieces: &mut PagedImage) -> Result<[u8; 16], ParseError> {
        let number =
            self.tables.cell(pieces, Table::Module, 1, 2)?.checked_sub(1).ok_or(ParseError::Malformed)?;
        pieces.read_array(self.guids.skip(u64::from(number) * 16)?)
    }

    /// The name of a method of the module, the type it is of, and its signature.
    pub(super) fn method(
        &self,
        pieces: &mut PagedImage,
        row: u32,
    ) -> Result<(String, Token, Vec<u8>), ParseError> {
        let name = self.string(pieces, Table::MethodDef, row, 3)?;
        let signature = self.blob(pieces, Table::MethodDef, row, 4)?;
        let owner = self.tables.rows_up_to(pieces, Table::TypeDef, 5, row)?;
        Ok((name, Token { table: Table::TypeDef, row: owner }, signature))
    }

    /// As [`method`](Self::method), for one that the module refers to.
    pub(super) fn member(
        &self,
        pieces: &mut PagedImage,
        row: u32,
    ) -> Result<(String, Token, Vec<u8>), ParseError> {
        let parent = self.tables.cell(pieces, Table::MemberRef, row, 0)?;
        let name = self.string(pieces, Table::MemberRef, row, 1)?;
        let signature = self.blob(pieces, Table::MemberRef, row, 2)?;
        Ok((name, Token::of(MEMBER_REF_PARENT, parent).ok_or(ParseError::Malformed)?, signature))
    }

    /// The signature of a type that is no plain name.
    pub(super) fn type_specification(
        &self,
        pieces: &mut PagedImage,
        row: u32,
    ) -> Result<Vec<u8>, ParseError> {
        self.blob(pieces, Table::TypeSpec, row, 0)
    }

    /// The name of a type that is defined here or referred to.
    pub(super) fn type_name(&self, pieces: &mut PagedImage, token: Token) -> Result<TypeName, ParseError> {
        let mut name = TypeName::default();
        let mut token = token;
        while name.nested.len() < MAX_NESTING {
            let (own, namespace) = match token.table {
                Table::TypeDef => (1, 2),
                Table::TypeRef => (1, 2),
                _ => return Err(ParseError::Malformed),
            };
            name.nested.push(self.string(pieces, token.table, token.row, own)?);
            name.namespace = self.string(pieces, token.table, token.row, namespace)?;
            match self.enclosing(pieces, token)? {
                Some(enclosing) => token = enclosing,
                None => {
                    name.nested.reverse();
                    return Ok(name);
                }
            }
        }
        Err(ParseError::TooLarge)
    }

    /// The name of the assembly that a type which is referred to is looked for in.
    pub(super) fn assembly_of(
        &self,
        pieces: &mut PagedImage,
        reference: Token,
    ) -> Result<Option<String>, ParseError> {
        let mut token = reference;
        for _ in 0..MAX_NESTING {
            match token.table {
                Table::TypeRef => {
                    let scope = self.tables.cell(pieces, Table::TypeRef, token.row, 0)?;
                    let Some(scope) = Token::of(RESOLUTION_SCOPE, scope) else { return Ok(None) };
                    token = scope;
                }
                Table::AssemblyRef => {
                    return self.reference(pieces, token.row).map(Some);
                }
                _ => return Ok(None),
            }
        }
        Err(ParseError::TooLarge)
    }

    fn enclosing(&self, pieces: &mut PagedImage, token: Token) -> Result<Option<Token>, ParseError> {
        if token.table == Table::TypeRef {
            let scope = self.tables.cell(pieces, Table::TypeRef, token.row, 0)?;
            return Ok(Token::of(RESOLUTION_SCOPE, scope).filter(|scope| scope.table == Table::TypeRef));
        }
        let row = self.tables.rows_up_to(pieces, Table::NestedClass, 0, token.row)?;
        if row == 0 || self.tables.cell(pieces, Table::NestedClass, row, 0)? != token.row {
            return Ok(None);
        }
        let enclosing = self.tables.cell(pieces, Table::NestedClass, row, 1)?;
        Ok(Some(Token { table: Table::TypeDef, row: enclosing }))
    }

    fn string(
        &self,
        pieces: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<String, ParseError> {
        let offset = self.tables.cell(pieces, table, row, column)?;
        let bytes = pieces.read_string(self.strings.skip(offset.into())?, MAX_NAME_BYTES)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn blob(
        &self,
        pieces: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<Vec<u8>, ParseError> {
        const MAX_LENGTH_BYTES: u64 = 4;
        let blob = self.blobs.skip(self.tables.cell(pieces, table, row, column)?.into())?;
        let bytes = pieces.read_up_to(blob, MAX_LENGTH_BYTES)?;
        let mut header = ByteCursor::new(&bytes, 0);
        let length = u64::from(header.compressed()?);
        if length > MAX_SIGNATURE_BYTES {
            return Err(ParseError::TooLarge);
        }
        let blob = blob.skip(header.position() as u64)?.prefix(length)?;
        pieces.read_up_to(blob, length)
    }
}

/// The name of a stream, which is filled with zeros to a multiple of four bytes.
fn stream_name(header: &mut ByteCursor<'_>) -> Result<Vec<u8>, ParseError> {
    const MAX_WORDS: usize = 8;
    let mut name = Vec::new();
    for _ in 0..MAX_WORDS {
        let word: [u8; 4] = header.array()?;
        name.extend(word.iter().take_while(|byte| **byte != 0));
        if word.contains(&0) {
            return Ok(name);
        }
    }
    Err(ParseError::Malformed)
}
