//! Reads names from .NET metadata: types and methods that a module defines or refers to (ECMA-335 II.22, II.24).

mod schema;
mod tables;

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError, text_of};

pub use self::schema::{Table, Token};
use self::{
    schema::{MEMBER_REF_PARENT, RESOLUTION_SCOPE},
    tables::MetadataTables,
};

/// Length of the longest name that is read. C# allows 511 characters.
const MAX_NAME_BYTES: usize = 4 << 10;

/// Size of the largest signature that is read. A method with as many parameters as compilers allow has a smaller one.
const MAX_SIGNATURE_BYTES: u64 = 64 << 10;

/// Levels of nested types. Compilers emit a handful.
const MAX_NESTING: usize = 32;

/// Size of the metadata root: a version, and five stream headers with their names.
const MAX_ROOT_BYTES: u64 = 1 << 10;

/// Streams per module. The standard defines five.
const MAX_STREAMS: u16 = 16;

/// The tables and heaps of a module.
#[derive(Clone, Debug)]
pub struct Metadata {
    tables: MetadataTables,
    strings: ByteRange,
    blobs: ByteRange,
    guids: ByteRange,
}

/// The name of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeName {
    /// The namespace of the outermost type.
    pub namespace: String,
    /// The enclosing types and the type itself, outermost first.
    pub nested: Vec<String>,
}

impl Metadata {
    /// Reads the metadata root and the headers of the tables at `root`.
    ///
    /// # Errors
    /// [`ParseError`] when they contradict themselves, or the image cannot be read.
    pub fn read(image: &mut PagedImage, root: ByteRange) -> Result<Self, ParseError> {
        let bytes = image.read_up_to(root, MAX_ROOT_BYTES)?;
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
            let stream = root.skip(offset.into())?.prefix(size.into())?;
            match &*read_stream_name(&mut header)? {
                b"#~" | b"#-" => found[0] = stream,
                b"#Strings" => found[1] = stream,
                b"#Blob" => found[2] = stream,
                b"#GUID" => found[3] = stream,
                _ => {}
            }
        }
        let [tables, strings, blobs, guids] = found;
        Ok(Self { tables: MetadataTables::read(image, tables)?, strings, blobs, guids })
    }

    /// The number of rows of a table.
    pub fn rows(&self, table: Table) -> u32 {
        self.tables.rows(table)
    }

    /// The name of the assembly of the module.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn assembly_name(&self, image: &mut PagedImage) -> Result<String, ParseError> {
        self.string(image, Table::Assembly, 1, 7)
    }

    /// The name of the module, which is that of its file.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn module_name(&self, image: &mut PagedImage) -> Result<String, ParseError> {
        self.string(image, Table::Module, 1, 1)
    }

    /// The name in a row of the table `AssemblyRef`.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn referenced_assembly_name(&self, image: &mut PagedImage, row: u32) -> Result<String, ParseError> {
        self.string(image, Table::AssemblyRef, row, 6)
    }

    /// The module version id, which is unique to each build.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn mvid(&self, image: &mut PagedImage) -> Result<[u8; 16], ParseError> {
        let range = self.mvid_range(image)?;
        image.read_array(range)
    }

    /// Where the module version id is in the image.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn mvid_range(&self, image: &mut PagedImage) -> Result<ByteRange, ParseError> {
        let number =
            self.tables.cell(image, Table::Module, 1, 2)?.checked_sub(1).ok_or(ParseError::Malformed)?;
        self.guids.skip(u64::from(number) * 16)?.prefix(16)
    }

    /// Name, declaring type and signature of a method that the module defines.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn method_definition(
        &self,
        image: &mut PagedImage,
        row: u32,
    ) -> Result<(String, Token, Vec<u8>), ParseError> {
        let (name, signature) = self.method_name_and_signature(image, row)?;
        let owner = self.tables.rows_up_to(image, Table::TypeDef, 5, row)?;
        Ok((name, Token { table: Table::TypeDef, row: owner }, signature))
    }

    /// Name and signature of a method that the module defines.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn method_name_and_signature(
        &self,
        image: &mut PagedImage,
        row: u32,
    ) -> Result<(String, Vec<u8>), ParseError> {
        let name = self.string(image, Table::MethodDef, row, 3)?;
        Ok((name, self.blob(image, Table::MethodDef, row, 4)?))
    }

    /// Name, declaring type and signature of a method that the module refers to.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn member_reference(
        &self,
        image: &mut PagedImage,
        row: u32,
    ) -> Result<(String, Token, Vec<u8>), ParseError> {
        let parent = self.tables.cell(image, Table::MemberRef, row, 0)?;
        let name = self.string(image, Table::MemberRef, row, 1)?;
        let signature = self.blob(image, Table::MemberRef, row, 2)?;
        Ok((
            name,
            Token::from_coded_index(MEMBER_REF_PARENT, parent).ok_or(ParseError::Malformed)?,
            signature,
        ))
    }

    /// The signature in a row of the table `TypeSpec`.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn type_specification(&self, image: &mut PagedImage, row: u32) -> Result<Vec<u8>, ParseError> {
        self.blob(image, Table::TypeSpec, row, 0)
    }

    /// The name of a type that the module defines or refers to.
    ///
    /// # Errors
    /// [`ParseError`] when a row is malformed or missing, or types are nested without end.
    pub fn type_name(&self, image: &mut PagedImage, token: Token) -> Result<TypeName, ParseError> {
        let mut name = TypeName::default();
        let mut token = token;
        while name.nested.len() < MAX_NESTING {
            let (own, namespace) = match token.table {
                Table::TypeDef => (1, 2),
                Table::TypeRef => (1, 2),
                _ => return Err(ParseError::Malformed),
            };
            name.nested.push(self.string(image, token.table, token.row, own)?);
            name.namespace = self.string(image, token.table, token.row, namespace)?;
            match self.enclosing_type(image, token)? {
                Some(enclosing) => token = enclosing,
                None => {
                    name.nested.reverse();
                    return Ok(name);
                }
            }
        }
        Err(ParseError::TooLarge)
    }

    /// The name of the assembly that defines a type. `None` is a type of the module itself.
    ///
    /// # Errors
    /// [`ParseError`] when the row is malformed or missing.
    pub fn defining_assembly(
        &self,
        image: &mut PagedImage,
        reference: Token,
    ) -> Result<Option<String>, ParseError> {
        let mut token = reference;
        for _ in 0..MAX_NESTING {
            match token.table {
                Table::TypeRef => {
                    let scope = self.tables.cell(image, Table::TypeRef, token.row, 0)?;
                    let Some(scope) = Token::from_coded_index(RESOLUTION_SCOPE, scope) else {
                        return Ok(None);
                    };
                    token = scope;
                }
                Table::AssemblyRef => {
                    return self.referenced_assembly_name(image, token.row).map(Some);
                }
                _ => return Ok(None),
            }
        }
        Err(ParseError::TooLarge)
    }

    fn enclosing_type(&self, image: &mut PagedImage, token: Token) -> Result<Option<Token>, ParseError> {
        if token.table == Table::TypeRef {
            let scope = self.tables.cell(image, Table::TypeRef, token.row, 0)?;
            return Ok(Token::from_coded_index(RESOLUTION_SCOPE, scope)
                .filter(|scope| scope.table == Table::TypeRef));
        }
        let row = self.tables.rows_up_to(image, Table::NestedClass, 0, token.row)?;
        if row == 0 || self.tables.cell(image, Table::NestedClass, row, 0)? != token.row {
            return Ok(None);
        }
        let enclosing = self.tables.cell(image, Table::NestedClass, row, 1)?;
        Ok(Some(Token { table: Table::TypeDef, row: enclosing }))
    }

    fn string(
        &self,
        image: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<String, ParseError> {
        let offset = self.tables.cell(image, table, row, column)?;
        let bytes = image.read_string(self.strings.skip(offset.into())?, MAX_NAME_BYTES)?;
        Ok(text_of(&bytes).into_owned())
    }

    fn blob(
        &self,
        image: &mut PagedImage,
        table: Table,
        row: u32,
        column: usize,
    ) -> Result<Vec<u8>, ParseError> {
        const MAX_LENGTH_BYTES: u64 = 4;
        let blob = self.blobs.skip(self.tables.cell(image, table, row, column)?.into())?;
        let bytes = image.read_up_to(blob, MAX_LENGTH_BYTES)?;
        let mut header = ByteCursor::new(&bytes, 0);
        let length = u64::from(header.compressed()?);
        if length > MAX_SIGNATURE_BYTES {
            return Err(ParseError::TooLarge);
        }
        let blob = blob.skip(header.position() as u64)?.prefix(length)?;
        image.read_up_to(blob, length)
    }
}

/// Reads the name of a stream, which is padded with zeros to a multiple of four bytes.
fn read_stream_name(header: &mut ByteCursor<'_>) -> Result<Vec<u8>, ParseError> {
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
