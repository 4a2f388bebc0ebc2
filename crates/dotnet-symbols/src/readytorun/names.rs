//! Names of methods in the product's spelling (see [`managed`](super::super::managed)).

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};
use std::fmt::Write;

use super::{
    assemblies::{Assemblies, Known, OWN},
    metadata::{Table, Token, TypeName},
    readytorun::Method,
    signature::{InstanceSignature, MAX_TYPES, MethodSignature, Type},
};
use crate::readytorun::AssemblyFiles;
use crate::readytorun::NameError;

/// The assembly of the types that signatures have no names for.
const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// The longest signature of an instance that is read. Those of the runtime's own libraries end below a thousand bytes.
const MAX_INSTANCE_BYTES: u64 = 4 << 10;

/// The longest name that is made. What types of types of types can spell is longer than anyone reads.
const MAX_NAME_BYTES: usize = 16 << 10;

/// Names the methods of one image.
pub(super) struct Names<'a> {
    pub(super) pieces: &'a mut PagedImage,
    pub(super) assemblies: &'a mut Assemblies,
    /// Where assemblies are looked for.
    pub(super) files: &'a dyn AssemblyFiles,
    /// The table of instances.
    pub(super) instances: ByteRange,
    /// The number of the assembly whose tables are meant where nothing else is said.
    pub(super) context: u32,
}

impl Names<'_> {
    /// `assembly!Namespace.Type.Method(arguments)`.
    pub(super) fn method(&mut self, method: Method) -> Result<String, NameError> {
        match method {
            Method::Definition { assembly, row } => {
                self.context = assembly.into();
                let (name, owner, signature) = self.definition(row)?;
                let owner = Type::Named { is_value: false, token: owner, module: None };
                self.spell(&owner, &name, &signature)
            }
            Method::Instance(offset) => self.instance(offset),
        }
    }

    fn instance(&mut self, offset: u32) -> Result<String, NameError> {
        let bytes = self.pieces.read_up_to(self.instances.skip(offset.into())?, MAX_INSTANCE_BYTES)?;
        let instance = InstanceSignature::read(&mut ByteCursor::new(&bytes, 0), &mut { MAX_TYPES })?;
        self.context = instance.module.unwrap_or(OWN);
        let (name, owner, signature) = match instance.method.table {
            Table::MethodDef => self.definition(instance.method.row)?,
            _ => {
                let Known { pieces, metadata, .. } = self.assembly(None)?;
                metadata.member(pieces, instance.method.row)?
            }
        };
        let owner = match instance.owner {
            Some(owner) => owner,
            None => self.type_of(owner)?,
        };
        self.spell(&owner, &name, &signature)
    }

    fn definition(&mut self, row: u32) -> Result<(String, Token, Vec<u8>), NameError> {
        let Known { pieces, metadata, .. } = self.assembly(None)?;
        Ok(metadata.method(pieces, row)?)
    }

    /// The assembly of a number, else that of the context.
    fn assembly(&mut self, number: Option<u32>) -> Result<Known<'_>, NameError> {
        self.assemblies.get(number.unwrap_or(self.context), self.pieces, self.files)
    }

    /// The type that a row names.
    fn type_of(&mut self, token: Token) -> Result<Type, NameError> {
        if token.table == Table::TypeSpec {
            let Known { pieces, metadata, .. } = self.assembly(None)?;
            let signature = metadata.type_specification(pieces, token.row)?;
            return Ok(Type::read(&mut ByteCursor::new(&signature, 0))?);
        }
        Ok(Type::Named { is_value: false, token, module: None })
    }

    fn spell(&mut self, owner: &Type, method: &str, signature: &[u8]) -> Result<String, NameError> {
        let signature = MethodSignature::read(&mut ByteCursor::new(signature, 0))?;
        let mut name = self.assembly_of(owner)?;
        name.push('!');
        self.own_name(&mut name, owner)?;
        let _ = write!(name, ".{method}");
        self.arguments(&mut name, &signature)?;
        Ok(name)
    }

    fn assembly_of(&mut self, owner: &Type) -> Result<String, NameError> {
        match definition(owner) {
            Type::Simple(_) => Ok(CORE_LIBRARY.to_owned()),
            Type::Named { token, module, .. } => {
                let Known { pieces, metadata, name } = self.assembly(*module)?;
                Ok(metadata.assembly_of(pieces, *token)?.unwrap_or_else(|| name.to_owned()))
            }
            _ => Ok(self.assembly(None)?.name.to_owned()),
        }
    }

    /// A type as it calls itself: `Namespace.Outer+Inner[System.Int32]`.
    fn own_name(&mut self, out: &mut String, of: &Type) -> Result<(), NameError> {
        check_length(out)?;
        match of {
            Type::Simple(simple) => out.push_str(simple.name),
            Type::Named { token, module, .. } => {
                let name = self.type_name(*token, *module)?;
                push_own_name(out, &name);
            }
            Type::Generic { definition, arguments } => {
                self.own_name(out, definition)?;
                self.list(out, ['[', ']'], arguments, Self::own_name)?;
            }
            Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
            Type::Pointer(to) => {
                self.own_name(out, to)?;
                out.push('*');
            }
            Type::Reference(to) => {
                self.own_name(out, to)?;
                out.push('&');
            }
            Type::Array(element, rank) => {
                self.own_name(out, element)?;
                push_dimensions(out, *rank);
            }
            Type::Modified { of, .. } => self.own_name(out, of)?,
            Type::Function(function) => {
                self.own_name(out, &function.result)?;
                self.list(out, ['(', ')'], &function.arguments, Self::own_name)?;
            }
        }
        Ok(())
    }

    fn arguments(&mut self, out: &mut String, signature: &MethodSignature) -> Result<(), NameError> {
        self.list(out, ['(', ')'], &signature.arguments, Self::argument)
    }

    /// A type as the runtime's events spell it in lists of arguments: `value class Inner<int32>`.
    fn argument(&mut self, out: &mut String, of: &Type) -> Result<(), NameError> {
        check_length(out)?;
        match of {
            Type::Simple(simple) => out.push_str(simple.spelling),
            Type::Named { is_value, token, module } => {
                out.push_str(if *is_value { "value class " } else { "class " });
                let name = self.type_name(*token, *module)?;
                push_short_name(out, &name);
            }
            Type::Generic { definition, arguments } => {
                self.argument(out, definition)?;
                self.list(out, ['<', '>'], arguments, Self::argument)?;
            }
            Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
            Type::Pointer(to) => {
                self.argument(out, to)?;
                out.push('*');
            }
            Type::Reference(to) => {
                self.argument(out, to)?;
                out.push('&');
            }
            Type::Array(element, rank) => {
                self.argument(out, element)?;
                push_dimensions(out, *rank);
            }
            Type::Modified { required, modifier, of } => {
                self.argument(out, of)?;
                out.push_str(if *required { " modreq(" } else { " modopt(" });
                let name = self.type_name(*modifier, None)?;
                push_short_name(out, &name);
                out.push(')');
            }
            Type::Function(function) => {
                let _ = write!(out, "method {}", function.convention);
                self.argument(out, &function.result)?;
                out.push_str(" *");
                self.arguments(out, function)?;
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        out: &mut String,
        [open, close]: [char; 2],
        types: &[Type],
        push: fn(&mut Self, &mut String, &Type) -> Result<(), NameError>,
    ) -> Result<(), NameError> {
        out.push(open);
        for (index, of) in types.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            push(self, out, of)?;
        }
        out.push(close);
        Ok(())
    }

    fn type_name(&mut self, token: Token, module: Option<u32>) -> Result<TypeName, NameError> {
        let Known { pieces, metadata, .. } = self.assembly(module)?;
        Ok(metadata.type_name(pieces, token)?)
    }
}

/// The type without its arguments.
fn definition(of: &Type) -> &Type {
    match of {
        Type::Generic { definition, .. } => definition,
        plain => plain,
    }
}

fn push_own_name(out: &mut String, name: &TypeName) {
    if !name.namespace.is_empty() {
        let _ = write!(out, "{}.", name.namespace);
    }
    out.push_str(&name.nested.join("+"));
}

/// Of a nested type its own name only.
fn push_short_name(out: &mut String, name: &TypeName) {
    if name.nested.len() == 1 && !name.namespace.is_empty() {
        let _ = write!(out, "{}.", name.namespace);
    }
    out.push_str(name.nested.last().map_or("", String::as_str));
}

fn push_parameter(out: &mut String, of_method: bool, number: u32) {
    let _ = write!(out, "{}{number}", if of_method { "!!" } else { "!" });
}

fn push_dimensions(out: &mut String, rank: Option<u32>) {
    let commas = rank.map_or(0, |rank| rank.saturating_sub(1));
    out.push('[');
    out.extend((0..commas).map(|_| ','));
    out.push(']');
}

fn check_length(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_BYTES { Err(NameError::ParseError(ParseError::TooLarge)) } else { Ok(()) }
}
