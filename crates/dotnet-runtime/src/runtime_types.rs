//! Reads types of the runtime: the declaring type of a method, with its type arguments.
//!
//! A type handle is the address of a `MethodTable`, or with bit 1 set that of a `TypeDesc`: a pointer, a reference or a
//! function pointer.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/RuntimeTypeSystem.md`; `vm/methodtable.h`, `vm/typedesc.h`, `vm/typehandle.h`.

use profiler_dotnet_symbols::{
    metadata::{Table, Token},
    signature::{MethodSignature, Type},
};

use crate::{error::LookupError, layout::TypeLayouts, memory::LimitedMemory, modules::Modules};

/// Levels of types within types.
const MAX_DEPTH: u32 = 24;

/// Types in one name, nested ones included.
const MAX_TYPES: u32 = 1_000;

/// Type arguments of one type.
const MAX_TYPE_ARGUMENTS: u16 = 256;

/// Dictionaries of one type: one for itself, and one for each base class.
const MAX_DICTIONARIES: u16 = 512;

/// Arguments of one function pointer.
const MAX_FUNCTION_ARGUMENTS: u32 = 256;

/// Dimensions of one array: the limit of the runtime.
const MAX_RANK: u8 = 32;

/// Reads the types of one name.
pub(crate) struct TypeReader<'a> {
    memory: &'a LimitedMemory,
    layout: &'a TypeLayouts,
    modules: &'a mut Modules,
    types_left: u32,
}

impl<'a> TypeReader<'a> {
    pub(crate) fn new(memory: &'a LimitedMemory, layout: &'a TypeLayouts, modules: &'a mut Modules) -> Self {
        Self { memory, layout, modules, types_left: MAX_TYPES }
    }

    /// Reads the type of a method table. The module of each named type is an index in [`Modules`].
    pub(crate) fn read(&mut self, method_table: u64) -> Result<Type, LookupError> {
        self.read_handle(method_table, MAX_DEPTH)
    }

    fn read_handle(&mut self, handle: u64, depth: u32) -> Result<Type, LookupError> {
        const IS_TYPE_DESC: u64 = 2;
        const TAGS: u64 = 3;
        let depth = depth.checked_sub(1).ok_or(LookupError::TooLarge("nesting of types"))?;
        self.types_left = self.types_left.checked_sub(1).ok_or(LookupError::TooLarge("number of types"))?;
        let address = handle & !TAGS;
        if address == 0 {
            return Err(LookupError::Malformed("type"));
        }
        if handle & IS_TYPE_DESC != 0 {
            self.read_type_desc(address, depth)
        } else {
            self.read_method_table(address, depth)
        }
    }

    fn read_type_desc(&mut self, address: u64, depth: u32) -> Result<Type, LookupError> {
        /// Element types (ECMA-335 II.23.1.16).
        const POINTER: u32 = 0x0f;
        const REFERENCE: u32 = 0x10;
        const FUNCTION: u32 = 0x1b;
        let kind = self.memory.u32(address.wrapping_add(self.layout.desc_kind))? & 0xff;
        match kind {
            POINTER | REFERENCE => {
                let element = self.memory.u64(address.wrapping_add(self.layout.desc_element))?;
                let element = Box::new(self.read_handle(element, depth)?);
                Ok(if kind == POINTER { Type::Pointer(element) } else { Type::Reference(element) })
            }
            FUNCTION => self.read_function(address, depth),
            _ => Err(LookupError::Unsupported("generic type that is not instantiated")),
        }
    }

    fn read_function(&mut self, address: u64, depth: u32) -> Result<Type, LookupError> {
        let count = self.memory.u32(address.wrapping_add(self.layout.function_arguments))?;
        if count > MAX_FUNCTION_ARGUMENTS {
            return Err(LookupError::TooLarge("list of arguments"));
        }
        // The result is the first one.
        let mut types =
            self.read_handles(address.wrapping_add(self.layout.function_types), count as usize + 1, depth)?;
        let result = types.remove(0);
        Ok(Type::Function(Box::new(MethodSignature {
            convention: "",
            is_instance: false,
            result,
            arguments: types,
        })))
    }

    fn read_method_table(&mut self, address: u64, depth: u32) -> Result<Type, LookupError> {
        /// `WFLAGS_HIGH_ENUM` and `WFLAGS_LOW_ENUM`.
        const HAS_COMPONENT_SIZE: u32 = 0x8000_0000;
        const CATEGORY: u32 = 0x000c_0000;
        const ARRAY: u32 = 0x0008_0000;
        const IS_VECTOR: u32 = 0x0002_0000;
        const GENERICS: u32 = 0x30;
        const GENERIC_INSTANCE: u32 = 0x10;
        const SHARED_INSTANCE: u32 = 0x20;
        let TypeLayouts { flags, flags2, module, per_instance, .. } = *self.layout;
        let fields = self.memory.fields(address, &[flags, flags2, module, per_instance]);
        let flags = fields.u32(flags)?;
        if flags & HAS_COMPONENT_SIZE != 0 && flags & CATEGORY == ARRAY {
            let element = Box::new(self.read_handle(fields.u64(per_instance)?, depth)?);
            let rank = if flags & IS_VECTOR != 0 { None } else { Some(self.read_rank(address)?) };
            return Ok(Type::Array(element, rank));
        }
        let module = Some(self.modules.index_of(fields.u64(module)?)?);
        let token = Token { table: Table::TypeDef, row: fields.u32(flags2)? >> 8 };
        let definition = Type::Named { is_value: false, token, module };
        let is_instance = flags & HAS_COMPONENT_SIZE == 0
            && [GENERIC_INSTANCE, SHARED_INSTANCE].contains(&(flags & GENERICS));
        if !is_instance {
            return Ok(definition);
        }
        Ok(Type::Generic {
            definition: Box::new(definition),
            arguments: self.read_arguments(fields.u64(per_instance)?, depth)?,
        })
    }

    fn read_rank(&mut self, method_table: u64) -> Result<u32, LookupError> {
        const IS_CANONICAL: u64 = 1;
        let mut class = self.memory.u64(method_table.wrapping_add(self.layout.class))?;
        if class & IS_CANONICAL != 0 {
            class = self.memory.u64((class & !IS_CANONICAL).wrapping_add(self.layout.class))?;
        }
        let rank = self.memory.u8(class.wrapping_add(self.layout.array_rank))?;
        if rank == 0 || rank > MAX_RANK {
            return Err(LookupError::Malformed("array"));
        }
        Ok(rank.into())
    }

    /// Reads the type arguments: those of the type itself are in the last dictionary. The numbers are in front of the table of
    /// dictionaries (`GenericsDictInfo`).
    fn read_arguments(&mut self, dictionaries: u64, depth: u32) -> Result<Vec<Type>, LookupError> {
        const INFO_BYTES: u64 = 8;
        let info = dictionaries.wrapping_sub(INFO_BYTES);
        let count = self.memory.u16(info.wrapping_add(self.layout.dictionary_count))?;
        let arguments = self.memory.u16(info.wrapping_add(self.layout.type_arguments))?;
        if count == 0 || count > MAX_DICTIONARIES || arguments > MAX_TYPE_ARGUMENTS {
            return Err(LookupError::Malformed("list of type arguments"));
        }
        let dictionary = self.memory.u64(dictionaries.wrapping_add(8 * u64::from(count - 1)))?;
        self.read_handles(dictionary, arguments.into(), depth)
    }

    fn read_handles(&mut self, address: u64, count: usize, depth: u32) -> Result<Vec<Type>, LookupError> {
        let handles = self.memory.bytes(address, count * size_of::<u64>())?;
        let handles = handles.as_chunks::<8>().0.iter().map(|handle| u64::from_le_bytes(*handle));
        handles.map(|handle| self.read_handle(handle, depth)).collect()
    }
}
