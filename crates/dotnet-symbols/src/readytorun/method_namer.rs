//! Builds the normalized names of methods (see [`managed`](crate::managed)) from metadata and signatures.

use std::fmt::Write;

use profiler_binary_reader::{ByteCursor, ByteRange, PagedImage};

use super::{
    AssemblyFiles, NameError,
    assemblies::{Assemblies, OWN_ASSEMBLY, OpenAssembly},
    method_tables::MethodKey,
};
use crate::{
    metadata::{Table, Token, TypeName},
    signature::{InstanceSignature, MAX_TYPES, MethodSignature, Type},
    type_spelling::{TypeNames, push_arguments, push_full_name},
};

/// The assembly of the primitive types.
const CORE_LIBRARY: &str = "System.Private.CoreLib";

/// Size of the largest instance signature that is read. Those of the runtime's libraries have less than a thousand
/// bytes.
const MAX_INSTANCE_BYTES: u64 = 4 << 10;

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
        push_full_name(self, &mut name, owner)?;
        let _ = write!(name, ".{method}");
        push_arguments(self, &mut name, &signature)?;
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
}

impl TypeNames for MethodNamer<'_> {
    type Error = NameError;

    fn type_name(&mut self, token: Token, module: Option<u32>) -> Result<TypeName, NameError> {
        let OpenAssembly { image, metadata, .. } = self.assembly(module)?;
        Ok(metadata.type_name(image, token)?)
    }

    fn type_specification(&mut self, row: u32) -> Result<Type, NameError> {
        self.type_of(Token { table: Table::TypeSpec, row })
    }
}

/// The type without its type arguments.
fn generic_definition(of: &Type) -> &Type {
    match of {
        Type::Generic { definition, .. } => definition,
        plain => plain,
    }
}
