//! Argument types as the runtime's events spell them, from the spelling of its perf map.
//!
//! The .NET runtime has two printers of signatures. The one behind its events (vm/sigformat.cpp), whose text
//! PerfView and dotnet-trace show, says less: no assemblies, and of a nested type its own name only. So the
//! other's text (vm/prettyprintsig.cpp) is brought to that form, word by word.

/// Appends the argument list `arguments` to `out`.
pub(super) fn append(out: &mut String, arguments: &str) {
    let mut rest = arguments;
    let mut after_delimiter = true;
    while let Some(first) = rest.chars().next() {
        let scope = if after_delimiter { scope_length(rest) } else { 0 };
        if scope > 0 {
            rest = &rest[scope..];
            continue;
        }
        if is_delimiter(first) {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            after_delimiter = !matches!(first, ']' | '>' | '[');
            continue;
        }
        let (word, behind) = split_word(rest);
        out.push_str(spelling(word));
        rest = behind;
        after_delimiter = false;
    }
}

/// The length of an assembly in brackets before a type. Brackets of arrays follow a type.
fn scope_length(text: &str) -> usize {
    let Some((assembly, behind)) = text.strip_prefix('[').and_then(|inside| inside.split_once(']')) else {
        return 0;
    };
    let named = behind.starts_with(|first: char| !is_delimiter(first));
    if named && !assembly.contains('[') { assembly.len() + "[]".len() } else { 0 }
}

/// The first word and what follows it. `native int` is one word.
fn split_word(text: &str) -> (&str, &str) {
    for pair in ["native int", "native uint"] {
        if let Some(behind) = text.strip_prefix(pair)
            && behind.chars().next().is_none_or(is_delimiter)
        {
            return (pair, behind);
        }
    }
    text.split_at(text.find(is_delimiter).unwrap_or(text.len()))
}

fn is_delimiter(character: char) -> bool {
    matches!(character, '(' | ')' | '<' | '>' | '[' | ']' | ',' | '&' | '*' | ' ')
}

fn spelling(word: &str) -> &str {
    match word {
        "valuetype" => "value class",
        "string" => "class System.String",
        "object" => "class System.Object",
        "char" => "wchar",
        "uint8" => "unsigned int8",
        "uint16" => "unsigned int16",
        "uint32" => "unsigned int32",
        "uint64" => "unsigned int64",
        "native int" => "int",
        "native uint" => "unsigned int",
        // The bounds of an array of several dimensions.
        "0..." => "",
        _ => match word.rsplit_once('/') {
            Some((_, nested)) if !nested.is_empty() => nested,
            _ => word,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_types_read_as_in_the_runtimes_events() {
        for (written, expected) in [
            ("()", "()"),
            ("(int32,bool&)", "(int32,bool&)"),
            ("(string,object[])", "(class System.String,class System.Object[])"),
            ("(uint8&,uint8&,native uint)", "(unsigned int8&,unsigned int8&,unsigned int)"),
            ("(char&,native int*,uint64)", "(wchar&,int*,unsigned int64)"),
            (
                "(valuetype System.ReadOnlySpan`1<uint8>)",
                "(value class System.ReadOnlySpan`1<unsigned int8>)",
            ),
            (
                "(class [System.Runtime]System.Action`1<object>)",
                "(class System.Action`1<class System.Object>)",
            ),
            ("([a]B,class C<[d]E>)", "(B,class C<E>)"),
            ("(class A.B`2/Tables<!0,!1>[],!!0)", "(class Tables<!0,!1>[],!!0)"),
            ("(!2[0...,0...],int32[])", "(!2[,],int32[])"),
            ("(class stringent,objects,native integer)", "(class stringent,objects,native integer)"),
            ("(class A/\u{e9}\u{e9},[\u{e9})", "(class \u{e9}\u{e9},[\u{e9})"),
            ("[[[", "[[["),
        ] {
            let mut out = String::new();
            append(&mut out, written);
            assert_eq!(out, expected);
        }
    }
}
