//! Parses lists of types and converts them to C# spelling.
//!
//! The runtime has two spellings: ``value class System.Span`1<unsigned int8>&`` in argument lists, and
//! ``System.Span`1[System.Byte]`` in the type arguments of generic types. One parser reads both, because no text has
//! different meanings in the two.

use super::method_path;

/// Levels of types within types. Compilers emit at most a dozen.
const MAX_DEPTH: u32 = 32;

/// Bytes that may be written while one list is converted. Inner types count again for each enclosing type.
const MAX_WRITTEN_BYTES: usize = 64 << 10;

/// Parses types from the front of a text.
pub(super) struct TypeReader<'a> {
    rest: &'a str,
    /// The type arguments that replace the parameters `!0`, `!1` of the declaring type.
    type_arguments: &'a [String],
    writable_bytes: usize,
}

impl<'a> TypeReader<'a> {
    pub(super) fn new(text: &'a str, type_arguments: &'a [String]) -> Self {
        Self { rest: text, type_arguments, writable_bytes: MAX_WRITTEN_BYTES }
    }

    /// Parses the types up to the closing bracket of the list.
    pub(super) fn list(&mut self, close: char) -> Option<Vec<String>> {
        self.parse_list(close, MAX_DEPTH)
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn parse_list(&mut self, close: char, depth: u32) -> Option<Vec<String>> {
        let mut types = Vec::new();
        if self.take_char(close) {
            return Some(types);
        }
        loop {
            types.push(self.parse_type(depth)?);
            if self.take_char(close) {
                return Some(types);
            }
            self.take(",").then_some(())?;
        }
    }

    fn parse_type(&mut self, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let mut converted = if self.take("method ") {
            self.parse_function_pointer(depth)?
        } else {
            self.parse_element(depth)?
        };
        loop {
            if self.take("&") {
                converted = format!("ref {}", converted.trim_start_matches("ref "));
            } else if self.take("*") {
                converted.push('*');
            } else if self.is_at_dimensions() {
                let (dimensions, after) = self.rest.split_at(self.rest.find(']')? + 1);
                converted.push_str(dimensions);
                self.rest = after;
            } else if self.take(" modreq(") || self.take(" modopt(") {
                let (modifier, after) = self.rest.split_once(')')?;
                self.rest = after;
                if let Some(referred) =
                    converted.strip_prefix("ref ").filter(|_| modifier.ends_with("InAttribute"))
                {
                    converted = format!("in {referred}");
                }
            } else {
                break;
            }
            self.writable_bytes = self.writable_bytes.checked_sub(converted.len())?;
        }
        self.writable_bytes = self.writable_bytes.checked_sub(converted.len())?;
        Some(converted)
    }

    /// Parses `unmanaged cdecl int32 *(bool)`.
    fn parse_function_pointer(&mut self, depth: u32) -> Option<String> {
        let convention = if self.take("unmanaged ") { " unmanaged" } else { "" };
        let _ = ["cdecl ", "stdcall ", "thiscall ", "fastcall "].into_iter().any(|kind| self.take(kind));
        let result = self.parse_type(depth)?;
        self.take(" *(").then_some(())?;
        let mut types = self.parse_list(')', depth)?;
        types.push(result);
        Some(format!("delegate*{convention}<{}>", types.join(",")))
    }

    /// Parses a type without its suffixes: `&`, `*`, array dimensions, modifiers.
    fn parse_element(&mut self, depth: u32) -> Option<String> {
        let _ = self.take("value class ") || self.take("class ");
        if self.take("!!") {
            return Some(format!("T{}", self.parse_number()?));
        }
        if self.take("!") {
            let number = self.parse_number()?;
            return Some(self.type_arguments.get(number).cloned().unwrap_or_else(|| format!("!{number}")));
        }
        if self.take("unsigned ") {
            return unsigned_keyword(self.parse_name()?).map(str::to_owned);
        }
        let name = self.parse_name()?;
        let arguments = if self.take("<") {
            self.parse_list('>', depth)?
        } else if self.rest.starts_with('[') && !self.is_at_dimensions() {
            self.rest = &self.rest[1..];
            self.parse_list(']', depth)?
        } else {
            Vec::new()
        };
        convert_type(name, &arguments)
    }

    fn parse_name(&mut self) -> Option<&'a str> {
        let end = method_path::name_length(self.rest)?;
        let (name, after) = self.rest.split_at(end);
        self.rest = after;
        (!name.is_empty()).then_some(name)
    }

    fn parse_number(&mut self) -> Option<usize> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, after) = self.rest.split_at(digits);
        self.rest = after;
        number.parse().ok()
    }

    fn is_at_dimensions(&self) -> bool {
        self.rest.starts_with("[]") || self.rest.starts_with("[,")
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn take_char(&mut self, character: char) -> bool {
        self.take(character.encode_utf8(&mut [0; 4]))
    }
}

fn convert_type(name: &str, arguments: &[String]) -> Option<String> {
    match (name, arguments) {
        ("System.Nullable`1", [value]) => Some(format!("{value}?")),
        (_, [_, _, ..]) if is_tuple(name, arguments.len()) => Some(format!("({})", arguments.join(","))),
        (_, []) => keyword(name).map(str::to_owned).or_else(|| method_path::convert_type(name, &[])),
        _ => method_path::convert_type(name, arguments),
    }
}

/// Whether the type is a tuple of so many values. A tuple of eight and more values is a tuple within a tuple.
fn is_tuple(name: &str, values: usize) -> bool {
    const MAX_VALUES: usize = 7;
    let count = name.strip_prefix("System.ValueTuple`").and_then(|count| count.parse().ok());
    values <= MAX_VALUES && count == Some(values)
}

fn keyword(name: &str) -> Option<&'static str> {
    Some(match name {
        "System.Boolean" => "bool",
        "wchar" | "System.Char" => "char",
        "int8" | "System.SByte" => "sbyte",
        "System.Byte" => "byte",
        "int16" | "System.Int16" => "short",
        "System.UInt16" => "ushort",
        "int32" | "System.Int32" => "int",
        "System.UInt32" => "uint",
        "int64" | "System.Int64" => "long",
        "System.UInt64" => "ulong",
        "int" | "System.IntPtr" => "nint",
        "System.UIntPtr" => "nuint",
        "float32" | "System.Single" => "float",
        "float64" | "System.Double" => "double",
        "System.Decimal" => "decimal",
        "System.String" => "string",
        "System.Object" => "object",
        "System.Void" => "void",
        "refany" => "TypedReference",
        _ => return None,
    })
}

fn unsigned_keyword(name: &str) -> Option<&'static str> {
    Some(match name {
        "int8" => "byte",
        "int16" => "ushort",
        "int32" => "uint",
        "int64" => "ulong",
        "int" => "nuint",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<String> {
        let parameters = ["__Canon".to_owned(), "int".to_owned()];
        let mut reader = TypeReader::new(text, &parameters);
        let types = reader.list(')')?;
        reader.is_at_end().then(|| types.join(" "))
    }

    #[test]
    fn types_are_converted_to_csharp() {
        for (written, expected) in [
            (")", ""),
            ("int32,unsigned int8,wchar,int,unsigned int,refany)", "int byte char nint nuint TypedReference"),
            ("class System.String,class System.Object[])", "string object[]"),
            ("bool&,unsigned int8*&,void*)", "ref bool ref byte* void*"),
            ("int32[][],!1[,],int32[]&)", "int[][] int[,] ref int[]"),
            ("!0,!1&,!2,!!0,!!1[])", "__Canon ref int !2 T0 T1[]"),
            (
                "class System.Func`3<!0,value class System.Guid,class System.Collections.Generic.List`1<int32>[]>)",
                "Func<__Canon,Guid,List<int>[]>",
            ),
            ("value class System.Nullable`1<value class System.DateTime>)", "DateTime?"),
            ("value class System.ValueTuple`2<int32,class System.String>[])", "(int,string)[]"),
            ("value class System.ValueTuple`1<int32>)", "ValueTuple<int>"),
            ("class Entry<!0,!1>[],class Node`1<!0,int64>)", "Entry[] Node<long>"),
            ("value class <>c__DisplayClass5_0&)", "ref <>c__DisplayClass5_0"),
            ("value class <ReadAsync>d__3<!0>&)", "ref ReadAsync"),
            ("value class A.B& modreq(System.Runtime.InteropServices.InAttribute))", "in B"),
            ("int32 modopt(System.Runtime.CompilerServices.IsLong),int32*)", "int int*"),
            ("method int32 *(bool,class System.String))", "delegate*<bool,string,int>"),
            ("method unmanaged cdecl void *()*)", "delegate* unmanaged<void>*"),
            ("value class ?,...)", "? ..."),
            (
                "System.Func`2<int32,System.String>,Interop+Sys+SocketEvents)",
                "Func<int,string> Interop.Sys.SocketEvents",
            ),
        ] {
            assert_eq!(list(written).as_deref(), Some(expected), "{written}");
        }
    }

    #[test]
    fn a_list_of_another_shape_is_not_converted() {
        for written in [
            "",
            "int32",
            "int32,)",
            "int32))",
            "int32]",
            ",)",
            "A<int32)",
            "!x)",
            "unsigned A)",
            "a b)",
            "(int32))",
        ] {
            assert_eq!(list(written), None, "{written:?}");
        }
    }

    #[test]
    fn nested_types_without_end_are_not_converted() {
        let nested = |depth| format!("{}int32{})", "A.B`1<".repeat(depth), ">".repeat(depth));
        assert!(list(&nested(20)).is_some());
        assert_eq!(list(&nested(2_000)), None);
        assert_eq!(list(&format!("int32{})", "&*".repeat(20_000))), None);
        let parameters = ["x".repeat(8_000)];
        let mut reader = TypeReader::new("!0,!0,!0,!0,!0,!0,!0,!0,!0,!0)", &parameters);
        assert_eq!(reader.list(')'), None, "replaced parameters count");
    }
}
