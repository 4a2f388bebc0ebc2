//! Converts types from the order of perf maps to that of the runtime's events.
//!
//! Both print the same signature (ECMA-335 II.23.2.12). Perf maps have custom modifiers and the mark of function pointers
//! behind their type, as ILAsm does: `int32& modreq(A.B)`, `method void *(bool)`. Events have them in front:
//! `required_modifier A.B int32&`, `fnptr void(bool)`.

use super::csharp::name_length;

/// Levels of types within types. Compilers emit at most a dozen.
const MAX_DEPTH: u32 = 32;

/// The longest argument list that is converted: each modifier copies the type before it.
const MAX_LIST_BYTES: usize = 8 << 10;

/// Calling conventions as perf maps write them, and as events do, which have no word for `unmanaged` alone.
const CONVENTIONS: [(&str, &str); 10] = [
    ("instance ", "instance "),
    ("explicit ", ""),
    ("default ", ""),
    ("unmanaged cdecl ", "unmanaged cdecl "),
    ("unmanaged stdcall ", "unmanaged stdcall "),
    ("unmanaged thiscall ", "unmanaged thiscall "),
    ("unmanaged fastcall ", "unmanaged fastcall "),
    ("unmanaged ", ""),
    ("native vararg ", "native vararg "),
    ("vararg ", "vararg "),
];

/// Converts an argument list with its parentheses; `None` if it is not one, or has nothing to convert.
pub(super) fn in_event_order(arguments: &str) -> Option<String> {
    let is_affected = ["method ", " modreq(", " modopt("].iter().any(|mark| arguments.contains(mark));
    if !is_affected || arguments.len() > MAX_LIST_BYTES {
        return None;
    }
    let mut types = Types { rest: arguments.strip_prefix('(')? };
    let list = types.list(')', MAX_DEPTH)?;
    types.rest.is_empty().then(|| format!("({list})"))
}

/// Types at the front of a text.
struct Types<'a> {
    rest: &'a str,
}

impl<'a> Types<'a> {
    /// Converts the types up to the closing bracket of their list.
    fn list(&mut self, close: char, depth: u32) -> Option<String> {
        let mut list = String::new();
        while !self.rest.starts_with(close) {
            if !list.is_empty() {
                self.take(",").then_some(())?;
                list.push(',');
            }
            list.push_str(&self.one(depth)?);
        }
        self.rest = &self.rest[close.len_utf8()..];
        Some(list)
    }

    fn one(&mut self, depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let mut converted =
            if self.take("method ") { self.function_pointer(depth)? } else { self.element(depth)? };
        loop {
            if let Some(suffix) = ["&", "*"].into_iter().find(|suffix| self.take(suffix)) {
                converted.push_str(suffix);
            } else if self.rest.starts_with("[]") || self.rest.starts_with("[,") {
                converted.push_str(self.until(']')?);
            } else if self.take(" modreq(") {
                converted = format!("required_modifier {} {converted}", self.before(')')?);
            } else if self.take(" modopt(") {
                converted = format!("optional_modifier {} {converted}", self.before(')')?);
            } else {
                return (!converted.is_empty()).then_some(converted);
            }
        }
    }

    fn function_pointer(&mut self, depth: u32) -> Option<String> {
        let mut converted = "fnptr ".to_owned();
        for (written, in_event) in CONVENTIONS {
            if self.take(written) {
                converted.push_str(in_event);
            }
        }
        converted.push_str(&self.one(depth)?);
        self.take(" *(").then_some(())?;
        Some(format!("{converted}({})", self.list(')', depth)?))
    }

    /// A type without its suffixes.
    fn element(&mut self, depth: u32) -> Option<String> {
        let mut converted = String::new();
        for prefix in ["value class ", "class ", "unsigned "] {
            if self.take(prefix) {
                converted.push_str(prefix);
            }
        }
        let (name, after) = self.rest.split_at(name_length(self.rest)?);
        self.rest = after;
        converted.push_str(name);
        if self.take("<") {
            return Some(format!("{converted}<{}>", self.list('>', depth)?));
        }
        let has_list =
            self.rest.starts_with('[') && !self.rest.starts_with("[]") && !self.rest.starts_with("[,");
        if has_list && self.take("[") {
            return Some(format!("{converted}[{}]", self.list(']', depth)?));
        }
        Some(converted)
    }

    fn take(&mut self, text: &str) -> bool {
        let after = self.rest.strip_prefix(text);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// The text up to a character, which is included.
    fn until(&mut self, last: char) -> Option<&'a str> {
        let (text, after) = self.rest.split_at(self.rest.find(last)? + last.len_utf8());
        self.rest = after;
        Some(text)
    }

    /// The text before a character, which is skipped.
    fn before(&mut self, last: char) -> Option<&'a str> {
        self.until(last)?.strip_suffix(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_and_function_pointers_are_in_the_order_of_events() {
        for (perf_map, event) in [
            ("(value class Pt& modreq(A.In),int32)", "(required_modifier A.In value class Pt&,int32)"),
            (
                "(value class Span`1<int32>& modreq(A.In))",
                "(required_modifier A.In value class Span`1<int32>&)",
            ),
            ("(int32 modopt(A.Long)*)", "(optional_modifier A.Long int32*)"),
            ("(method void *(!0,!1),int32)", "(fnptr void(!0,!1),int32)"),
            (
                "(method unmanaged cdecl void *(int32)*,class System.String)",
                "(fnptr unmanaged cdecl void(int32)*,class System.String)",
            ),
            (
                "(method unmanaged void *(int32,unsigned int8*)*,method class S *(method int32 *()))",
                "(fnptr void(int32,unsigned int8*)*,fnptr class S(fnptr int32()))",
            ),
            (
                "(method unmanaged int32 modopt(A.Suppress) modopt(A.Cdecl) *())",
                "(fnptr optional_modifier A.Cdecl optional_modifier A.Suppress int32())",
            ),
            ("(A`1[B[],C[,]]& modreq(A.In))", "(required_modifier A.In A`1[B[],C[,]]&)"),
            ("(method int32 *()[])", "(fnptr int32()[])"),
        ] {
            assert_eq!(in_event_order(perf_map).as_deref(), Some(event), "{perf_map}");
        }
    }

    #[test]
    fn lists_of_another_shape_and_those_without_a_difference_are_not_converted() {
        for list in [
            "(int32)",
            "",
            "(method ",
            "(method void *)",
            "(int32 modreq(A)",
            "(, modreq(A))",
            "(method (A))",
        ] {
            assert_eq!(in_event_order(list), None, "{list}");
        }
        let nested = |count| format!("({}void{})", "method ".repeat(count), " *()".repeat(count));
        assert!(in_event_order(&nested(20)).is_some());
        assert_eq!(in_event_order(&nested(500)), None);
        assert_eq!(in_event_order(&format!("(int32{})", " modreq(A)".repeat(1_000))), None);
    }
}
