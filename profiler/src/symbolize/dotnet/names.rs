//! Names of methods in the product's spelling (see [`managed`](super::super::managed)).

use std::fmt::Write;

use super::{
    bytes::Bytes,
    metadata::{Metadata, Table, Token, TypeName},
    pieces::{Pieces, Span},
    readytorun::Method,
    signature::{InstanceSignature, MAX_TYPES, MethodSignature, Type},
};
use crate::elf::Defect;

/// The longest signature of an instance that is read. Those of the runtime's own libraries end below a thousand bytes.
const MAX_INSTANCE_BYTES: u64 = 4 << 10;

/// The longest name that is made. What types of types of types can spell is longer than anyone reads.
const MAX_NAME_BYTES: usize = 16 << 10;

/// Names the methods of one module.
pub(super) struct Names<'a> {
    pub(super) pieces: &'a mut Pieces,
    pub(super) metadata: &'a Metadata,
    /// The table of instances.
    pub(super) instances: Span,
    /// The name of the module's assembly.
    pub(super) assembly: &'a str,
}

impl Names<'_> {
    /// `assembly!Namespace.Type.Method(arguments)`.
    pub(super) fn method(&mut self, method: Method) -> Result<String, Defect> {
        match method {
            Method::Definition(row) => {
                let (name, owner, signature) = self.metadata.method(self.pieces, row)?;
                let owner = Type::Named { is_value: false, token: owner, module: None };
                self.spell(&owner, &name, &signature)
            }
            Method::Instance(offset) => self.instance(offset),
        }
    }

    fn instance(&mut self, offset: u32) -> Result<String, Defect> {
        let bytes = self.pieces.up_to(self.instances.from(offset.into())?, MAX_INSTANCE_BYTES)?;
        let instance = InstanceSignature::read(&mut Bytes::at(&bytes, 0), &mut { MAX_TYPES })?;
        if instance.module.is_some() {
            return Err(Defect::Malformed);
        }
        let (name, owner, signature) = match instance.method.table {
            Table::MethodDef => self.metadata.method(self.pieces, instance.method.row)?,
            _ => self.metadata.member(self.pieces, instance.method.row)?,
        };
        let owner = match instance.owner {
            Some(owner) => owner,
            None => self.type_of(owner)?,
        };
        self.spell(&owner, &name, &signature)
    }

    /// The type that a row names.
    fn type_of(&mut self, token: Token) -> Result<Type, Defect> {
        if token.table == Table::TypeSpec {
            let signature = self.metadata.type_specification(self.pieces, token.row)?;
            return Type::read(&mut Bytes::at(&signature, 0));
        }
        Ok(Type::Named { is_value: false, token, module: None })
    }

    fn spell(&mut self, owner: &Type, method: &str, signature: &[u8]) -> Result<String, Defect> {
        let signature = MethodSignature::read(&mut Bytes::at(signature, 0))?;
        let mut name = self.assembly_of(owner)?;
        name.push('!');
        self.own_name(&mut name, owner)?;
        let _ = write!(name, ".{method}");
        self.arguments(&mut name, &signature)?;
        Ok(name)
    }

    fn assembly_of(&mut self, owner: &Type) -> Result<String, Defect> {
        let (Type::Named { token, module, .. }, _) = definition(owner) else {
            return Ok(self.assembly.to_owned());
        };
        if module.is_some() {
            return Err(Defect::Malformed);
        }
        let assembly = self.metadata.assembly_of(self.pieces, *token)?;
        Ok(assembly.unwrap_or_else(|| self.assembly.to_owned()))
    }

    /// A type as it calls itself: `Namespace.Outer+Inner[System.Int32]`.
    fn own_name(&mut self, out: &mut String, of: &Type) -> Result<(), Defect> {
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

    fn arguments(&mut self, out: &mut String, signature: &MethodSignature) -> Result<(), Defect> {
        self.list(out, ['(', ')'], &signature.arguments, Self::argument)
    }

    /// A type as the runtime's events spell it in lists of arguments: `value class Inner<int32>`.
    fn argument(&mut self, out: &mut String, of: &Type) -> Result<(), Defect> {
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
        push: fn(&mut Self, &mut String, &Type) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
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

    fn type_name(&mut self, token: Token, module: Option<u32>) -> Result<TypeName, Defect> {
        if module.is_some() {
            return Err(Defect::Malformed);
        }
        self.metadata.type_name(self.pieces, token)
    }
}

/// The type without its arguments.
fn definition(of: &Type) -> (&Type, &[Type]) {
    match of {
        Type::Generic { definition, arguments } => (definition, arguments),
        plain => (plain, &[]),
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

fn check_length(name: &str) -> Result<(), Defect> {
    if name.len() > MAX_NAME_BYTES { Err(Defect::TooLarge) } else { Ok(()) }
}
