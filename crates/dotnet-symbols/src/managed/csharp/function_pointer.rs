//! Converts function pointers to C# spelling: `delegate* unmanaged[Cdecl]<int,void>`.
//!
//! Events state the convention `unmanaged` without a kind as they do the managed one, by no word. So neither source
//! distinguishes the two: one function must have one name.

/// A custom modifier of a type (ECMA-335 II.23.2.7).
pub(super) struct TypeModifier {
    pub(super) name: String,
    pub(super) is_required: bool,
}

/// The calling convention of a function pointer, and the modifiers of its result.
#[derive(Default)]
pub(super) struct FunctionPointer {
    convention: Option<&'static str>,
    modifiers: Vec<TypeModifier>,
}

/// Conventions as the runtime writes them (utilcode/prettyprintsig.cpp, utilcode/prettyprintsig of perf maps), and as C#
/// does. Those without a C# spelling are omitted.
const CONVENTIONS: [(&str, Option<&str>); 11] = [
    ("instance ", None),
    ("explicit ", None),
    ("generic ", None),
    ("unmanaged cdecl ", Some("Cdecl")),
    ("unmanaged stdcall ", Some("Stdcall")),
    ("unmanaged thiscall ", Some("Thiscall")),
    ("unmanaged fastcall ", Some("Fastcall")),
    ("unmanaged ", None),
    ("native vararg ", None),
    ("vararg ", None),
    ("default ", None),
];

impl FunctionPointer {
    pub(super) fn managed(modifiers: Vec<TypeModifier>) -> Self {
        Self { convention: None, modifiers }
    }

    /// Removes the convention from the front of a text.
    pub(super) fn parse_convention(text: &mut &str) -> Self {
        let mut found = Self::default();
        for (written, convention) in CONVENTIONS {
            if let Some(rest) = text.strip_prefix(written) {
                *text = rest;
                found.convention = found.convention.or(convention);
            }
        }
        found
    }

    pub(super) fn with_modifiers(self, modifiers: Vec<TypeModifier>) -> Self {
        Self { modifiers, ..self }
    }

    /// The function pointer with these arguments and this result.
    pub(super) fn convert(&self, mut types: Vec<String>, result: String) -> String {
        let kinds: Vec<_> = self.convention.into_iter().chain(self.convention_modifiers()).collect();
        let convention =
            if kinds.is_empty() { String::new() } else { format!(" unmanaged[{}]", kinds.join(",")) };
        types.push(self.convert_result(result));
        format!("delegate*{convention}<{}>", types.join(","))
    }

    /// The kinds of conventions that the modifiers `CallConvCdecl` and so on state.
    fn convention_modifiers(&self) -> impl Iterator<Item = &str> {
        let names =
            self.modifiers.iter().map(|modifier| modifier.name.rsplit('.').next().unwrap_or_default());
        names.filter_map(|name| name.strip_prefix("CallConv"))
    }

    fn convert_result(&self, result: String) -> String {
        let is_read_only = self
            .modifiers
            .iter()
            .any(|one| one.is_required && one.name.ends_with("InteropServices.InAttribute"));
        match result.strip_prefix("ref ") {
            Some(referred) if is_read_only => format!("ref readonly {referred}"),
            _ => result,
        }
    }
}
