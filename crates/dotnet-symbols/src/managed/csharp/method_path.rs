//! Parses the path of a method or type: namespace, enclosing types, type arguments, own name.
//!
//! ``Namespace.Outer`1+Inner`1[System.Int32,System.String].Method`` is `Namespace.Outer<int>.Inner<string>.Method`.

use super::{
    nesting::{SourceNameBuilder, split_nested_types},
    type_name::TypeReader,
};

/// The path of a method in C# spelling.
#[derive(Debug)]
pub(super) struct MethodPath {
    pub(super) name: String,
    /// The type arguments of the declaring type.
    pub(super) type_arguments: Vec<String>,
    /// Whether the method resumes an asynchronous method or an iterator. `name` is that of the resumed method.
    pub(super) is_resumption: bool,
}

impl MethodPath {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let (owner, type_arguments, method) = split_method(path)?;
        let (namespace, types) = split_namespace(owner);
        let mut name = SourceNameBuilder::for_method(namespace);
        split_nested_types(types, &type_arguments, true)?
            .into_iter()
            .for_each(|nested| name.add_type(nested));
        let is_resumption = name.add_method(method);
        Some(Self { name: name.finish(), type_arguments, is_resumption })
    }
}

/// Converts a type to C# spelling without its namespace.
pub(super) fn convert_type(name: &str, arguments: &[String]) -> Option<String> {
    let (namespace, types) = split_namespace(name);
    let mut converted = SourceNameBuilder::for_list();
    let is_qualified = !namespace.is_empty() || types.contains('+');
    split_nested_types(types, arguments, is_qualified)?
        .into_iter()
        .for_each(|nested| converted.add_type(nested));
    Some(converted.finish())
}

/// The length of the type name at the front of `text`. It ends at the first character that no type name has.
pub(in crate::managed) fn name_length(text: &str) -> Option<usize> {
    let mut length = 0;
    let mut begins = true;
    while let Some(next) = text[length..].chars().next() {
        if begins && next == '<' {
            length += bracket_length(&text[length..])?;
            begins = false;
            continue;
        }
        if matches!(next, '(' | ')' | '<' | '>' | '[' | ']' | ',' | '&' | '*' | ' ') {
            break;
        }
        begins = matches!(next, '.' | '+');
        length += next.len_utf8();
    }
    Some(length)
}

/// The length of the element at the front of a list: up to a comma or a closing bracket outside of brackets. `None` when
/// brackets do not match.
pub(super) fn element_length(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' => open.push(')'),
            '<' => open.push('>'),
            '[' => open.push(']'),
            ',' | ')' | '>' | ']' if open.is_empty() => return Some(at),
            ')' | '>' | ']' => (open.pop() == Some(c)).then_some(())?,
            _ => {}
        }
    }
    None
}

/// The length of the bracketed text (`<...>`) at the front of `text`, brackets included.
pub(super) fn bracket_length(text: &str) -> Option<usize> {
    if !text.starts_with('<') {
        return None;
    }
    let mut open = 0_usize;
    text.match_indices(['<', '>']).find_map(|(at, bracket)| {
        open = if bracket == "<" { open + 1 } else { open.checked_sub(1)? };
        (open == 0).then_some(at + 1)
    })
}

/// Splits a path into the declaring type, its type arguments, and the name of the method.
fn split_method(path: &str) -> Option<(&str, Vec<String>, &str)> {
    if let Some((open, _)) = outside_of_brackets(path).find(|(_, c)| *c == '[') {
        let mut reader = TypeReader::new(&path[open + 1..], &[]);
        let arguments = reader.list(']')?;
        return Some((&path[..open], arguments, reader.rest().strip_prefix('.')?));
    }
    let nested = outside_of_brackets(path).filter(|(_, c)| *c == '+').last();
    let mut dots = outside_of_brackets(path).filter(|(_, c)| *c == '.').map(|(at, _)| at);
    let dot = match nested {
        Some((plus, _)) => dots.find(|at| *at > plus)?,
        // `Type..ctor`
        None => dots.last().map(|at| if path[..at].ends_with('.') { at - 1 } else { at })?,
    };
    Some((&path[..dot], Vec::new(), &path[dot + 1..]))
}

/// Splits a name into the namespace and the chain of nested types.
fn split_namespace(name: &str) -> (&str, &str) {
    let before_nested = outside_of_brackets(name).take_while(|(_, c)| *c != '+');
    match before_nested.filter(|(_, c)| *c == '.').last() {
        Some((dot, _)) if dot + 1 < name.len() => (&name[..dot], &name[dot + 1..]),
        _ => ("", name),
    }
}

/// The characters outside of angle brackets, with their positions.
pub(super) fn outside_of_brackets(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut open = 0_usize;
    text.char_indices().filter(move |(_, c)| {
        match c {
            '<' => open += 1,
            '>' => open = open.saturating_sub(1),
            _ => return open == 0,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(String, bool)> {
        MethodPath::parse(path).map(|method| (method.name, method.is_resumption))
    }

    #[test]
    fn every_nested_type_has_its_own_arguments() {
        for (path, expected) in [
            ("Main", None),
            ("Program.Main", Some("Program.Main")),
            ("A.B..ctor", Some("A.B..ctor")),
            ("A.B+C..cctor", Some("A.B.C..cctor")),
            ("A.B`1+C`2[System.Int32,System.String,D.E+F].Run", Some("A.B<int>.C<string,E.F>.Run")),
            (
                "A.Dictionary`2+Entry[System.__Canon,System.Byte[]]..ctor",
                Some("A.Dictionary<__Canon,byte[]>.Entry..ctor"),
            ),
            ("A.Timer.B.IWorkItem.Execute", Some("A.Timer.B.IWorkItem.Execute")),
            ("A.B`1[C.D`2[System.Int32,E.F]].G.IH<T>.get_Current", Some("A.B<D<int,F>>.G.IH<T>.get_Current")),
            ("A.B.C.IEnumerable<System.Int32[]>.Get", Some("A.B.C.IEnumerable<int[]>.Get")),
            ("A.B.C.ID<System.Int32,D.E<T>>.Get", Some("A.B.C.ID<int,E<T>>.Get")),
            ("A.B.C.ID<System.Int32,D E>.Get", Some("A.B.C.ID<int,D E>.Get")),
            ("A.<File>F1a__B+Runner.Run", Some("A.B.Runner.Run")),
            ("<Module>.Main", Some("<Module>.Main")),
            ("A.B`2[System.Int32].C", None),
            ("A.B[System.Int32].C", Some("A.B<int>.C")),
            ("A.B`1.C", None),
            ("A.B`1[System.Int32]", None),
            ("A.B`1[System.Int32.C", None),
        ] {
            let found = parse(path);
            assert_eq!(found.as_ref().map(|(name, _)| name.as_str()), expected, "{path}");
            assert!(found.is_none_or(|(_, is_resumption)| !is_resumption), "{path}");
        }
    }

    #[test]
    fn a_resumed_state_machine_has_the_name_of_its_method() {
        for (path, expected) in [
            ("A.B+<PlaceAsync>d__7.MoveNext", "A.B.PlaceAsync"),
            ("A.B+<RunAsync>d__4`1[System.__Canon].MoveNext", "A.B.RunAsync<__Canon>"),
            ("A.B`1+<RunAsync>d__4`1[System.Int32,System.__Canon].MoveNext", "A.B<int>.RunAsync<__Canon>"),
            ("A.B`1+<Items>d__3[System.Int32].MoveNext", "A.B<int>.Items"),
            ("Program+<>c+<<<Main>$>b__0_2>d.MoveNext", "Program.Main.AnonymousMethod__0_2"),
            ("A+<>c__DisplayClass0_0`1+<<Run>b__0>d[System.Int32].MoveNext", "A.Run.AnonymousMethod__0<int>"),
            ("A+<Read>c__async0.MoveNext", "A.Read"),
        ] {
            assert_eq!(parse(path), Some((expected.to_owned(), true)), "{path}");
        }
        for (path, expected) in [
            ("A+<Items>d__3.System.IDisposable.Dispose", "A.Items.System.IDisposable.Dispose"),
            ("A+<Items>d__3.<>m__Finally1", "A.Items.Finally1"),
            ("A+Items.MoveNext", "A.Items.MoveNext"),
            ("A+<Items>d__3+B.MoveNext", "A.Items.B.MoveNext"),
        ] {
            assert_eq!(parse(path), Some((expected.to_owned(), false)), "{path}");
        }
    }

    #[test]
    fn nested_functions_are_named_after_their_method() {
        for (path, expected) in [
            ("Program.<Main>$", "Program.Main"),
            ("A.B.<Main>g__Parse|0_2", "A.B.Main.Parse"),
            ("A.B+<>c.<Main>b__0_1", "A.B.Main.AnonymousMethod__0_1"),
            ("A.B+<>c__DisplayClass5_0.<Run>b__1", "A.B.Run.AnonymousMethod__1"),
            ("A.B+<>c__DisplayClass5_0`1[System.Int32].<Run>b__1", "A.B.Run<int>.AnonymousMethod__1"),
            ("A.B+<Main>c__AnonStorey0.<>m__7", "A.B.Main.AnonymousMethod__7"),
            ("A.B.<Run>m__0", "A.B.Run.AnonymousMethod__0"),
            ("A.B+<>c..cctor", "A.B.<>c..cctor"),
            ("A.B+<Main>c__AnonStorey0..ctor", "A.B.<Main>c__AnonStorey0..ctor"),
        ] {
            assert_eq!(parse(path), Some((expected.to_owned(), false)), "{path}");
        }
    }

    #[test]
    fn types_in_lists_have_no_namespace() {
        let arguments = ["int".to_owned(), "string".to_owned()];
        for (name, count, expected) in [
            ("A.B.C", 0, Some("C")),
            ("A.B+C", 0, Some("B.C")),
            ("A.B`1+C`1", 2, Some("B<int>.C<string>")),
            ("A.B+<Serve>d__3", 0, Some("B.Serve")),
            ("A.B+<>c__DisplayClass5_0", 0, Some("B.<>c__DisplayClass5_0")),
            ("C`1", 2, Some("C<string>")),
            ("C", 2, Some("C")),
            ("A.C", 2, Some("C<int,string>")),
            ("A.C`2", 1, None),
            ("...", 0, Some("...")),
            ("", 0, Some("")),
        ] {
            assert_eq!(convert_type(name, &arguments[..count]).as_deref(), expected, "{name}");
        }
    }
}
