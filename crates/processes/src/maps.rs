//! Parses the executable mappings in `/proc/PID/maps` (proc_pid_maps(5)).

use std::sync::Arc;

use profiler_addresses::{FileMapping, FileOffset, RuntimeAddress};

use crate::copied_text;

/// One executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Mapping {
    /// First address.
    #[cfg_attr(feature = "serde", serde(with = "address"))]
    pub start: RuntimeAddress,
    /// Address behind the last byte.
    #[cfg_attr(feature = "serde", serde(with = "address"))]
    pub end: RuntimeAddress,
    /// File offset of the first byte.
    #[cfg_attr(feature = "serde", serde(with = "offset"))]
    pub offset: FileOffset,
    /// The file or the kind of memory that is mapped.
    pub backing: Backing,
}

/// The file or the kind of memory that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Backing {
    /// A file.
    File {
        /// Device and inode of the file.
        id: FileId,
        /// Path in the root directory of the process, without ` (deleted)`.
        path: Arc<str>,
    },
    /// The vDSO (vdso(7)).
    Vdso,
    /// Memory without a file: JIT code.
    Jit,
    /// The memory file in which a .NET runtime puts its JIT code: methods and stubs only.
    DotnetJit,
    /// Another mapping that the kernel creates without a file: `[vsyscall]`, `[uprobes]`.
    Special(Arc<str>),
}

/// Identifies a file of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileId {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

impl Mapping {
    /// Where the file is in memory.
    pub fn file_mapping(&self) -> FileMapping {
        FileMapping { start: self.start, offset: self.offset }
    }

    /// The address in the middle. The first and last pages can contain other parts of the file.
    pub fn middle(&self) -> RuntimeAddress {
        RuntimeAddress(self.start.0.midpoint(self.end.0))
    }

    /// Whether the mapping contains `address`.
    pub fn contains(&self, address: RuntimeAddress) -> bool {
        self.start <= address && address < self.end
    }
}

impl Backing {
    /// Classifies a mapping by the name that the kernel shows. Anonymous memory has an empty name.
    ///
    /// Executable memory without a file contains JIT code. .NET uses a memory file named `doublemapper`. Other runtimes
    /// use `/dev/zero` or `//anon`, or make the heap executable.
    pub fn from_name(name: &str, id: FileId) -> Self {
        const DELETED: &str = " (deleted)";
        let path = name.strip_suffix(DELETED).unwrap_or(name);
        match path {
            "[vdso]" => Self::Vdso,
            "/memfd:doublemapper" => Self::DotnetJit,
            "" | "//anon" | "/dev/zero" | "[heap]" | "[stack]" | "/anon_hugepage" => Self::Jit,
            _ if path.starts_with("[anon:") || path.starts_with("[anon_shmem:") => Self::Jit,
            _ if path.starts_with("[stack:") || path.starts_with("/SYSV") => Self::Jit,
            _ if path.starts_with('[') => Self::Special(path.into()),
            _ if id.inode == 0 => Self::Jit,
            _ => Self::File { id, path: path.into() },
        }
    }
}

/// Parses the executable mappings in the text of `/proc/PID/maps`, in the order of the text. Malformed lines are
/// skipped. Text of a file that was copied to anonymous memory is that of the file.
pub fn parse_executable(text: &[u8]) -> Vec<Mapping> {
    let mut executable: Vec<_> = lines(text).filter_map(|line| parse_line(line, is_executable)).collect();
    if executable.iter().any(|mapping| mapping.backing == Backing::Jit) {
        let all: Vec<_> = lines(text).filter_map(|line| parse_line(line, |_| true)).collect();
        copied_text::restore_files(&mut executable, &all);
    }
    executable
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn is_executable(permissions: &[u8]) -> bool {
    permissions.get(2) == Some(&b'x')
}

/// The first addresses of the mappings whose names begin with one of these.
#[cfg(feature = "pods")]
pub(crate) fn starts_of_named<'a>(
    text: &'a [u8],
    names: &'a [&[u8]],
) -> impl Iterator<Item = RuntimeAddress> + 'a {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let (range, rest) = field(line)?;
        // Permissions, offset, device and inode.
        let rest = (0..4).try_fold(rest, |rest, _| Some(field(rest)?.1))?;
        let name = rest.trim_ascii_start();
        let (start, _) = split_once(range, b'-')?;
        let is_named = names.iter().any(|beginning| name.starts_with(beginning));
        is_named.then_some(RuntimeAddress(hex(start)?))
    })
}

/// Parses a line, if its permissions are wanted.
fn parse_line(line: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Option<Mapping> {
    // 7f1c2000-7f1c3000 r-xp 00001000 fd:01 1234    /usr/lib/libc.so.6
    let (range, rest) = field(line)?;
    let (permissions, rest) = field(rest)?;
    if !is_wanted(permissions) {
        return None;
    }
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, rest) = field(rest)?;
    let (start, end) = split_once(range, b'-')?;
    let (major, minor) = split_once(device, b':')?;
    let (start, end) = (RuntimeAddress(hex(start)?), RuntimeAddress(hex(end)?));
    if start >= end {
        return None;
    }
    let id = FileId {
        major: u32::try_from(hex(major)?).ok()?,
        minor: u32::try_from(hex(minor)?).ok()?,
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
    };
    let name = unescape(rest.trim_ascii_start());
    Some(Mapping { start, end, offset: FileOffset(hex(offset)?), backing: Backing::from_name(&name, id) })
}

/// Splits off the next field.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    if text.is_empty() {
        return None;
    }
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    Some(text.split_at(end))
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let index = memchr::memchr(separator, text)?;
    Some((&text[..index], &text[index + 1..]))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The kernel writes a line break in a path as `\012` (`fs/proc/task_mmu.c`, `seq_file_path`).
fn unescape(path: &[u8]) -> String {
    String::from_utf8_lossy(path).replace("\\012", "\n")
}

#[cfg(feature = "serde")]
mod address {
    //! Serializes addresses in captures in hexadecimal, like `/proc/PID/maps`.

    use profiler_addresses::RuntimeAddress;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        address: &RuntimeAddress,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{address:x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RuntimeAddress, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u64::from_str_radix(&digits, 16).map(RuntimeAddress).map_err(D::Error::custom)
    }
}

#[cfg(feature = "serde")]
mod offset {
    //! Serializes file offsets in captures in hexadecimal, like `/proc/PID/maps`.

    use profiler_addresses::FileOffset;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(offset: &FileOffset, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{offset:x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FileOffset, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u64::from_str_radix(&digits, 16).map(FileOffset).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBC: &str =
        "7f1c26000000-7f1c26155000 r-xp 00026000 fd:01 12345      /usr/lib/x86_64-linux-gnu/libc.so.6";

    fn parse_one(line: &str) -> Mapping {
        let mut mappings = parse_executable(line.as_bytes());
        assert_eq!(mappings.len(), 1, "{line}");
        mappings.remove(0)
    }

    #[test]
    fn a_file_mapping_has_range_offset_and_identity() {
        let mapping = parse_one(LIBC);
        assert_eq!(mapping.start, RuntimeAddress(0x7f1c_2600_0000));
        assert_eq!(mapping.end, RuntimeAddress(0x7f1c_2615_5000));
        assert_eq!(mapping.offset, FileOffset(0x26000));
        let id = FileId { major: 0xfd, minor: 1, inode: 12345 };
        assert_eq!(mapping.backing, Backing::File { id, path: "/usr/lib/x86_64-linux-gnu/libc.so.6".into() });
    }

    #[test]
    fn mappings_that_are_not_executable_are_skipped() {
        assert!(parse_executable(b"1000-2000 rw-p 00000000 00:00 0 [heap]\n").is_empty());
    }

    #[test]
    fn executable_memory_without_a_file_is_jit_code() {
        let backing = |name| parse_one(&format!("1000-2000 rwxp 00000000 00:01 77 {name}")).backing;
        for name in ["", "//anon", "/dev/zero (deleted)", "[heap]", "[anon:JIT]"] {
            assert_eq!(backing(name), Backing::Jit, "{name}");
        }
        assert_eq!(backing("/memfd:doublemapper (deleted)"), Backing::DotnetJit);
    }

    #[test]
    fn other_memory_files_and_deleted_files_are_files() {
        for (name, path) in [("/memfd:app (deleted)", "/memfd:app"), ("/app/a b.so (deleted)", "/app/a b.so")]
        {
            let mapping = parse_one(&format!("1000-2000 r-xp 00000000 00:01 77 {name}"));
            assert!(matches!(mapping.backing, Backing::File { path: p, .. } if &*p == path));
        }
    }

    #[test]
    fn mappings_of_the_kernel_are_recognized() {
        assert_eq!(parse_one("1000-2000 r-xp 00000000 00:00 0 [vdso]").backing, Backing::Vdso);
        let vsyscall = parse_one("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]");
        assert_eq!(vsyscall.backing, Backing::Special("[vsyscall]".into()));
    }

    #[test]
    fn a_line_break_in_a_path_is_decoded() {
        let mapping = parse_one("1000-2000 r-xp 00000000 00:01 77 /tmp/a\\012b");
        assert!(matches!(mapping.backing, Backing::File { path, .. } if &*path == "/tmp/a\nb"));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for malformed in [
            "",
            "x",
            "1000-2000",
            "2000-1000 r-xp 0 0:0 0",
            "zz-2000 r-xp 0 0:0 0",
            "1000-2000 r-xp 0 0 0",
            "1000-99999999999999999 r-xp 0 0:0 0 x",
            "1000-2000 r-xp 0 0:0 99999999999999999999 x",
        ] {
            let text = format!("{malformed}\n{LIBC}\n");
            assert_eq!(parse_executable(text.as_bytes()).len(), 1, "{malformed}");
        }
    }

    #[test]
    fn every_prefix_of_a_line_parses_to_one_mapping_or_none() {
        for end in 0..LIBC.len() {
            assert!(parse_executable(&LIBC.as_bytes()[..end]).len() <= 1);
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_mapping_is_restored_from_a_capture() {
        let mapping = parse_one(LIBC);
        let text = serde_json::to_string(&mapping).unwrap();
        assert!(text.contains("7f1c26000000"));
        assert_eq!(serde_json::from_str::<Mapping>(&text).unwrap(), mapping);
    }
}
