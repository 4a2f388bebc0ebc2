//! Builds the normalized names of methods (see [`managed`](crate::managed)) from metadata and signatures.

use std::fmt::Write;

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage, ParseError};

use super::{
    AssemblyFiles, NameError,
    assemblies::{Assemblies, OWN_ASSEMBLY, OpenAssembly},
    metadata::{Table, Token, TypeName},
    method_tables::MethodKey,
    signature::{InstanceSignature, MAX_TYPES, MethodSignature, Type},
};

/// The assembly of the primitive types.
const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// Size of the largest instance signature that is read. Those of the runtime's libraries have less than a thousand
/// bytes.
const MAX_INSTANCE_BYTES: u64 = 4 << 10;

/// Length of the longest name that is built. Nested generic types can have names of any length.
const MAX_NAME_BYTES: usize = 16 << 10;

/// Builds the names of the methods of one image.
pub(super) struct MethodNamer<'a> {
    pub(super) image: &'a mut PagedImage,
    pub(super) assemblies: &'a mut Assemblies,
    /// Opens other assemblies.
    pub(super) files: &'a dyn AssemblyFiles,
    /// The section of instance entry points.
    pub(super) instances: ByteRange,
    /// The index of the assembly whose metadata tokens refer to unless a signature has another index.
    pub(super) context: u32,
}

impl MethodNamer<'_> {
    /// Returns `assembly!Namespace.Type.Method(arguments)`.
    pub(super) fn name(&mut self, method: MethodKey) -> Result<String, NameError> {
        match method {
            MethodKey::Definition { assembly, row } => {
                self.context = assembly.into();
                let (name, owner, signature) = self.definition(row)?;
                let owner = Type::Named { is_value: false, token: owner, module: None };
                self.build_name(&owner, &name, &signature)
            }
            MethodKey::Instance(offset) => self.name_instance(offset),
        }
    }

    fn name_instance(&mut self, offset: u32) -> Result<String, NameError> {
        let bytes = self.image.read_up_to(self.instances.skip(offset.into())?, MAX_INSTANCE_BYTES)?;
        let instance = InstanceSignature::read(&mut ByteCursor::new(&bytes, 0), &mut { MAX_TYPES })?;
        self.context = instance.module.unwrap_or(OWN_ASSEMBLY);
        let (name, owner, signature) = match instance.method.table {
            Table::MethodDef => self.definition(instance.method.row)?,
            _ => {
                let OpenAssembly { image, metadata, .. } = self.assembly(None)?;
                metadata.member_reference(image, instance.method.row)?
            }
        };
        let owner = match instance.owner {
            Some(owner) => owner,
            None => self.type_of(owner)?,
        };
        self.build_name(&owner, &name, &signature)
    }

    fn definition(&mut self, row: u32) -> Result<(String, Token, Vec<u8>), NameError> {
        let OpenAssembly { image, metadata, .. } = self.assembly(None)?;
        Ok(metadata.method_definition(image, row)?)
    }

    /// The assembly of an index, or that of the context.
    fn assembly(&mut self, index: Option<u32>) -> Result<OpenAssembly<'_>, NameError> {
        self.assemblies.get(index.unwrap_or(self.context), self.image, self.files)
    }

    /// The type of a token.
    fn type_of(&mut self, token: Token) -> Result<Type, NameError> {
        if token.table == Table::TypeSpec {
            let OpenAssembly { image, metadata, .. } = self.assembly(None)?;
            let signature = metadata.type_specification(image, token.row)?;
            return Ok(Type::read(&mut ByteCursor::new(&signature, 0))?);
        }
        Ok(Type::Named { is_value: false, token, module: None })
    }

    fn build_name(&mut self, owner: &Type, method: &str, signature: &[u8]) -> Result<String, NameError> {
        let signature = MethodSignature::read(&mut ByteCursor::new(signature, 0))?;
        let mut name = self.assembly_name(owner)?;
        name.push('!');
        self.push_full_name(&mut name, owner)?;
        let _ = write!(name, ".{method}");
        self.push_arguments(&mut name, &signature)?;
        Ok(name)
    }

    fn assembly_name(&mut self, owner: &Type) -> Result<String, NameError> {
        match generic_definition(owner) {
            Type::Primitive(_) => Ok(CORE_LIBRARY.to_owned()),
            Type::Named { token, module, .. } => {
                let OpenAssembly { image, metadata, name } = self.assembly(*module)?;
                Ok(metadata.defining_assembly(image, *token)?.unwrap_or_else(|| name.to_owned()))
            }
            _ => Ok(self.assembly(None)?.name.to_owned()),
        }
    }

    /// Appends the full name of a type: `Namespace.Outer+Inner[System.Int32]`.
    fn push_full_name(&mut self, out: &mut String, of: &Type) -> Result<(), NameError> {
        check_length(out)?;
        match of {
            Type::Primitive(primitive) => out.push_str(primitive.name),
            Type::Named { token, module, .. } => {
                let name = self.type_name(*token, *module)?;
                push_qualified_name(out, &name);
            }
            Type::Generic { definition, arguments } => {
                self.push_full_name(out, definition)?;
                self.push_list(out, ['[', ']'], arguments, Self::push_full_name)?;
            }
            Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
            Type::Pointer(to) => {
                self.push_full_name(out, to)?;
                out.push('*');
            }
            Type::Reference(to) => {
                self.push_full_name(out, to)?;
                out.push('&');
            }
            Type::Array(element, Some(1)) => {
                self.push_full_name(out, element)?;
                out.push_str("[*]");
            }
            Type::Array(element, rank) => {
                self.push_full_name(out, element)?;
                push_dimensions(out, *rank);
            }
            Type::Modified { of, .. } => self.push_full_name(out, of)?,
            Type::Function(function) => {
                self.push_full_name(out, &function.result)?;
                out.push('(');
                for (index, of) in function.arguments.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    self.push_full_name(out, of)?;
                }
                out.push(')');
            }
        }
        Ok(())
    }

    fn push_arguments(&mut self, out: &mut String, signature: &MethodSignature) -> Result<(), NameError> {
        self.push_list(out, ['(', ')'], &signature.arguments, Self::push_argument)
    }

    /// Appends a type as in the argument lists of the runtime's events: `value class Inner<int32>`.
    fn push_argument(&mut self, out: &mut String, of: &Type) -> Result<(), NameError> {
        check_length(out)?;
        match of {
            Type::Primitive(primitive) => out.push_str(primitive.spelling),
            Type::Named { is_value, token, module } => {
                out.push_str(if *is_value { "value class " } else { "class " });
                let name = self.type_name(*token, *module)?;
                push_short_name(out, &name);
            }
            Type::Generic { definition, arguments } => {
                self.push_argument(out, definition)?;
                self.push_list(out, ['<', '>'], arguments, Self::push_argument)?;
            }
            Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
            Type::Pointer(to) => {
                self.push_argument(out, to)?;
                out.push('*');
            }
            Type::Reference(to) => {
                self.push_argument(out, to)?;
                out.push('&');
            }
            Type::Array(element, rank) => {
                self.push_argument(out, element)?;
                push_dimensions(out, *rank);
            }
            Type::Modified { required, modifier, of } => {
                out.push_str(if *required { "required_modifier " } else { "optional_modifier " });
                self.push_modifier(out, *modifier)?;
                out.push(' ');
                self.push_argument(out, of)?;
            }
            Type::Function(function) => {
                let this = if function.is_instance { "instance " } else { "" };
                let _ = write!(out, "fnptr {this}{}", function.convention);
                self.push_argument(out, &function.result)?;
                self.push_arguments(out, function)?;
            }
        }
        Ok(())
    }

    fn push_modifier(&mut self, out: &mut String, modifier: Token) -> Result<(), NameError> {
        if modifier.table == Table::TypeSpec {
            let of = self.type_of(modifier)?;
            return self.push_argument(out, &of);
        }
        let name = self.type_name(modifier, None)?;
        push_short_name(out, &name);
        Ok(())
    }

    fn push_list(
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
        let OpenAssembly { image, metadata, .. } = self.assembly(module)?;
        Ok(metadata.type_name(image, token)?)
    }
}

/// The type without its type arguments.
fn generic_definition(of: &Type) -> &Type {
    match of {
        Type::Generic { definition, .. } => definition,
        plain => plain,
    }
}

fn push_qualified_name(out: &mut String, name: &TypeName) {
    if !name.namespace.is_empty() {
        let _ = write!(out, "{}.", name.namespace);
    }
    out.push_str(&name.nested.join("+"));
}

/// Appends the name without the enclosing types.
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
