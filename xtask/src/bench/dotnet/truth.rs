//! Reads the symbols of the .NET runtime itself, as the reference for the profiler's symbols.
//!
//! A perf map has them for JIT code, a jitdump of .NET 9.0 for precompiled code too.

use std::collections::BTreeMap;

use anyhow::Result;
use fs_err as fs;

/// Symbols by address. Later entries replace those they overlap.
#[derive(Default)]
pub(super) struct Truth(BTreeMap<u64, (u64, String)>);

impl Truth {
    /// Reads the perf map of a process: lines `start size name`, in hexadecimal.
    pub(super) fn of_perf_map(pid: u32) -> Result<Self> {
        let text = fs::read(format!("/tmp/perf-{pid}.map"))?;
        Ok(Self::parse_perf_map(&String::from_utf8_lossy(&text)))
    }

    /// Reads the precompiled code in the jitdump of a process.
    pub(super) fn of_jitdump(pid: u32) -> Result<Self> {
        Ok(Self::parse_jitdump(&fs::read(format!("/tmp/jit-{pid}.dump"))?))
    }

    fn parse_perf_map(text: &str) -> Self {
        let mut truth = Self::default();
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        for line in text.lines() {
            let mut fields = line.splitn(3, ' ');
            let (Some(start), Some(size), Some(name)) =
                (fields.next().and_then(number), fields.next().and_then(number), fields.next())
            else {
                continue;
            };
            truth.insert(start, size, name);
        }
        truth
    }

    /// The format is `tools/perf/Documentation/jitdump-specification.txt` in the sources of Linux.
    fn parse_jitdump(bytes: &[u8]) -> Self {
        const HEADER_SIZE_AT: usize = 8;
        const CODE_LOAD: u32 = 0;
        const ADDRESS_AT: usize = 32;
        const SIZE_AT: usize = 40;
        const NAME_AT: usize = 56;
        let mut truth = Self::default();
        let mut at = word(bytes, HEADER_SIZE_AT).unwrap_or(0) as usize;
        while let (Some(kind), Some(length)) = (word(bytes, at), word(bytes, at + 4)) {
            let Some(record) = bytes.get(at..at + length as usize) else { break };
            let name = record.get(NAME_AT..).and_then(|name| name.split(|byte| *byte == 0).next());
            if let (CODE_LOAD, Some(start), Some(size), Some(name)) =
                (kind, long(record, ADDRESS_AT), long(record, SIZE_AT), name)
            {
                let name = String::from_utf8_lossy(name);
                if name.contains("[PreJ") {
                    truth.insert(start, size, &name);
                }
            }
            at += (length as usize).max(1);
        }
        truth
    }

    fn insert(&mut self, start: u64, size: u64, name: &str) {
        let end = start.saturating_add(size);
        let overlapped = self.0.range(..end).rev().take_while(|(_, (other_end, _))| *other_end > start);
        for other in overlapped.map(|(other, _)| *other).collect::<Vec<_>>() {
            self.0.remove(&other);
        }
        self.0.insert(start, (end, name.to_owned()));
    }

    /// The symbol at an address, as the runtime spells it.
    pub(super) fn name_at(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Whether a symbol of the profiler and one of the runtime name the same method: equal assembly, type, name and
/// argument types, the latter by their last words. The spelling of types may differ otherwise.
pub(super) fn is_same_method(ours: &str, of_runtime: &str) -> bool {
    let untiered = of_runtime.rsplit_once(")[").map_or(of_runtime.to_owned(), |(name, _)| format!("{name})"));
    key(&untiered).is_some_and(|key_of_runtime| key(ours) == Some(key_of_runtime))
}

/// The parts of a symbol that identify a method.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    assembly: String,
    method: String,
    arguments: Vec<String>,
}

/// Parses `RETURN [assembly] Type::Method(arguments)` or `assembly!Type.Method(arguments)`.
fn key(name: &str) -> Option<Key> {
    let (head, arguments) = split_arguments(name)?;
    let (assembly, method) = after_return_type(head).or_else(|| head.split_once('!'))?;
    Some(Key {
        assembly: assembly.to_owned(),
        method: without_instances(&method.replace("::", ".")),
        arguments: split(arguments).into_iter().map(last_word).collect(),
    })
}

/// Assembly and method of `RETURN [assembly] METHOD`. The return type may have brackets too, but not alone between
/// spaces.
fn after_return_type(head: &str) -> Option<(&str, &str)> {
    head.match_indices(" [").find_map(|(at, _)| {
        let (assembly, method) = head[at + 2..].split_once(']')?;
        Some((assembly, method.strip_prefix(' ')?))
    })
}

/// Splits at the parenthesis that the last one closes.
fn split_arguments(name: &str) -> Option<(&str, &str)> {
    let inside = name.strip_suffix(')')?;
    let mut open = 1;
    let at = inside.rmatch_indices(['(', ')']).find_map(|(at, parenthesis)| {
        open = if parenthesis == ")" { open + 1 } else { open - 1 };
        (open == 0).then_some(at)
    })?;
    Some((&inside[..at], &inside[at + 1..]))
}

/// Removes generic arguments, which are in brackets.
fn without_instances(name: &str) -> String {
    let mut depth = 0_u32;
    let is_outside = |character: &char| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    name.chars().filter(is_outside).collect()
}

/// Splits at commas outside of brackets.
fn split(arguments: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let is_between = |character| {
        match character {
            '[' | '<' | '(' => depth += 1,
            ']' | '>' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    };
    arguments.split(is_between).filter(|argument| !argument.trim().is_empty()).collect()
}

/// The last word of a type, without its type arguments: `string` for `class System.String`, `uint8` for `unsigned
/// int8`.
fn last_word(argument: &str) -> String {
    let name = without_instances(argument).replace("unsigned ", "u").replace("wchar", "char");
    let name = without_type_arguments(&name);
    let word = name.rsplit([' ', '.', '+', '/']).find(|word| !word.is_empty()).unwrap_or_default();
    word.split('`').next().unwrap_or_default().to_lowercase()
}

/// Removes `<...>` behind a type's name. Names that the compiler generates begin with such brackets.
fn without_type_arguments(name: &str) -> String {
    let mut rest = String::new();
    let mut depth = 0_usize;
    for character in name.chars() {
        match character {
            '<' if depth > 0 || rest.ends_with(char::is_alphanumeric) => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => rest.push(character),
            _ => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_perf_map_wins() {
        let truth = Truth::parse_perf_map("0x1000 100 a\n0x2000 10 b\n1080 40 c\nnonsense\n");
        assert_eq!(truth.name_at(0x1000), None);
        assert_eq!(truth.name_at(0x1081), Some("c"));
        assert_eq!(truth.name_at(0x200f), Some("b"));
        assert_eq!(truth.name_at(0x2010), None);
    }

    #[test]
    fn precompiled_code_is_read_from_a_jitdump() {
        let record = |name: &str| {
            let mut record = vec![0; 56];
            record[32..40].copy_from_slice(&0x7000_u64.to_le_bytes());
            record[40..48].copy_from_slice(&0x20_u64.to_le_bytes());
            record.extend_from_slice(name.as_bytes());
            record.push(0);
            let length = u32::try_from(record.len()).unwrap();
            record[4..8].copy_from_slice(&length.to_le_bytes());
            record
        };
        let mut bytes = vec![0; 40];
        bytes[8] = 40;
        bytes.extend(record("void [a] T::M()[PreJIT]"));
        assert_eq!(Truth::parse_jitdump(&bytes).name_at(0x701f), Some("void [a] T::M()[PreJIT]"));
        bytes.truncate(bytes.len() - 8);
        assert_eq!(Truth::parse_jitdump(&bytes).name_at(0x701f), None);
        bytes.truncate(40);
        bytes.extend(record("void [a] T::M()[QuickJitted]"));
        assert_eq!(Truth::parse_jitdump(&bytes).name_at(0x701f), None);
    }

    #[test]
    fn methods_with_differently_spelled_types_are_equal() {
        let same = [
            ("app!N.T.M(int32)", "void [app] N.T::M(int32)[OptimizedTier1]"),
            ("app!N.T.M(class System.String)", "void [app] N.T::M(string)[PreJIT]"),
            (
                "a!N.R`2[System.Int32,System.Double].Sum(class F)",
                "int64 [a] N.R`2[int32,float64]::Sum(class F)[QuickJitted]",
            ),
            ("a!T.M(class D`2<int,string>,int32)", "!0[] [a] T::M(class D`2<int,string>,int32)[Optimized]"),
            (
                "a!T.M(class Tables<!0,!1>,class <>c&)",
                "bool [a] T::M(class N.D`2/Tables<!0,!1>,class C/<>c&)[Optimized]",
            ),
            ("a!T.M(unsigned int8[],wchar*)", "void [a] T::M(uint8[],char*)[Optimized]"),
            ("a!T.M(class [lib]N.A)", "class [lib]N.A[] [a] T::M(class [lib]N.A)[Optimized]"),
            ("a!C+<>c.<Main>b__0(int32)", "void [a] C+<>c::<Main>b__0(int32)[Optimized]"),
        ];
        for (ours, of_runtime) in same {
            assert!(is_same_method(ours, of_runtime), "{:?} {:?}", key(ours), key(of_runtime));
        }
        for (ours, of_runtime) in [
            ("app!N.T.M(int32)", "void [app] N.T::M(int32,int32)[Optimized]"),
            ("app!N.T.M(int32)", "void [app] N.T::M(string)[Optimized]"),
            ("app!N.T.M()", "void [app] N.T::N()[Optimized]"),
            ("app!N.T.M()", "void [lib] N.T::M()[Optimized]"),
            ("[JIT 0x7f00]", "void [lib] N.T::M()[Optimized]"),
            ("libc", "stub<7> GenerateLookupStub"),
        ] {
            assert!(!is_same_method(ours, of_runtime), "{ours} {of_runtime}");
        }
    }
}
