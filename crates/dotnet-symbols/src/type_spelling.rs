//! Spells types as the runtime's events do: full names of owners, and types in argument lists.
//!
//! Source: dotnet/runtime, `utilcode/prettyprintsig.cpp` (argument lists) and `vm/typestring.cpp` (full names).

use std::fmt::Write as _;

use profiler_binary_reader::ParseError;

use crate::{
    metadata::{Table, Token, TypeName},
    signature::{MethodSignature, Type},
};

/// Length of the longest name that is built. Nested generic types can have names of any length.
const MAX_NAME_BYTES: usize = 16 << 10;

/// Finds the names of the types that signatures refer to.
pub trait TypeNames {
    /// Why a type has no name.
    type Error: From<ParseError>;

    /// The name of a type. `module` is the index of the module of its token; `None` is that of the signature.
    ///
    /// # Errors
    /// When the metadata of the module cannot be read.
    fn type_name(&mut self, token: Token, module: Option<u32>) -> Result<TypeName, Self::Error>;

    /// The type in a row of the table `TypeSpec` of the signature's module.
    ///
    /// # Errors
    /// When the metadata of the module cannot be read.
    fn type_specification(&mut self, row: u32) -> Result<Type, Self::Error>;
}

/// Appends the full name of a type: `Namespace.Outer+Inner[System.Int32]`.
///
/// # Errors
/// When a name cannot be read, or [`ParseError::TooLarge`] when the result exceeds 16 KiB.
pub fn push_full_name<N: TypeNames>(names: &mut N, out: &mut String, of: &Type) -> Result<(), N::Error> {
    check_length(out)?;
    match of {
        Type::Primitive(primitive) => out.push_str(primitive.name),
        Type::Named { token, module, .. } => {
            let name = names.type_name(*token, *module)?;
            push_qualified_name(out, &name);
        }
        Type::Generic { definition, arguments } => {
            push_full_name(names, out, definition)?;
            push_list(names, out, ['[', ']'], arguments, push_full_name)?;
        }
        Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
        Type::Pointer(to) => {
            push_full_name(names, out, to)?;
            out.push('*');
        }
        Type::Reference(to) => {
            push_full_name(names, out, to)?;
            out.push('&');
        }
        Type::Array(element, Some(1)) => {
            push_full_name(names, out, element)?;
            out.push_str("[*]");
        }
        Type::Array(element, rank) => {
            push_full_name(names, out, element)?;
            push_dimensions(out, *rank);
        }
        Type::Modified { of, .. } => push_full_name(names, out, of)?,
        Type::Function(function) => {
            push_full_name(names, out, &function.result)?;
            out.push('(');
            for (index, of) in function.arguments.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                push_full_name(names, out, of)?;
            }
            out.push(')');
        }
        Type::RuntimeType => out.push('?'),
    }
    Ok(())
}

/// Appends the argument list of a method, with its parentheses: `(int32,class System.String)`.
///
/// # Errors
/// As for [`push_full_name`].
pub fn push_arguments<N: TypeNames>(
    names: &mut N,
    out: &mut String,
    signature: &MethodSignature,
) -> Result<(), N::Error> {
    push_list(names, out, ['(', ')'], &signature.arguments, push_argument)
}

/// Appends a type as in the argument lists of the runtime's events: `value class Inner<int32>`.
fn push_argument<N: TypeNames>(names: &mut N, out: &mut String, of: &Type) -> Result<(), N::Error> {
    check_length(out)?;
    match of {
        Type::Primitive(primitive) => out.push_str(primitive.spelling),
        Type::Named { is_value, token, module } => {
            out.push_str(if *is_value { "value class " } else { "class " });
            let name = names.type_name(*token, *module)?;
            push_short_name(out, &name);
        }
        Type::Generic { definition, arguments } => {
            push_argument(names, out, definition)?;
            push_list(names, out, ['<', '>'], arguments, push_argument)?;
        }
        Type::Parameter { of_method, number } => push_parameter(out, *of_method, *number),
        Type::Pointer(to) => {
            push_argument(names, out, to)?;
            out.push('*');
        }
        Type::Reference(to) => {
            push_argument(names, out, to)?;
            out.push('&');
        }
        Type::Array(element, rank) => {
            push_argument(names, out, element)?;
            push_dimensions(out, *rank);
        }
        Type::Modified { required, modifier, of } => {
            out.push_str(if *required { "required_modifier " } else { "optional_modifier " });
            push_modifier(names, out, *modifier)?;
            out.push(' ');
            push_argument(names, out, of)?;
        }
        Type::Function(function) => {
            let this = if function.is_instance { "instance " } else { "" };
            let _ = write!(out, "fnptr {this}{}", function.convention);
            push_argument(names, out, &function.result)?;
            push_arguments(names, out, function)?;
        }
        // An event has an address here, which names of events replace.
        Type::RuntimeType => out.push('?'),
    }
    Ok(())
}

fn push_modifier<N: TypeNames>(
    names: &mut N,
    out: &mut String,
    modifier: Option<Token>,
) -> Result<(), N::Error> {
    match modifier {
        None => out.push('?'),
        Some(Token { table: Table::TypeSpec, row }) => {
            let of = names.type_specification(row)?;
            push_argument(names, out, &of)?;
        }
        Some(token) => {
            let name = names.type_name(token, None)?;
            push_short_name(out, &name);
        }
    }
    Ok(())
}

fn push_list<N: TypeNames>(
    names: &mut N,
    out: &mut String,
    [open, close]: [char; 2],
    types: &[Type],
    push: fn(&mut N, &mut String, &Type) -> Result<(), N::Error>,
) -> Result<(), N::Error> {
    out.push(open);
    for (index, of) in types.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(names, out, of)?;
    }
    out.push(close);
    Ok(())
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

fn check_length(name: &str) -> Result<(), ParseError> {
    if name.len() > MAX_NAME_BYTES { Err(ParseError::TooLarge) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use profiler_binary_reader::ByteCursor;

    use super::*;

    /// Each type has its row as its name, in the namespace `N`.
    struct Numbered;

    impl TypeNames for Numbered {
        type Error = ParseError;

        fn type_name(&mut self, token: Token, _: Option<u32>) -> Result<TypeName, ParseError> {
            Ok(TypeName { namespace: "N".to_owned(), nested: vec![format!("T{}", token.row)] })
        }

        fn type_specification(&mut self, _: u32) -> Result<Type, ParseError> {
            Type::read(&mut ByteCursor::new(&[0x1d, 0x08], 0))
        }
    }

    fn arguments(signature: &[u8]) -> Result<String, ParseError> {
        let signature = MethodSignature::read(&mut ByteCursor::new(signature, 0))?;
        let mut out = String::new();
        push_arguments(&mut Numbered, &mut out, &signature)?;
        Ok(out)
    }

    #[test]
    fn types_by_address_and_their_modifiers_have_a_placeholder() {
        const ADDRESS: [u8; 8] = [0x10, 0x32, 0x54, 0x76, 0x98, 0x7f, 0, 0];
        let by_address = [&[0, 1, 1, 0x0f, 0x21][..], &ADDRESS].concat();
        assert_eq!(arguments(&by_address).as_deref(), Ok("(?*)"));
        let modified = [&[0, 1, 1, 0x22, 1][..], &ADDRESS, &[0x10, 0x08]].concat();
        assert_eq!(arguments(&modified).as_deref(), Ok("(required_modifier ? int32&)"));
        let generic = [&[0, 1, 1, 0x15, 0x21][..], &ADDRESS, &[1, 0x0e]].concat();
        assert_eq!(arguments(&generic).as_deref(), Ok("(?<class System.String>)"));
    }

    #[test]
    fn a_modifier_can_be_a_constructed_type() {
        assert_eq!(
            arguments(&[0, 1, 1, 0x20, 1 << 2 | 2, 0x08]).as_deref(),
            Ok("(optional_modifier int32[] int32)")
        );
        assert_eq!(
            arguments(&[0, 1, 1, 0x1f, 3 << 2, 0x08]).as_deref(),
            Ok("(required_modifier N.T3 int32)")
        );
    }

    #[test]
    fn a_name_without_end_is_too_large() {
        let mut signature = vec![0, 0x83, 0xe7, 1];
        signature.extend([0x08].repeat(999));
        assert!(arguments(&signature).is_ok_and(|list| list.len() > 5_000));
        let mut strings = vec![0, 0x83, 0xe7, 1];
        strings.extend([0x0e].repeat(999));
        assert_eq!(arguments(&strings), Err(ParseError::TooLarge));
    }
}
