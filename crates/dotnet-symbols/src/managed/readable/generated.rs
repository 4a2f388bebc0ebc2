//! Names that C# compilers make up, for what has none in the source.
//!
//! Roslyn's: src/Compilers/CSharp/Portable/Symbols/Synthesized/GeneratedNameKind.cs. Mono's mcs: `c__async0`,
//! `c__Iterator0`, `c__AnonStorey0`, `m__0`. Both put what it belongs to into angle brackets before it.

use super::path::bracket_length;

/// Functions inside of functions.
const MAX_DEPTH: u32 = 8;

/// What a name was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Generated {
    /// Where an asynchronous method or an iterator is kept while it waits: a type. With the method.
    StateMachine(String),
    /// The variables that lambdas share: a type. With the method, where the name has it.
    Closure(Option<String>),
    /// A function inside of another, which is named unless the type around has its name.
    Inner { of: Option<String>, name: String },
    /// Something whose name was only decorated.
    Decorated(String),
}

/// What a name was made for; `None` for one that a programmer chose, and for what is not known.
pub(super) fn generated(name: &str) -> Option<Generated> {
    within(name, MAX_DEPTH)
}

fn within(name: &str, depth: u32) -> Option<Generated> {
    let depth = depth.checked_sub(1)?;
    let (brackets, kind) = name.split_at(bracket_length(name)?);
    let of = brackets.strip_prefix('<')?.strip_suffix('>')?;
    let owner = (!of.is_empty()).then(|| source_name(of, depth));
    if is_state_machine(kind) {
        return owner.map(Generated::StateMachine);
    }
    if is_closure(kind) {
        return Some(Generated::Closure(owner));
    }
    if let Some(number) = kind.strip_prefix("b__") {
        return Some(lambda(owner, number));
    }
    if let Some(number) = kind.strip_prefix("m__") {
        // The `finally` of an iterator is a method of its state machine.
        let is_finally = number.starts_with("Finally");
        return Some(if is_finally {
            Generated::Decorated(number.to_owned())
        } else {
            lambda(owner, number)
        });
    }
    if let Some(local) = kind.strip_prefix("g__") {
        let name = local.split('|').next().unwrap_or(local);
        return Some(Generated::Inner { of: owner, name: name.to_owned() });
    }
    let decorated = match owner {
        Some(owner) if kind == "$" => owner,
        Some(_) => of_file(kind)?.to_owned(),
        // `<>f__AnonymousType0`, and `<>z__ReadOnlyArray` for `[a, b]`.
        None => kind.strip_prefix("f__").or_else(|| kind.strip_prefix("z__"))?.to_owned(),
    };
    Some(Generated::Decorated(decorated))
}

/// What the name in the brackets is in the source. Functions in functions have names of the same kind there.
fn source_name(name: &str, depth: u32) -> String {
    match within(name, depth) {
        Some(Generated::StateMachine(of) | Generated::Decorated(of)) => of,
        Some(Generated::Inner { of: Some(of), name }) => format!("{of}.{name}"),
        Some(Generated::Inner { of: None, name }) => name,
        // Dots of an interface's name would part the name of a type.
        Some(Generated::Closure(_)) | None => name.replace('-', "."),
    }
}

fn lambda(of: Option<String>, number: &str) -> Generated {
    Generated::Inner { of, name: format!("AnonymousMethod__{number}") }
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

/// The name of a type that only one file sees: `F`, a hash, the name.
fn of_file(kind: &str) -> Option<&str> {
    let (hash, name) = kind.strip_prefix('F')?.split_once("__")?;
    (is_number(hash) && !name.is_empty()).then_some(name)
}

/// Digits as compilers number with, hexadecimal ones among them.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_' || byte == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(of: &str, name: &str) -> Option<Generated> {
        Some(Generated::Inner { of: (!of.is_empty()).then(|| of.to_owned()), name: name.to_owned() })
    }

    #[test]
    fn state_machines_are_their_methods() {
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
            assert_eq!(generated(name), Some(Generated::StateMachine(method.to_owned())), "{name}");
        }
    }

    #[test]
    fn functions_in_functions_are_named_by_both() {
        for (name, expected) in [
            ("<Main>b__0_1", inner("Main", "AnonymousMethod__0_1")),
            ("<.ctor>b__1_0", inner(".ctor", "AnonymousMethod__1_0")),
            ("<<Main>b__0_1>b__3", inner("Main.AnonymousMethod__0_1", "AnonymousMethod__3")),
            ("<Run>m__0", inner("Run", "AnonymousMethod__0")),
            ("<>m__A", inner("", "AnonymousMethod__A")),
            ("<Outer>g__Inner|3_0", inner("Outer", "Inner")),
            ("<<Main>$>g__Parse|0_0", inner("Main", "Parse")),
        ] {
            assert_eq!(generated(name), expected, "{name}");
        }
    }

    #[test]
    fn closures_and_decorated_names_are_recognised() {
        for name in ["<>c", "<>c__3", "<>c__DisplayClass5_0", "<>c__DisplayClass5_0#1"] {
            assert_eq!(generated(name), Some(Generated::Closure(None)), "{name}");
        }
        assert_eq!(generated("<Main>c__AnonStorey0"), Some(Generated::Closure(Some("Main".to_owned()))));
        for (name, decorated) in [
            ("<Main>$", "Main"),
            ("<>m__Finally1", "Finally1"),
            ("<>f__AnonymousType0", "AnonymousType0"),
            ("<>z__ReadOnlyArray", "ReadOnlyArray"),
            ("<RegexGenerator_g>F2E24F9__WordRegex_0", "WordRegex_0"),
        ] {
            assert_eq!(generated(name), Some(Generated::Decorated(decorated.to_owned())), "{name}");
        }
    }

    #[test]
    fn other_names_are_nobodys() {
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
            assert_eq!(generated(name), None, "{name:?}");
        }
        let deep = format!("{}a{}", "<".repeat(1_000), ">d__0".repeat(1_000));
        assert!(matches!(generated(&deep), Some(Generated::StateMachine(_))), "inner names stay as they are");
    }
}
