//! Decodes signatures of types and methods (ECMA-335 II.23.2, with the extensions of ReadyToRun).

use profiler_binary_reader::{ByteCursor, ParseError};

use crate::metadata::{Table, Token};

/// Types per signature, nested ones included.
pub(crate) const MAX_TYPES: u32 = 1000;

/// Levels of types within types. Compilers emit at most a dozen.
const MAX_DEPTH: u32 = 64;

/// A type in a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type with an element type code of its own.
    Primitive(PrimitiveType),
    /// A class or a value type.
    Named {
        /// Whether it is a value type.
        is_value: bool,
        /// Its row.
        token: Token,
        /// The index of its module, if it is not that of the signature.
        module: Option<u32>,
    },
    /// An instance of a generic type.
    Generic {
        /// The generic type.
        definition: Box<Type>,
        /// Its type arguments, with those of enclosing types.
        arguments: Vec<Type>,
    },
    /// A parameter of the generic type or of the generic method.
    Parameter {
        /// Whether it is a parameter of the method.
        of_method: bool,
        /// Its number, from 0.
        number: u32,
    },
    /// An unmanaged pointer.
    Pointer(Box<Type>),
    /// A reference (`ref`).
    Reference(Box<Type>),
    /// An array with its rank, or a vector.
    Array(Box<Type>, Option<u32>),
    /// A function pointer.
    Function(Box<MethodSignature>),
    /// A type with a custom modifier.
    Modified {
        /// Whether the modifier is required.
        required: bool,
        /// The row of the modifier; `None` for the address of a type in the runtime.
        modifier: Option<Token>,
        /// The type that is modified.
        of: Box<Type>,
    },
    /// The address of a type in the runtime, in signatures that the runtime itself makes.
    RuntimeType,
}

/// A type with an element type code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimitiveType {
    /// As in the argument lists of events.
    pub spelling: &'static str,
    /// The full name.
    pub name: &'static str,
}

/// The signature of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodSignature {
    /// The calling convention as events have it, each word with a space after it; empty for the managed one.
    pub convention: &'static str,
    /// Whether the first argument, `this`, is not among the arguments.
    pub is_instance: bool,
    /// The type of the result.
    pub result: Type,
    /// The types of the arguments.
    pub arguments: Vec<Type>,
}

/// The signature of an instance of a generic method, or of a method of a generic type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceSignature {
    /// The index of the assembly of the tokens, if it is not the image's own.
    pub(crate) module: Option<u32>,
    pub(crate) owner: Option<Type>,
    pub(crate) method: Token,
}

impl InstanceSignature {
    /// Decodes a signature. Subtracts the number of its types from `types_left`.
    pub(crate) fn read(bytes: &mut ByteCursor<'_>, types_left: &mut u32) -> Result<Self, ParseError> {
        const METHOD_INSTANTIATION: u32 = 0x04;
        const MEMBER_REFERENCE: u32 = 0x10;
        const OWNER: u32 = 0x40;
        const MODULE: u32 = 0x80;
        let flags = bytes.compressed()?;
        let mut reader = SignatureReader { bytes, types_left };
        let module = if flags & MODULE == 0 { None } else { Some(reader.bytes.compressed()?) };
        let owner = if flags & OWNER == 0 { None } else { Some(reader.read_type(MAX_DEPTH)?) };
        let table = if flags & MEMBER_REFERENCE == 0 { Table::MethodDef } else { Table::MemberRef };
        let method = Token { table, row: reader.bytes.compressed()? };
        if flags & METHOD_INSTANTIATION != 0 {
            for _ in 0..reader.bytes.compressed()? {
                reader.read_type(MAX_DEPTH)?;
            }
        }
        Ok(Self { module, owner, method })
    }
}

impl MethodSignature {
    /// Decodes the signature of a method.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when it is no such signature, [`ParseError::TooLarge`] when it has too many types.
    pub fn read(bytes: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        SignatureReader { bytes, types_left: &mut { MAX_TYPES } }.read_method(MAX_DEPTH)
    }
}

impl Type {
    /// Decodes the signature of a type.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when it is no such signature, [`ParseError::TooLarge`] when it has too many types.
    pub fn read(bytes: &mut ByteCursor<'_>) -> Result<Self, ParseError> {
        SignatureReader { bytes, types_left: &mut { MAX_TYPES } }.read_type(MAX_DEPTH)
    }
}

struct SignatureReader<'r, 'a> {
    bytes: &'r mut ByteCursor<'a>,
    types_left: &'r mut u32,
}

impl SignatureReader<'_, '_> {
    fn read_type(&mut self, depth: u32) -> Result<Type, ParseError> {
        self.count_type()?;
        let depth = depth.checked_sub(1).ok_or(ParseError::TooLarge)?;
        let kind = self.bytes.u8()?;
        if let Some(primitive) = primitive_type(kind) {
            return Ok(Type::Primitive(primitive));
        }
        Ok(match kind {
            0x0f => Type::Pointer(self.read_boxed(depth)?),
            0x10 => Type::Reference(self.read_boxed(depth)?),
            0x11 | 0x12 => Type::Named { is_value: kind == 0x11, token: self.read_token()?, module: None },
            0x13 | 0x1e => Type::Parameter { of_method: kind == 0x1e, number: self.bytes.compressed()? },
            0x14 => self.read_array(depth)?,
            0x15 => self.read_generic(depth)?,
            0x1b => Type::Function(Box::new(self.read_method(depth)?)),
            0x1d => Type::Array(self.read_boxed(depth)?, None),
            0x1f | 0x20 => {
                let modifier = self.read_token()?;
                Type::Modified {
                    required: kind == 0x1f,
                    modifier: Some(modifier),
                    of: self.read_boxed(depth)?,
                }
            }
            // ELEMENT_TYPE_INTERNAL and ELEMENT_TYPE_CMOD_INTERNAL (dotnet/runtime, inc/corhdr.h): the address of a type.
            0x21 => {
                self.bytes.u64()?;
                Type::RuntimeType
            }
            0x22 => {
                let required = self.bytes.u8()? != 0;
                self.bytes.u64()?;
                Type::Modified { required, modifier: None, of: self.read_boxed(depth)? }
            }
            // A value type in its native layout (0x3d) or a pinned variable (0x45): the type itself follows.
            0x3d | 0x45 => self.read_type(depth)?,
            0x3f => {
                let module = self.bytes.compressed()?;
                self.read_type(depth)?.in_module(module)
            }
            _ => return Err(ParseError::Malformed),
        })
    }

    fn count_type(&mut self) -> Result<(), ParseError> {
        *self.types_left = self.types_left.checked_sub(1).ok_or(ParseError::TooLarge)?;
        Ok(())
    }

    fn read_boxed(&mut self, depth: u32) -> Result<Box<Type>, ParseError> {
        self.read_type(depth).map(Box::new)
    }

    fn read_types(&mut self, count: u32, depth: u32) -> Result<Vec<Type>, ParseError> {
        (0..count).map(|_| self.read_type(depth)).collect()
    }

    fn read_generic(&mut self, depth: u32) -> Result<Type, ParseError> {
        let definition = self.read_boxed(depth)?;
        let count = self.bytes.compressed()?;
        Ok(Type::Generic { definition, arguments: self.read_types(count, depth)? })
    }

    /// Skips the bounds: names do not have them.
    fn read_array(&mut self, depth: u32) -> Result<Type, ParseError> {
        let element = self.read_boxed(depth)?;
        let rank = self.bytes.compressed()?;
        for _ in ["sizes", "lower bounds"] {
            for _ in 0..self.bytes.compressed()? {
                self.count_type()?;
                self.bytes.compressed()?;
            }
        }
        if rank > MAX_TYPES { Err(ParseError::TooLarge) } else { Ok(Type::Array(element, Some(rank))) }
    }

    fn read_method(&mut self, depth: u32) -> Result<MethodSignature, ParseError> {
        const IS_GENERIC: u8 = 0x10;
        const HAS_THIS: u8 = 0x20;
        const SENTINEL: u8 = 0x41;
        let flags = self.bytes.u8()?;
        if flags & IS_GENERIC != 0 {
            self.bytes.compressed()?;
        }
        let count = self.bytes.compressed()?;
        let result = self.read_type(depth)?;
        let mut arguments = Vec::new();
        for _ in 0..count {
            if self.bytes.peek() == Some(SENTINEL) {
                self.bytes.skip(1);
            }
            arguments.push(self.read_type(depth)?);
        }
        let (convention, is_instance) = (calling_convention(flags), flags & HAS_THIS != 0);
        Ok(MethodSignature { convention, is_instance, result, arguments })
    }

    fn read_token(&mut self) -> Result<Token, ParseError> {
        Token::from_type_def_or_ref(self.bytes.compressed()?).ok_or(ParseError::Malformed)
    }
}

impl Type {
    /// The type with its token in another module. Type arguments keep the module of the signature.
    fn in_module(self, module: u32) -> Self {
        match self {
            Self::Named { is_value, token, .. } => Self::Named { is_value, token, module: Some(module) },
            Self::Generic { definition, arguments } => {
                Self::Generic { definition: Box::new(definition.in_module(module)), arguments }
            }
            other => other,
        }
    }
}

/// The calling convention (ECMA-335 II.15.3 and II.23.2.1) as utilcode/prettyprintsig.cpp of the runtime writes it. That has
/// no word for `unmanaged` without a kind.
fn calling_convention(flags: u8) -> &'static str {
    match flags & 0x0f {
        1 => "unmanaged cdecl ",
        2 => "unmanaged stdcall ",
        3 => "unmanaged thiscall ",
        4 => "unmanaged fastcall ",
        5 => "vararg ",
        11 => "native vararg ",
        _ => "",
    }
}

fn primitive_type(kind: u8) -> Option<PrimitiveType> {
    let (spelling, name) = match kind {
        0x01 => ("void", "System.Void"),
        0x02 => ("bool", "System.Boolean"),
        0x03 => ("wchar", "System.Char"),
        0x04 => ("int8", "System.SByte"),
        0x05 => ("unsigned int8", "System.Byte"),
        0x06 => ("int16", "System.Int16"),
        0x07 => ("unsigned int16", "System.UInt16"),
        0x08 => ("int32", "System.Int32"),
        0x09 => ("unsigned int32", "System.UInt32"),
        0x0a => ("int64", "System.Int64"),
        0x0b => ("unsigned int64", "System.UInt64"),
        0x0c => ("float32", "System.Single"),
        0x0d => ("float64", "System.Double"),
        0x0e => ("class System.String", "System.String"),
        0x16 => ("refany", "System.TypedReference"),
        0x18 => ("int", "System.IntPtr"),
        0x19 => ("unsigned int", "System.UIntPtr"),
        0x1c => ("class System.Object", "System.Object"),
        0x3e => ("class System.__Canon", "System.__Canon"),
        _ => return None,
    };
    Some(PrimitiveType { spelling, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Type, ParseError> {
        Type::read(&mut ByteCursor::new(bytes, 0))
    }

    #[test]
    fn type_arguments_keep_the_module_of_the_signature() {
        // Module 3's value type of row 5, over a class of this module's row 2 and System.__Canon.
        let found = read(&[0x3f, 3, 0x15, 0x11, 5 << 2, 2, 0x12, 2 << 2, 0x3e]).unwrap();
        let Type::Generic { definition, arguments } = found else { unreachable!("no generic type") };
        let token = |row| Token { table: Table::TypeDef, row };
        assert_eq!(*definition, Type::Named { is_value: true, token: token(5), module: Some(3) });
        assert_eq!(arguments[0], Type::Named { is_value: false, token: token(2), module: None });
        assert_eq!(arguments.len(), 2);
    }

    #[test]
    fn an_instance_has_an_owner_and_a_row() {
        let bytes = [0x44, 0x12, 9 << 2, 77, 1, 0x08, 0xaa];
        let mut reader = ByteCursor::new(&bytes, 0);
        let found = InstanceSignature::read(&mut reader, &mut { MAX_TYPES }).unwrap();
        assert!(found.owner.is_some());
        assert_eq!(found.method, Token { table: Table::MethodDef, row: 77 });
        assert_eq!(reader.peek(), Some(0xaa), "the type arguments of the method are skipped");
    }

    #[test]
    fn types_without_end_are_too_large() {
        assert_eq!(read(&[0x1d; 1000]), Err(ParseError::TooLarge));
        let mut wide = vec![0x15, 0x12, 4, 0x87, 0xff];
        wide.extend([0x08; 3000]);
        assert_eq!(read(&wide), Err(ParseError::TooLarge));
        assert_eq!(read(&[]), Err(ParseError::Malformed));
        assert_eq!(read(&[0x3a]), Err(ParseError::Malformed));
    }

    #[test]
    fn random_bytes_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            let _ = read(&bytes);
            let _ = InstanceSignature::read(&mut ByteCursor::new(&bytes, 0), &mut { MAX_TYPES });
            let _ = MethodSignature::read(&mut ByteCursor::new(&bytes, 0));
        }
    }
}
