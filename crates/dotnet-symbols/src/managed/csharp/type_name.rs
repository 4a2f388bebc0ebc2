//! Parses lists of types and converts them to C# spelling.
//!
//! The runtime has two spellings: ``value class System.Span`1<unsigned int8>&`` in argument lists
//! (utilcode/prettyprintsig.cpp), and ``System.Span`1[System.Byte]`` in the type arguments of generic types
//! (vm/typestring.cpp). One parser reads both, because no text has different meanings in the two.
//!
//! A type that the parser does not understand stays as written, and the others of its list are converted.

use super::{
    function_pointer::{FunctionPointer, TypeModifier},
    method_path,
};

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
    /// Whether a limit was exceeded. Then nothing of the text is converted.
    is_exhausted: bool,
}

/// A type in C# spelling, with its modifiers.
struct ConvertedType {
    text: String,
    modifiers: Vec<TypeModifier>,
}

impl<'a> TypeReader<'a> {
    pub(super) fn new(text: &'a str, type_arguments: &'a [String]) -> Self {
        Self { rest: text, type_arguments, writable_bytes: MAX_WRITTEN_BYTES, is_exhausted: false }
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
            types.push(self.parse_or_copy_type(close, depth)?);
            if self.take_char(close) {
                return Some(types);
            }
            self.take(",").then_some(())?;
            // Lists of function pointers in type arguments have a space.
            let _ = self.take(" ");
        }
    }

    /// Parses a type that a comma or the end of the list follows, or else copies the text up to there.
    fn parse_or_copy_type(&mut self, close: char, depth: u32) -> Option<String> {
        let start = self.rest;
        let parsed = self.parse_type(depth).filter(|_| self.rest.starts_with([',', close]));
        if parsed.is_some() || self.is_exhausted {
            return parsed.map(|parsed| parsed.in_parameter());
        }
        let (unknown, after) = start.split_at(method_path::element_length(start)?);
        self.rest = after;
        self.spend(unknown.len())?;
        (!unknown.is_empty()).then(|| unknown.to_owned())
    }

    /// Parses a type. The list in parentheses that can follow it is that of a function pointer (vm/typestring.cpp).
    fn parse_type(&mut self, depth: u32) -> Option<ConvertedType> {
        let mut converted = self.parse_without_list(depth)?;
        while self.take("(") {
            let function = FunctionPointer::managed(converted.modifiers);
            let depth = self.deeper(depth)?;
            let arguments = self.parse_list(')', depth)?;
            let text = function.convert(arguments, converted.text);
            converted = self.parse_suffixes(ConvertedType { text, modifiers: Vec::new() })?;
        }
        Some(converted)
    }

    fn parse_without_list(&mut self, depth: u32) -> Option<ConvertedType> {
        let depth = self.deeper(depth)?;
        for (prefix, is_required) in [("required_modifier ", true), ("optional_modifier ", false)] {
            if self.take(prefix) {
                let _ = self.take("value class ") || self.take("class ");
                let modifier = TypeModifier { name: self.parse_name()?.to_owned(), is_required };
                self.take(" ").then_some(())?;
                let mut modified = self.parse_without_list(depth)?;
                modified.modifiers.insert(0, modifier);
                return Some(modified);
            }
        }
        let text = if self.take("fnptr ") {
            self.parse_function_pointer("(", depth)?
        } else if self.take("method ") {
            self.parse_function_pointer(" *(", depth)?
        } else {
            self.parse_element(depth)?
        };
        self.parse_suffixes(ConvertedType { text, modifiers: Vec::new() })
    }

    fn parse_suffixes(&mut self, mut converted: ConvertedType) -> Option<ConvertedType> {
        loop {
            if self.take("&") {
                converted = converted.with_modifiers_in_text();
                converted.text = format!("ref {}", converted.text.trim_start_matches("ref "));
            } else if self.take("*") {
                converted = converted.with_modifiers_in_text();
                converted.text.push('*');
            } else if self.is_at_dimensions() {
                converted = converted.with_modifiers_in_text();
                let (dimensions, after) = self.rest.split_at(self.rest.find(']')? + 1);
                converted.text.extend(dimensions.chars().filter(|c| matches!(c, '[' | ',' | ']')));
                self.rest = after;
            } else if self.take(" pinned") {
                // Variables alone are pinned.
            } else if self.rest.starts_with(" modreq(") || self.rest.starts_with(" modopt(") {
                let is_required = self.rest.starts_with(" modreq(");
                let (modifier, after) = self.rest[" modreq(".len()..].split_once(')')?;
                self.rest = after;
                converted.modifiers.insert(0, TypeModifier { name: modifier.to_owned(), is_required });
            } else {
                self.spend(converted.text.len())?;
                return Some(converted);
            }
            self.spend(converted.text.len())?;
        }
    }

    /// Parses `unmanaged cdecl int32(bool)` as in events, or `unmanaged cdecl int32 *(bool)` as in perf maps.
    fn parse_function_pointer(&mut self, open: &str, depth: u32) -> Option<String> {
        let convention = FunctionPointer::parse_convention(&mut self.rest);
        let result = self.parse_without_list(depth)?;
        self.take(open).then_some(())?;
        let function = convention.with_modifiers(result.modifiers);
        let arguments = self.parse_list(')', depth)?;
        Some(function.convert(arguments, result.text))
    }

    /// Parses a type without its suffixes: `&`, `*`, array dimensions, modifiers.
    fn parse_element(&mut self, depth: u32) -> Option<String> {
        // A type in its native layout, and a type specification in place of a class.
        let _ = self.take("native ");
        while self.take("value class ") || self.take("class ") {}
        if self.rest.starts_with("[module#") {
            let (_, after) = self.rest.split_once(']')?;
            self.rest = after;
            return Some("?".to_owned());
        }
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

    fn deeper(&mut self, depth: u32) -> Option<u32> {
        self.is_exhausted |= depth == 0;
        depth.checked_sub(1)
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.is_exhausted |= bytes > self.writable_bytes;
        self.writable_bytes = self.writable_bytes.checked_sub(bytes)?;
        Some(())
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

    /// Whether the dimensions of an array follow: `[,]`, `[*]`, or with bounds `[1...5,0...]`.
    fn is_at_dimensions(&self) -> bool {
        let Some((dimensions, _)) = self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            return false;
        };
        dimensions.bytes().all(|byte| byte.is_ascii_digit() || b",.-*?".contains(&byte))
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

impl ConvertedType {
    fn with_modifiers_in_text(mut self) -> Self {
        // A modifier of an element says nothing about the parameter.
        self.modifiers.clear();
        self
    }

    /// The text of a parameter: `in`, `out` and `ref readonly` references have modifiers.
    fn in_parameter(self) -> String {
        let is_marked = |name| self.modifiers.iter().any(|one| one.is_required && one.name.ends_with(name));
        match self.text.strip_prefix("ref ") {
            Some(referred) if is_marked("InteropServices.InAttribute") => format!("in {referred}"),
            Some(referred) if is_marked("InteropServices.OutAttribute") => format!("out {referred}"),
            _ => self.text,
        }
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
        "refany" | "typedref" | "System.TypedReference" => "TypedReference",
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
            ("method unmanaged cdecl void *()*)", "delegate* unmanaged[Cdecl]<void>*"),
            ("value class ?,...)", "? ..."),
            (
                "System.Func`2<int32,System.String>,Interop+Sys+SocketEvents)",
                "Func<int,string> Interop.Sys.SocketEvents",
            ),
        ] {
            assert_eq!(list(written).as_deref(), Some(expected), "{written}");
        }
    }

    /// Every element of signatures (ECMA-335 II.23.2.12 and II.23.2.7 to II.23.2.14), as events, perf maps and lists of type
    /// arguments have it. .NET 9 prints all but those without a C# spelling so.
    #[test]
    fn every_element_of_signatures_is_converted() {
        const IN: &str = "System.Runtime.InteropServices.InAttribute";
        let modified = |text: &str| text.replace("IN", IN);
        for (event, perf_map, expected) in [
            ("required_modifier IN value class Pt&", "value class Pt& modreq(IN)", "in Pt"),
            ("required_modifier IN int32&", "int32& modreq(IN)", "in int"),
            (
                "required_modifier IN value class A`1<int32>&",
                "value class A`1<int32>& modreq(IN)",
                "in A<int>",
            ),
            (
                "required_modifier System.Runtime.InteropServices.OutAttribute class System.String&",
                "class System.String& modreq(System.Runtime.InteropServices.OutAttribute)",
                "out string",
            ),
            ("required_modifier A.IsVolatile int32", "int32 modreq(A.IsVolatile)", "int"),
            ("optional_modifier A.IsLong int32*", "int32 modopt(A.IsLong)*", "int*"),
            ("optional_modifier class A.B`1 int32", "int32 modopt(A.B`1)", "int"),
            ("fnptr void(!0,!1)", "method void *(!0,!1)", "delegate*<__Canon,int,void>"),
            ("fnptr void()*", "method void *()*", "delegate*<void>*"),
            ("fnptr int32()[]", "method int32 *()[]", "delegate*<int>[]"),
            (
                "fnptr class System.String(fnptr int32())",
                "method class System.String *(method int32 *())",
                "delegate*<delegate*<int>,string>",
            ),
            (
                "fnptr fnptr int32(bool)()",
                "method method int32 *(bool) *()",
                "delegate*<delegate*<bool,int>>",
            ),
            (
                "fnptr unmanaged cdecl void(int32)",
                "method unmanaged cdecl void *(int32)",
                "delegate* unmanaged[Cdecl]<int,void>",
            ),
            (
                "fnptr unmanaged fastcall void()",
                "method unmanaged fastcall void *()",
                "delegate* unmanaged[Fastcall]<void>",
            ),
            (
                "fnptr optional_modifier N.CallConvCdecl optional_modifier N.CallConvSuppressGCTransition int32()",
                "method unmanaged int32 modopt(N.CallConvSuppressGCTransition) modopt(N.CallConvCdecl) *()",
                "delegate* unmanaged[Cdecl,SuppressGCTransition]<int>",
            ),
            (
                "fnptr required_modifier IN int32&(int32&,required_modifier IN int32&)",
                "method int32& modreq(IN) *(int32&,int32& modreq(IN))",
                "delegate*<ref int,in int,ref readonly int>",
            ),
            ("fnptr instance void()", "method instance void *()", "delegate*<void>"),
            ("fnptr vararg void(int32,...)", "method vararg void *(int32,...)", "delegate*<int,...,void>"),
            ("System.Void(System.Int32, System.String)[]", "System.Void()", "delegate*<int,string,void>[]"),
            ("refany", "typedref", "TypedReference"),
            ("int32[,]", "int32[0...,1...7]", "int[,]"),
            ("int32[1...5,]", "int32[*]", "int[,]"),
            ("int32[,][]", "int32[0...,0...][]", "int[,][]"),
            ("value class A.B pinned", "A.B", "B"),
            ("native value class A.B", "A.B", "B"),
            ("[module#3, token#02000004]", "[module#3, token#02000004]&", "?"),
            ("class class A.B`1<int32>", "class A.B`1<int32>", "B<int>"),
            ("class <UNKNOWN>", "class <UNKNOWN>", "<UNKNOWN>"),
        ] {
            let event = format!("int64,{},int64)", modified(event));
            assert_eq!(list(&event), Some(format!("long {expected} long")), "{event}");
            let perf_map = modified(perf_map);
            assert!(list(&format!("{perf_map})")).is_some_and(|found| found != perf_map), "{perf_map}");
            if perf_map.contains(" modreq(") || perf_map.starts_with("method ") {
                assert_eq!(list(&format!("{perf_map})")).as_deref(), Some(expected), "{perf_map}");
            }
        }
    }

    #[test]
    fn an_unknown_type_stays_as_written_among_others() {
        for (written, expected) in [
            ("a b)", "a b"),
            ("int32,!x,int64)", "int !x long"),
            ("unsigned A,class B`1<!y>)", "unsigned A B<!y>"),
            ("fnptr <error> void(int32,bool),int32)", "fnptr <error> void(int32,bool) int"),
            ("class A.B<int32,x y>[])", "B<int,x y>[]"),
        ] {
            assert_eq!(list(written).as_deref(), Some(expected), "{written}");
        }
    }

    #[test]
    fn a_list_of_another_shape_is_not_converted() {
        for written in ["", "int32", "int32,)", "int32))", "int32]", ",)", "A<int32)", "a (b)", "x<y)"] {
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
