//! Types in lists, as C# writes them.
//!
//! The runtime has two spellings: in lists of arguments ``value class System.Span`1<unsigned int8>&``, in the brackets
//! behind a generic type ``System.Span`1[System.Byte]``. No text means one thing in the one and another in the other.

use super::path;

/// Types inside of types. Compilers write a dozen at most.
const MAX_DEPTH: u32 = 32;

/// What may be written while one list is read, inner types counted again for each type around them.
const MAX_WORK_BYTES: usize = 64 << 10;

/// Takes types off a text.
pub(super) struct TypeReader<'a> {
    rest: &'a str,
    /// What the parameters of the generic type around (`!0`, `!1`) stand for.
    parameters: &'a [String],
    work_left_bytes: usize,
}

impl<'a> TypeReader<'a> {
    pub(super) fn new(text: &'a str, parameters: &'a [String]) -> Self {
        Self { rest: text, parameters, work_left_bytes: MAX_WORK_BYTES }
    }

    /// The types up to the bracket that closes the list.
    pub(super) fn list(&mut self, close: char) -> Option<Vec<String>> {
        self.types(close, MAX_DEPTH)
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn types(&mut self, close: char, depth: u32) -> Option<Vec<String>> {
        let mut types = Vec::new();
        if self.take_char(close) {
            return Some(types);
        }
        loop {
            types.push(self.read(depth)?);
            if self.take_char(close) {
                return Some(types);
            }
            self.take(",").then_some(())?;
        }
    }

    fn read(&mut self, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let mut spelled = if self.take("method ") { self.function(depth)? } else { self.element(depth)? };
        loop {
            if self.take("&") {
                spelled = format!("ref {}", spelled.trim_start_matches("ref "));
            } else if self.take("*") {
                spelled.push('*');
            } else if self.at_dimensions() {
                let (dimensions, behind) = self.rest.split_at(self.rest.find(']')? + 1);
                spelled.push_str(dimensions);
                self.rest = behind;
            } else if self.take(" modreq(") || self.take(" modopt(") {
                let (modifier, behind) = self.rest.split_once(')')?;
                self.rest = behind;
                if let Some(referred) =
                    spelled.strip_prefix("ref ").filter(|_| modifier.ends_with("InAttribute"))
                {
                    spelled = format!("in {referred}");
                }
            } else {
                break;
            }
            self.work_left_bytes = self.work_left_bytes.checked_sub(spelled.len())?;
        }
        self.work_left_bytes = self.work_left_bytes.checked_sub(spelled.len())?;
        Some(spelled)
    }

    /// `method unmanaged cdecl int32 *(bool)`.
    fn function(&mut self, depth: u32) -> Option<String> {
        let convention = if self.take("unmanaged ") { " unmanaged" } else { "" };
        let _ = ["cdecl ", "stdcall ", "thiscall ", "fastcall "].into_iter().any(|kind| self.take(kind));
        let result = self.read(depth)?;
        self.take(" *(").then_some(())?;
        let mut types = self.types(')', depth)?;
        types.push(result);
        Some(format!("delegate*{convention}<{}>", types.join(",")))
    }

    /// A type without what follows it.
    fn element(&mut self, depth: u32) -> Option<String> {
        let _ = self.take("value class ") || self.take("class ");
        if self.take("!!") {
            return Some(format!("T{}", self.number()?));
        }
        if self.take("!") {
            let number = self.number()?;
            return Some(self.parameters.get(number).cloned().unwrap_or_else(|| format!("!{number}")));
        }
        if self.take("unsigned ") {
            return unsigned(self.name()?).map(str::to_owned);
        }
        let name = self.name()?;
        let arguments = if self.take("<") {
            self.types('>', depth)?
        } else if self.rest.starts_with('[') && !self.at_dimensions() {
            self.rest = &self.rest[1..];
            self.types(']', depth)?
        } else {
            Vec::new()
        };
        spell(name, &arguments)
    }

    /// A name up to what cannot be in one. What the compiler made begins with a name in angle brackets.
    fn name(&mut self) -> Option<&'a str> {
        let end = path::name_length(self.rest)?;
        let (name, behind) = self.rest.split_at(end);
        self.rest = behind;
        (!name.is_empty()).then_some(name)
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, behind) = self.rest.split_at(digits);
        self.rest = behind;
        number.parse().ok()
    }

    fn at_dimensions(&self) -> bool {
        self.rest.starts_with("[]") || self.rest.starts_with("[,")
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(behind) => {
                self.rest = behind;
                true
            }
            None => false,
        }
    }

    fn take_char(&mut self, character: char) -> bool {
        self.take(character.encode_utf8(&mut [0; 4]))
    }
}

fn spell(name: &str, arguments: &[String]) -> Option<String> {
    match (name, arguments) {
        ("System.Nullable`1", [value]) => Some(format!("{value}?")),
        (_, [_, _, ..]) if is_tuple(name, arguments.len()) => Some(format!("({})", arguments.join(","))),
        (_, []) => keyword(name).map(str::to_owned).or_else(|| path::short_type(name, &[])),
        _ => path::short_type(name, arguments),
    }
}

/// A tuple of so many values. Eight and more are a tuple in a tuple.
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

fn unsigned(name: &str) -> Option<&'static str> {
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
    fn types_read_as_in_a_program() {
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
    fn a_list_of_another_shape_is_none() {
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
    fn types_in_types_without_end_are_none() {
        let nested = |depth| format!("{}int32{})", "A.B`1<".repeat(depth), ">".repeat(depth));
        assert!(list(&nested(20)).is_some());
        assert_eq!(list(&nested(2_000)), None);
        assert_eq!(list(&format!("int32{})", "&*".repeat(20_000))), None);
        let parameters = ["x".repeat(8_000)];
        let mut reader = TypeReader::new("!0,!0,!0,!0,!0,!0,!0,!0,!0,!0)", &parameters);
        assert_eq!(reader.list(')'), None, "what parameters stand for is counted");
    }
}
