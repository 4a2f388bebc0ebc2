//! Where a method or a type stands: namespace, the types around it, its own name.
//!
//! ``Namespace.Outer`1+Inner`1[System.Int32,System.String].Method`` is `Namespace.Outer<int>.Inner<string>.Method`.

use super::{
    nesting::{Nesting, steps},
    type_name::TypeReader,
};

/// A method by its path.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: String,
    /// What the parameters of its type stand for.
    pub(super) type_arguments: Vec<String>,
    /// It goes on with an asynchronous method or an iterator, whose name it has here.
    pub(super) is_resumption: bool,
}

impl Method {
    pub(super) fn read(path: &str) -> Option<Self> {
        let (owner, type_arguments, method) = split_method(path)?;
        let (namespace, nesting) = split_namespace(owner);
        let mut spelled = Nesting::of_method(namespace);
        steps(nesting, &type_arguments, true)?.into_iter().for_each(|step| spelled.add_type(step));
        let is_resumption = spelled.add_method(method);
        Some(Self { name: spelled.finish(), type_arguments, is_resumption })
    }
}

/// A type without its namespace.
pub(super) fn short_type(name: &str, arguments: &[String]) -> Option<String> {
    let (namespace, nesting) = split_namespace(name);
    let mut spelled = Nesting::in_list();
    let is_whole = !namespace.is_empty() || nesting.contains('+');
    steps(nesting, arguments, is_whole)?.into_iter().for_each(|step| spelled.add_type(step));
    Some(spelled.finish())
}

/// The length of the name of a type, up to what cannot be in one: a list, or what follows a type.
pub(super) fn name_length(text: &str) -> Option<usize> {
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

/// The length of the angle brackets that a text begins with, and of what is in them.
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

/// The type, the arguments in brackets behind it, and the name of the method.
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

/// The namespace, and a type with those that it is nested in.
fn split_namespace(name: &str) -> (&str, &str) {
    let before_nested = outside_of_brackets(name).take_while(|(_, c)| *c != '+');
    match before_nested.filter(|(_, c)| *c == '.').last() {
        Some((dot, _)) if dot + 1 < name.len() => (&name[..dot], &name[dot + 1..]),
        _ => ("", name),
    }
}

/// The characters that stand in no angle brackets.
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

    fn read(path: &str) -> Option<(String, bool)> {
        Method::read(path).map(|method| (method.name, method.is_resumption))
    }

    #[test]
    fn every_type_of_a_nesting_has_its_own_arguments() {
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
            ("A.B.C.ID<System.Int32,D E>.Get", Some("A.B.C.ID<System.Int32,D E>.Get")),
            ("A.<File>F1a__B+Runner.Run", Some("A.B.Runner.Run")),
            ("<Module>.Main", Some("<Module>.Main")),
            ("A.B`2[System.Int32].C", None),
            ("A.B[System.Int32].C", Some("A.B<int>.C")),
            ("A.B`1.C", None),
            ("A.B`1[System.Int32]", None),
            ("A.B`1[System.Int32.C", None),
        ] {
            let found = read(path);
            assert_eq!(found.as_ref().map(|(name, _)| name.as_str()), expected, "{path}");
            assert!(found.is_none_or(|(_, is_resumption)| !is_resumption), "{path}");
        }
    }

    #[test]
    fn a_state_machine_that_goes_on_is_its_method() {
        for (path, expected) in [
            ("A.B+<PlaceAsync>d__7.MoveNext", "A.B.PlaceAsync"),
            ("A.B+<RunAsync>d__4`1[System.__Canon].MoveNext", "A.B.RunAsync<__Canon>"),
            ("A.B`1+<RunAsync>d__4`1[System.Int32,System.__Canon].MoveNext", "A.B<int>.RunAsync<__Canon>"),
            ("A.B`1+<Items>d__3[System.Int32].MoveNext", "A.B<int>.Items"),
            ("Program+<>c+<<<Main>$>b__0_2>d.MoveNext", "Program.Main.AnonymousMethod__0_2"),
            ("A+<>c__DisplayClass0_0`1+<<Run>b__0>d[System.Int32].MoveNext", "A.Run.AnonymousMethod__0<int>"),
            ("A+<Read>c__async0.MoveNext", "A.Read"),
        ] {
            assert_eq!(read(path), Some((expected.to_owned(), true)), "{path}");
        }
        for (path, expected) in [
            ("A+<Items>d__3.System.IDisposable.Dispose", "A.Items.System.IDisposable.Dispose"),
            ("A+<Items>d__3.<>m__Finally1", "A.Items.Finally1"),
            ("A+Items.MoveNext", "A.Items.MoveNext"),
            ("A+<Items>d__3+B.MoveNext", "A.Items.B.MoveNext"),
        ] {
            assert_eq!(read(path), Some((expected.to_owned(), false)), "{path}");
        }
    }

    #[test]
    fn functions_in_methods_are_named_by_their_method() {
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
            assert_eq!(read(path), Some((expected.to_owned(), false)), "{path}");
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
            assert_eq!(short_type(name, &arguments[..count]).as_deref(), expected, "{name}");
        }
    }
}
