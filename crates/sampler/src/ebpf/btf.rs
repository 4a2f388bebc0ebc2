//! BTF parser: offsets of structure members from the running kernel's types (`Documentation/bpf/btf.rst`).
//!
//! It indexes the position of each type in one pass. A library that builds a model of all 150,000 types takes longer than
//! the rest of the start together.

use std::ops::Range;

use crate::sys::kernel_file::KernelFile;

/// The BTF of a kernel, as bytes.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: KernelFile,
    types: Range<usize>,
    strings: Range<usize>,
    /// The position of each type by its id. Ids start at 1.
    by_id: Vec<u32>,
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) type_id: u32,
}

/// A structure or a union, by its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Structure(usize);

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// In bytes, from the start of the outermost structure.
    pub(super) offset: u32,
    pub(super) type_id: u32,
}

/// The name of the function that calls the programs of a tracepoint starts so.
const TRACEPOINT_CALLER: &str = "__traceiter_";

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FORWARD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// `struct btf_type`: name, info, size or type.
const TYPE_BYTES: usize = 12;
/// `struct btf_member`: name, type, offset.
const MEMBER_BYTES: usize = 12;
/// `struct btf_param`: name, type.
const PARAMETER_BYTES: usize = 8;
/// `struct btf_enum`: name, value.
const ENUM_BYTES: usize = 8;

/// Levels of unnamed structures inside structures that are searched.
const MAX_NESTING: u32 = 8;

/// Members that one search visits, so that structures that contain each other end the search. The largest of the kernel
/// have some hundreds.
const MAX_MEMBERS: u32 = 1 << 16;

impl Btf {
    /// The kernel's BTF file.
    pub(crate) const PATH: &str = "/sys/kernel/btf/vmlinux";

    /// Reads the header and indexes the types; `None` when it is not BTF.
    pub(crate) fn parse(bytes: KernelFile) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let header = word(4)?;
        let section = |offset: usize, length: usize| {
            let start = header.checked_add(word(offset)?)?;
            let end = start.checked_add(word(length)?)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let (types, strings) = (section(8, 12)?, section(16, 20)?);
        let mut btf = Self { bytes, types, strings, by_id: vec![0] };
        btf.index()?;
        Some(btf)
    }

    /// The offset of `structure.member` in bytes, also of members of its unnamed structures.
    pub(crate) fn member(&self, structure: &str, member: &str) -> Option<u32> {
        let mut members_left = MAX_MEMBERS;
        let at = self.find(KIND_STRUCT, structure)?;
        Some(self.member_at(at, member.as_bytes(), MAX_NESTING, &mut members_left)?.offset)
    }

    /// The id of a structure.
    pub(super) fn structure_id(&self, name: &str) -> Option<u32> {
        self.id_of(KIND_STRUCT, name)
    }

    /// The arguments of a tracepoint: those of the function that calls its programs, without the first one
    /// (`__DECLARE_TRACE`, `include/linux/tracepoint.h`). `None` for an unknown tracepoint.
    pub(super) fn tracepoint_arguments(&self, tracepoint: &str) -> Option<Vec<Variable>> {
        let function = self.find(KIND_FUNC, &format!("{TRACEPOINT_CALLER}{tracepoint}"))?;
        self.parameters(function).map(|all| all.into_iter().skip(1).collect())
    }

    /// All tracepoints, each with the names and the types of its arguments.
    pub(crate) fn tracepoints(&self) -> impl Iterator<Item = (String, Vec<(String, String)>)> + '_ {
        let functions = self.by_id.iter().skip(1).map(|at| *at as usize);
        functions.filter(|at| self.kind(*at) == Some(KIND_FUNC)).filter_map(|at| {
            let name = std::str::from_utf8(self.name(self.word(at)?)?).ok()?;
            let name = name.strip_prefix(TRACEPOINT_CALLER)?.to_owned();
            let arguments = self.parameters(at)?.into_iter().skip(1);
            Some((
                name,
                arguments.map(|argument| (argument.name, self.type_name(argument.type_id))).collect(),
            ))
        })
    }

    fn parameters(&self, function: usize) -> Option<Vec<Variable>> {
        let prototype = self.at(self.word(function + 8)?)?;
        let parameters = (0..self.length(prototype)?).map(|index| {
            let parameter = prototype + TYPE_BYTES + index * PARAMETER_BYTES;
            let name = String::from_utf8_lossy(self.name(self.word(parameter)?)?).into_owned();
            Some(Variable { name, type_id: self.word(parameter + 4)? })
        });
        parameters.collect()
    }

    /// The structure to which a type points; `None` for other types.
    pub(super) fn pointed_structure(&self, type_id: u32) -> Option<Structure> {
        let at = self.unmodified(type_id)?;
        if self.kind(at)? != KIND_POINTER {
            return None;
        }
        let at = self.unmodified(self.word(at + 8)?)?;
        matches!(self.kind(at)?, KIND_STRUCT | KIND_UNION).then_some(Structure(at))
    }

    /// A member of a structure, by the names of nested ones: `se.vruntime`.
    pub(super) fn member_by_path(&self, structure: &Structure, path: &str) -> Option<Member> {
        let mut members_left = MAX_MEMBERS;
        let (mut at, mut offset, mut found) = (structure.0, 0, None);
        for name in path.split('.') {
            if let Some(Member { type_id, .. }) = found {
                at = self.unmodified(type_id)?;
                if !matches!(self.kind(at)?, KIND_STRUCT | KIND_UNION) {
                    return None;
                }
            }
            let member = self.member_at(at, name.as_bytes(), MAX_NESTING, &mut members_left)?;
            offset += member.offset;
            found = Some(Member { offset, ..member });
        }
        found
    }

    /// The size in bytes and the sign of a number; `None` for another type.
    pub(super) fn number(&self, type_id: u32) -> Option<(u32, bool)> {
        const SIGNED: u32 = 1;
        let at = self.unmodified(type_id)?;
        match self.kind(at)? {
            KIND_INT => {
                let encoding = self.word(at + TYPE_BYTES)? >> 24;
                Some((self.word(at + 8)?, encoding & SIGNED != 0))
            }
            KIND_ENUM | KIND_ENUM64 => Some((self.word(at + 8)?, self.word(at + 4)? >> 31 == 1)),
            KIND_POINTER => Some((8, false)),
            _ => None,
        }
        .filter(|(bytes, _)| matches!(bytes, 1 | 2 | 4 | 8))
    }

    /// The name of a type as in C, without modifiers: `int`, `struct task_struct *`.
    pub(super) fn type_name(&self, type_id: u32) -> String {
        self.try_type_name(type_id, MAX_NESTING).unwrap_or_else(|| "?".to_owned())
    }

    fn try_type_name(&self, type_id: u32, nesting: u32) -> Option<String> {
        if type_id == 0 {
            return Some("void".to_owned());
        }
        let at = self.at(type_id)?;
        let name = || Some(String::from_utf8_lossy(self.name(self.word(at)?)?).into_owned());
        let inner = || self.try_type_name(self.word(at + 8)?, nesting.checked_sub(1)?);
        match self.kind(at)? {
            KIND_POINTER => Some(format!("{} *", inner()?)),
            KIND_STRUCT | KIND_FORWARD => Some(format!("struct {}", name()?)),
            KIND_UNION => Some(format!("union {}", name()?)),
            KIND_ENUM | KIND_ENUM64 => Some(format!("enum {}", name()?)),
            KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => inner(),
            _ => name(),
        }
    }

    /// A type without type definitions and modifiers.
    fn unmodified(&self, type_id: u32) -> Option<usize> {
        /// Real types have a few.
        const MAX_MODIFIERS: u32 = 32;
        let mut at = self.at(type_id)?;
        for _ in 0..MAX_MODIFIERS {
            match self.kind(at)? {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    at = self.at(self.word(at + 8)?)?;
                }
                _ => return Some(at),
            }
        }
        None
    }

    fn at(&self, type_id: u32) -> Option<usize> {
        let at = *self.by_id.get(type_id as usize)? as usize;
        (at > 0).then_some(at)
    }

    /// The size of a structure in bytes.
    pub(crate) fn size(&self, structure: &str) -> Option<u32> {
        self.word(self.find(KIND_STRUCT, structure)? + 8)
    }

    /// The id of a function.
    pub(crate) fn function_id(&self, name: &str) -> Option<u32> {
        self.id_of(KIND_FUNC, name)
    }

    /// The id of a type definition.
    pub(crate) fn typedef_id(&self, name: &str) -> Option<u32> {
        self.id_of(KIND_TYPEDEF, name)
    }

    fn id_of(&self, kind: u32, name: &str) -> Option<u32> {
        let at = self.find(kind, name)?;
        self.by_id.iter().position(|position| *position as usize == at)?.try_into().ok()
    }

    /// The value of an enumerator.
    pub(crate) fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let at = self.find(KIND_ENUM, enumeration)?;
        (0..self.length(at)?).map(|index| at + TYPE_BYTES + index * ENUM_BYTES).find_map(|entry| {
            (self.name(self.word(entry)?)? == name.as_bytes()).then(|| self.word(entry + 4))?
        })
    }

    fn index(&mut self) -> Option<()> {
        let mut at = self.types.start;
        while at + TYPE_BYTES <= self.types.end {
            self.by_id.push(u32::try_from(at).ok()?);
            at += TYPE_BYTES + extra_bytes(self.kind(at)?, self.length(at)?);
        }
        Some(())
    }

    fn find(&self, kind: u32, name: &str) -> Option<usize> {
        self.by_id.iter().skip(1).map(|at| *at as usize).find(|at| {
            self.kind(*at) == Some(kind)
                && self.word(*at).and_then(|name| self.name(name)) == Some(name.as_bytes())
        })
    }

    fn member_at(&self, at: usize, wanted: &[u8], nesting: u32, members_left: &mut u32) -> Option<Member> {
        // With the flag, the upper byte of an offset is the size of a bit field.
        let offset_mask = if self.word(at + 4)? >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
        (0..self.length(at)?).map(|index| at + TYPE_BYTES + index * MEMBER_BYTES).find_map(|member| {
            *members_left = members_left.checked_sub(1)?;
            let name = self.name(self.word(member)?)?;
            let offset = (self.word(member + 8)? & offset_mask) / u8::BITS;
            if name == wanted {
                return Some(Member { offset, type_id: self.word(member + 4)? });
            }
            if !name.is_empty() || nesting == 0 {
                return None;
            }
            let inner = *self.by_id.get(self.word(member + 4)? as usize)? as usize;
            if !matches!(self.kind(inner)?, KIND_STRUCT | KIND_UNION) {
                return None;
            }
            let found = self.member_at(inner, wanted, nesting - 1, members_left)?;
            Some(Member { offset: offset + found.offset, ..found })
        })
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(self.word(at + 4)? >> 24 & 0x1f)
    }

    fn length(&self, at: usize) -> Option<usize> {
        Some((self.word(at + 4)? & 0xffff) as usize)
    }

    fn name(&self, offset: u32) -> Option<&[u8]> {
        let text = self.bytes.get(self.strings.start.checked_add(offset as usize)?..self.strings.end)?;
        Some(&text[..memchr::memchr(0, text)?])
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }
}

/// Bytes that follow the three words of a type.
fn extra_bytes(kind: u32, length: usize) -> usize {
    match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION => length * MEMBER_BYTES,
        KIND_ENUM => length * ENUM_BYTES,
        KIND_FUNC_PROTO => length * 8,
        KIND_DATASEC | KIND_ENUM64 => length * 12,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer` with an unnamed structure at offset 16 whose member `deep` is at 8, and an enumeration.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0deep\0first\0colour\0red\0blue\0";
        let at = |name: &[u8]| strings.windows(name.len()).position(|window| window == name).unwrap() as u32;
        let types: Vec<u32> = [
            vec![0, KIND_INT << 24, 4, 32],
            vec![0, KIND_STRUCT << 24 | 1, 16, at(b"deep"), 1, 64],
            vec![at(b"outer"), KIND_STRUCT << 24 | 2, 32, at(b"first"), 1, 0, 0, 2, 128],
            vec![at(b"colour"), KIND_ENUM << 24 | 2, 4, at(b"red"), 3, at(b"blue"), 7],
            vec![at(b"first"), KIND_FUNC << 24, 1],
        ]
        .concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        for word in [24, 0, types_len, types_len, strings_len] {
            bytes.extend(word.to_ne_bytes());
        }
        [bytes, types, strings.to_vec()].concat()
    }

    #[test]
    fn members_of_unnamed_structures_are_found() {
        let btf = Btf::parse(KernelFile::Owned(sample())).unwrap();
        assert_eq!(btf.member("outer", "first"), Some(0));
        assert_eq!(btf.member("outer", "deep"), Some(24));
        assert_eq!(btf.member("outer", "missing"), None);
        assert_eq!(btf.size("outer"), Some(32));
        assert_eq!(btf.enumerator("colour", "blue"), Some(7));
        assert_eq!((btf.function_id("first"), btf.function_id("outer")), (Some(5), None));
    }

    #[test]
    fn truncated_and_invalid_btf_is_rejected_or_has_no_members() {
        let whole = sample();
        for end in 0..whole.len() {
            if let Some(btf) = Btf::parse(KernelFile::Owned(whole[..end].to_vec())) {
                assert_eq!(btf.member("outer", "missing"), None);
            }
        }
        assert!(Btf::parse(KernelFile::Owned(vec![0; 64])).is_none());
    }

    #[test]
    fn the_search_ends_in_structures_that_contain_themselves() {
        const MEMBERS: u32 = 60_000;
        let itself: Vec<u32> = (0..MEMBERS).flat_map(|_| [0, 1, 0]).collect();
        let types = [vec![1, KIND_STRUCT << 24 | MEMBERS, 4], itself].concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = u32::try_from(types.len()).unwrap();
        let header: Vec<u8> =
            [24, 0, length, length, 3].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let bytes = [&MAGIC.to_ne_bytes()[..], &[1, 0], &header, &types, b"\0s\0"].concat();
        assert_eq!(Btf::parse(KernelFile::Owned(bytes)).unwrap().member("s", "missing"), None);
    }

    #[test]
    fn the_running_kernel_has_the_structures_that_the_profiler_reads() {
        // The profiler also runs on kernels without BTF.
        let Ok(bytes) = KernelFile::open(Btf::PATH) else { return };
        let btf = Btf::parse(bytes).unwrap();
        assert!(btf.member("task_struct", "group_leader").unwrap() > 0);
        assert!(btf.size("upid").unwrap() >= 16);
        assert!(btf.member("task_struct", "no_such_member").is_none());
    }

    #[test]
    fn the_running_kernel_has_tracepoints_with_arguments() {
        let Ok(bytes) = KernelFile::open(Btf::PATH) else { return };
        let btf = Btf::parse(bytes).unwrap();
        let arguments = btf.tracepoint_arguments("sched_switch").unwrap();
        let previous = arguments.iter().find(|argument| argument.name == "prev").unwrap();
        assert_eq!(btf.type_name(previous.type_id), "struct task_struct *");
        let task = btf.pointed_structure(previous.type_id).unwrap();
        let pid = btf.member_by_path(&task, "pid").unwrap();
        assert_eq!(Some(pid.offset), btf.member("task_struct", "pid"));
        assert_eq!(btf.number(pid.type_id), Some((4, true)));
        let nested = btf.member_by_path(&task, "se.vruntime").unwrap();
        assert_eq!(btf.number(nested.type_id), Some((8, false)));
        assert!(btf.member_by_path(&task, "pid.x").is_none());
        assert!(btf.tracepoint_arguments("no_such_tracepoint").is_none());
        let (_, listed) = btf.tracepoints().find(|(name, _)| name == "sched_switch").unwrap();
        assert!(listed.contains(&("prev".to_owned(), "struct task_struct *".to_owned())), "{listed:?}");
    }
}
