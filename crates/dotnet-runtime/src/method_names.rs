//! Builds the names of methods, with the spelling of those from EventPipe: `assembly!Namespace.Type.Method(arguments)`.

use std::fmt::Write as _;

use profiler_binary_reader::ByteCursor;
use profiler_dotnet_symbols::{
    metadata::{Token, TypeName},
    signature::{MethodSignature, Type},
    type_spelling::{TypeNames, push_arguments, push_full_name},
};

use crate::{
    error::LookupError,
    layout::TypeLayouts,
    memory::LimitedMemory,
    method_desc::{Definition, MethodDesc},
    modules::Modules,
    runtime_types::TypeReader,
};

/// The type that events give to dynamic methods (`vm/eventtrace.cpp`).
const DYNAMIC_CLASS: &str = "dynamicClass";

/// The name of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodName {
    pub(crate) name: String,
    pub(crate) file_name: String,
}

/// Names the types of one signature.
struct SignatureNames<'a> {
    modules: &'a mut Modules,
    /// The module of the signature.
    module: u32,
}

impl TypeNames for SignatureNames<'_> {
    type Error = LookupError;

    fn type_name(&mut self, token: Token, module: Option<u32>) -> Result<TypeName, LookupError> {
        let module = self.modules.get(module.unwrap_or(self.module))?;
        Ok(module.metadata.type_name(&mut module.image, token)?)
    }

    fn type_specification(&mut self, row: u32) -> Result<Type, LookupError> {
        let module = self.modules.get(self.module)?;
        let signature = module.metadata.type_specification(&mut module.image, row)?;
        Ok(Type::read(&mut ByteCursor::new(&signature, 0))?)
    }
}

/// Builds the name of a type: `Namespace.Type`.
pub(crate) fn build_type_name(
    memory: &LimitedMemory,
    layout: &TypeLayouts,
    modules: &mut Modules,
    method_table: u64,
) -> Result<String, LookupError> {
    let module = modules.index_of(memory.u64(method_table.wrapping_add(layout.module))?)?;
    let owner = TypeReader::new(memory, layout, modules).read(method_table)?;
    let mut name = String::new();
    push_full_name(&mut SignatureNames { modules, module }, &mut name, &owner)?;
    Ok(name)
}

/// Builds the name of a method.
pub(crate) fn build_name(
    memory: &LimitedMemory,
    layout: &TypeLayouts,
    modules: &mut Modules,
    method: &MethodDesc,
) -> Result<MethodName, LookupError> {
    let module_address = memory.u64(method.method_table.wrapping_add(layout.module))?;
    let index = modules.index_of(module_address)?;
    let module = modules.get(index)?;
    let (mut name, file_name) = (format!("{}!", module.name), module.file_name.clone());
    let (method_name, signature) = match &method.definition {
        Definition::Metadata(row) => module.metadata.method_name_and_signature(&mut module.image, *row)?,
        Definition::Dynamic { name, signature, .. } => (name.clone(), signature.clone()),
    };
    match &method.definition {
        Definition::Metadata(_) => {
            let owner = TypeReader::new(memory, layout, modules).read(method.method_table)?;
            push_full_name(&mut SignatureNames { modules, module: index }, &mut name, &owner)?;
        }
        Definition::Dynamic { .. } => name.push_str(DYNAMIC_CLASS),
    }
    let _ = write!(name, ".{method_name}");
    let signature = MethodSignature::read(&mut ByteCursor::new(&signature, 0))?;
    push_arguments(&mut SignatureNames { modules, module: index }, &mut name, &signature)?;
    Ok(MethodName { name, file_name })
}
