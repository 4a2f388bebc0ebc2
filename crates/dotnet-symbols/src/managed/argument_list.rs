//! Converts argument lists from the spelling of perf maps to that of the runtime's events.
//!
//! The .NET runtime has two printers of signatures. Perf maps use inc/formattype.cpp. Events use
//! utilcode/prettyprintsig.cpp, whose text PerfView and dotnet-trace show: it has no assemblies, and nested types without
//! the types around them.

use super::argument_order::in_event_order;

/// Appends the argument list `arguments`, as in a perf map, to `out`, as in an event.
pub(super) fn append_normalized(out: &mut String, arguments: &str) {
    let mut normalized = String::with_capacity(arguments.len());
    append_words(&mut normalized, arguments);
    out.push_str(in_event_order(&normalized).as_ref().unwrap_or(&normalized));
}

fn append_words(out: &mut String, arguments: &str) {
    let mut rest = arguments;
    let mut after_delimiter = true;
    while let Some(first) = rest.chars().next() {
        let assembly_bytes = if after_delimiter { assembly_length(rest) } else { 0 };
        if assembly_bytes > 0 {
            rest = &rest[assembly_bytes..];
            continue;
        }
        if is_delimiter(first) {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            after_delimiter = !matches!(first, ']' | '>' | '[');
            continue;
        }
        let (word, after) = split_word(rest);
        out.push_str(event_spelling(word));
        rest = after;
        after_delimiter = false;
    }
}

/// The length of an assembly in brackets before a type, else 0. Brackets of arrays follow a type.
fn assembly_length(text: &str) -> usize {
    let Some((assembly, after)) = text.strip_prefix('[').and_then(|inside| inside.split_once(']')) else {
        return 0;
    };
    let precedes_type = after.starts_with(|first: char| !is_delimiter(first));
    if precedes_type && !assembly.contains('[') { assembly.len() + "[]".len() } else { 0 }
}

/// Splits a text after its first word. `native int` is one word.
fn split_word(text: &str) -> (&str, &str) {
    for pair in ["native int", "native uint"] {
        if let Some(after) = text.strip_prefix(pair)
            && after.chars().next().is_none_or(is_delimiter)
        {
            return (pair, after);
        }
    }
    text.split_at(text.find(is_delimiter).unwrap_or(text.len()))
}

fn is_delimiter(character: char) -> bool {
    matches!(character, '(' | ')' | '<' | '>' | '[' | ']' | ',' | '&' | '*' | ' ')
}

/// Whether a word is the bound of an array: `0...`, `1...5`.
fn is_bound(word: &str) -> bool {
    word.contains("...") && word.contains(|c: char| c.is_ascii_digit()) && word.bytes().all(is_in_bound)
}

fn is_in_bound(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
}

/// Appends a signature of an event without the bounds of its arrays. No other source has them: `int32[1...5,]` is `int32[,]`.
pub(super) fn append_without_bounds(out: &mut String, signature: &str) {
    let mut rest = signature;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        out.push('[');
        let bounds = after.split_once(']').map_or("", |(bounds, _)| bounds);
        if bounds.contains("...") && bounds.bytes().all(|byte| is_in_bound(byte) || byte == b',') {
            out.extend(bounds.chars().filter(|c| *c == ','));
            rest = &after[bounds.len()..];
        } else {
            rest = after;
        }
    }
    out.push_str(rest);
}

fn event_spelling(word: &str) -> &str {
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
        "typedref" => "refany",
        // The bounds of a multidimensional array.
        _ if is_bound(word) => "",
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
    fn argument_types_are_spelled_as_in_events() {
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
            ("(int32[1...5,-2...3],typedref)", "(int32[,],refany)"),
            (
                "(valuetype Pt& modreq([System.Private.CoreLib]A.InAttribute),method unmanaged void *(uint8*)*)",
                "(required_modifier A.InAttribute value class Pt&,fnptr void(unsigned int8*)*)",
            ),
            ("(class stringent,objects,native integer)", "(class stringent,objects,native integer)"),
            ("(class A/\u{e9}\u{e9},[\u{e9})", "(class \u{e9}\u{e9},[\u{e9})"),
            ("[[[", "[[["),
        ] {
            let mut out = String::new();
            append_normalized(&mut out, written);
            assert_eq!(out, expected);
        }
    }
}
