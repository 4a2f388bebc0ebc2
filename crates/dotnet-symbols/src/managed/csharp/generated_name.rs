//! Decodes names that C# compilers generate: state machines, closures, lambdas, local functions.
//!
//! Roslyn: src/Compilers/CSharp/Portable/Symbols/Synthesized/GeneratedNameKind.cs. Mono's mcs: `c__async0`,
//! `c__Iterator0`, `c__AnonStorey0`, `m__0`. Both begin with the name of the owner in angle brackets.

use super::method_path::bracket_length;

/// Levels of functions within functions.
const MAX_DEPTH: u32 = 8;

/// A compiler-generated name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GeneratedName {
    /// The type with the state of an asynchronous method or an iterator: the name of the method.
    StateMachine(String),
    /// The type with the captured variables of lambdas: the name of the method, if the generated name has it.
    Closure(Option<String>),
    /// A lambda or a local function. The enclosing type has the name of the outer method if `outer` is `None`.
    NestedFunction { outer: Option<String>, name: String },
    /// A decorated name of the source.
    Decorated(String),
}

/// Decodes a generated name. `None` is a name from the source, or of an unknown kind.
pub(super) fn decode(name: &str) -> Option<GeneratedName> {
    decode_nested(name, MAX_DEPTH)
}

fn decode_nested(name: &str, depth: u32) -> Option<GeneratedName> {
    let depth = depth.checked_sub(1)?;
    let (brackets, kind) = name.split_at(bracket_length(name)?);
    let owner = brackets.strip_prefix('<')?.strip_suffix('>')?;
    let owner = (!owner.is_empty()).then(|| source_name(owner, depth));
    if is_state_machine(kind) {
        return owner.map(GeneratedName::StateMachine);
    }
    if is_closure(kind) {
        return Some(GeneratedName::Closure(owner));
    }
    if let Some(number) = kind.strip_prefix("b__") {
        return Some(lambda(owner, number));
    }
    if let Some(number) = kind.strip_prefix("m__") {
        // The `finally` of an iterator is a method of its state machine.
        let is_finally = number.starts_with("Finally");
        return Some(if is_finally {
            GeneratedName::Decorated(number.to_owned())
        } else {
            lambda(owner, number)
        });
    }
    if let Some(local) = kind.strip_prefix("g__") {
        let name = local.split('|').next().unwrap_or(local);
        return Some(GeneratedName::NestedFunction { outer: owner, name: name.to_owned() });
    }
    let decorated = match owner {
        Some(owner) if kind == "$" => owner,
        Some(_) => file_local_name(kind)?.to_owned(),
        // `<>f__AnonymousType0`, and `<>z__ReadOnlyArray` for `[a, b]`.
        None => kind.strip_prefix("f__").or_else(|| kind.strip_prefix("z__"))?.to_owned(),
    };
    Some(GeneratedName::Decorated(decorated))
}

/// The source name of an owner, which may be a generated name itself.
fn source_name(name: &str, depth: u32) -> String {
    match decode_nested(name, depth) {
        Some(GeneratedName::StateMachine(owner) | GeneratedName::Decorated(owner)) => owner,
        Some(GeneratedName::NestedFunction { outer: Some(outer), name }) => format!("{outer}.{name}"),
        Some(GeneratedName::NestedFunction { outer: None, name }) => name,
        // The compiler replaces the dots in the name of an interface.
        Some(GeneratedName::Closure(_)) | None => name.replace('-', "."),
    }
}

fn lambda(outer: Option<String>, number: &str) -> GeneratedName {
    GeneratedName::NestedFunction { outer, name: format!("AnonymousMethod__{number}") }
}

fn is_state_machine(kind: &str) -> bool {
    kind == "d" || is_numbered(kind, &["d__", "c__async", "c__Iterator"])
}

fn is_closure(kind: &str) -> bool {
    kind == "c" || is_numbered(kind, &["c__DisplayClass", "c__AnonStorey", "c__"])
}

fn is_numbered(kind: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| kind.strip_prefix(prefix).is_some_and(is_number))
}

/// The name of a file-local type, from `F`, a hash and the name.
fn file_local_name(kind: &str) -> Option<&str> {
    let (hash, name) = kind.strip_prefix('F')?.split_once("__")?;
    (is_number(hash) && !name.is_empty()).then_some(name)
}

/// Whether the text is a number as compilers write it, hexadecimal digits included.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_' || byte == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(outer: &str, name: &str) -> Option<GeneratedName> {
        let outer = (!outer.is_empty()).then(|| outer.to_owned());
        Some(GeneratedName::NestedFunction { outer, name: name.to_owned() })
    }

    #[test]
    fn a_state_machine_is_decoded_to_its_method() {
        for (name, method) in [
            ("<PlaceAsync>d__7", "PlaceAsync"),
            ("<<Main>$>d__0", "Main"),
            ("<<Main>b__0_1>d", "Main.AnonymousMethod__0_1"),
            ("<<AcceptAsync>g__WaitAndWrap|32_0>d", "AcceptAsync.WaitAndWrap"),
            ("<<<Main>$>b__0_2>d", "Main.AnonymousMethod__0_2"),
            (
                "<System-Collections-Generic-IEnumerable<System-Int32>-GetEnumerator>d__4",
                "System.Collections.Generic.IEnumerable<System.Int32>.GetEnumerator",
            ),
            ("<ReadHead>c__async0", "ReadHead"),
            ("<Items>c__IteratorA", "Items"),
        ] {
            assert_eq!(decode(name), Some(GeneratedName::StateMachine(method.to_owned())), "{name}");
        }
    }

    #[test]
    fn a_nested_function_is_decoded_to_its_outer_method_and_name() {
        for (name, expected) in [
            ("<Main>b__0_1", nested("Main", "AnonymousMethod__0_1")),
            ("<.ctor>b__1_0", nested(".ctor", "AnonymousMethod__1_0")),
            ("<<Main>b__0_1>b__3", nested("Main.AnonymousMethod__0_1", "AnonymousMethod__3")),
            ("<Run>m__0", nested("Run", "AnonymousMethod__0")),
            ("<>m__A", nested("", "AnonymousMethod__A")),
            ("<Outer>g__Inner|3_0", nested("Outer", "Inner")),
            ("<<Main>$>g__Parse|0_0", nested("Main", "Parse")),
        ] {
            assert_eq!(decode(name), expected, "{name}");
        }
    }

    #[test]
    fn closures_and_decorated_names_are_decoded() {
        for name in ["<>c", "<>c__3", "<>c__DisplayClass5_0", "<>c__DisplayClass5_0#1"] {
            assert_eq!(decode(name), Some(GeneratedName::Closure(None)), "{name}");
        }
        assert_eq!(decode("<Main>c__AnonStorey0"), Some(GeneratedName::Closure(Some("Main".to_owned()))));
        for (name, decorated) in [
            ("<Main>$", "Main"),
            ("<>m__Finally1", "Finally1"),
            ("<>f__AnonymousType0", "AnonymousType0"),
            ("<>z__ReadOnlyArray", "ReadOnlyArray"),
            ("<RegexGenerator_g>F2E24F9__WordRegex_0", "WordRegex_0"),
        ] {
            assert_eq!(decode(name), Some(GeneratedName::Decorated(decorated.to_owned())), "{name}");
        }
    }

    #[test]
    fn names_of_other_kinds_are_not_decoded() {
        for name in [
            "",
            "Main",
            "<Module>",
            "<PrivateImplementationDetails>",
            "<>n__0",
            "<>O",
            "<",
            "<a",
            "<>",
            "<>d__1",
            "<A>F__B",
            "<A>Fxyz__B",
            "<A>d__x",
            "<A>k__BackingField",
            "<\u{e9}>\u{e9}",
        ] {
            assert_eq!(decode(name), None, "{name:?}");
        }
        let deep = format!("{}a{}", "<".repeat(1_000), ">d__0".repeat(1_000));
        assert!(
            matches!(decode(&deep), Some(GeneratedName::StateMachine(_))),
            "names below the depth limit stay unchanged"
        );
    }
}
