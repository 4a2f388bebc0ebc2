//! The bpf(2) commands that the loader needs.
//!
//! aya's loader always parses the BTF of the kernel, which costs time and memory and is not needed. So aya-obj parses and
//! relocates the object, and this module loads it.

use std::{
    cell::Cell,
    collections::HashSet,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::OnceLock,
};

/// `enum bpf_cmd` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookupElement = 1,
    MapUpdateElement = 2,
    MapDeleteElement = 3,
    MapGetNextKey = 4,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    MapFreeze = 22,
    MapUpdateBatch = 26,
    LinkCreate = 28,
    IteratorCreate = 33,
}

/// `union bpf_attr`, the part for `BPF_MAP_CREATE` up to `map_name`.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; NAME_BYTES],
}

/// `union bpf_attr`, the part for `BPF_MAP_*_ELEM` and `BPF_MAP_FREEZE`.
#[repr(C)]
#[derive(Default)]
struct MapElement {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `union bpf_attr`, the part for `BPF_MAP_*_BATCH`.
#[repr(C)]
#[derive(Default)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

/// `union bpf_attr`, the part for `BPF_PROG_LOAD` up to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    program_flags: u32,
    program_name: [u8; NAME_BYTES],
    program_ifindex: u32,
    expected_attach_type: u32,
    btf_fd: u32,
    function_info_record_size: u32,
    function_info: u64,
    function_info_count: u32,
    line_info_record_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
}

/// `union bpf_attr`, the part for `BPF_BTF_LOAD` up to `btf_log_level`.
#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    log_buffer: u64,
    btf_size: u32,
    log_size: u32,
    log_level: u32,
    reserved: u32,
}

/// `union bpf_attr`, the part for `BPF_PROG_TEST_RUN` up to `ctx_out`.
#[repr(C)]
#[derive(Default)]
struct ProgramRun {
    program_fd: u32,
    /// What the program returned, written by the kernel.
    result: Cell<u32>,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
}

/// The type of a program: `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramType {
    PerfEvent,
    RawTracepoint,
    /// Runs on request of user space.
    Syscall,
    /// A program of an iterator. `btf_id`: the function in the kernel's BTF that has its arguments. A sleepable one can copy
    /// user memory.
    Iterator {
        btf_id: u32,
        is_sleepable: bool,
    },
    /// A tracepoint program whose arguments have types. `btf_id`: the tracepoint's type in the kernel's BTF.
    Tracepoint {
        btf_id: u32,
    },
    /// A program for places in the code of a file. `is_multi`: attached by a link of its own (Linux 6.6), and not by a perf event.
    Uprobe {
        is_multi: bool,
    },
}

/// `BPF_TRACE_ITER` of `enum bpf_attach_type`.
pub(super) const ATTACH_TYPE_ITERATOR: u32 = 28;
/// `BPF_TRACE_RAW_TP`.
const ATTACH_TYPE_TRACEPOINT: u32 = 23;
/// `BPF_TRACE_UPROBE_MULTI`.
pub(super) const ATTACH_TYPE_UPROBE_MULTI: u32 = 48;

impl ProgramType {
    fn number(self) -> u32 {
        match self {
            Self::Uprobe { .. } => 2,
            Self::PerfEvent => 7,
            Self::RawTracepoint => 17,
            Self::Iterator { .. } | Self::Tracepoint { .. } => 26,
            Self::Syscall => 31,
        }
    }

    /// The kernel requires `BPF_F_SLEEPABLE` for a system call program.
    fn is_sleepable(self) -> bool {
        matches!(self, Self::Syscall | Self::Iterator { is_sleepable: true, .. })
    }
}

/// `BPF_OBJ_NAME_LEN`.
const NAME_BYTES: usize = 16;

/// The most CPUs of any kernel (`CONFIG_NR_CPUS` on every architecture).
const MAX_CPUS: usize = 8192;

/// A count that no program reaches.
const NOT_WRITTEN: u64 = u64::MAX;

/// The size of the buffer for the verifier log, the maximum (`bpf_verifier_log_attr_valid`, `kernel/bpf/log.c`). Before
/// Linux 6.4 a log that does not fit lacks its end, which contains the reason.
const LOG_BYTES: usize = (16 << 20) - 1;

/// The attributes of a map; numbers of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapShape {
    pub(crate) map_type: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

/// The code of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramCode<'a> {
    /// 8 bytes each.
    pub(crate) instructions: &'a [u8],
    /// Decides which helpers the program may call.
    pub(crate) license: &'a std::ffi::CStr,
    /// Type information of its functions, if there is more than one.
    pub(crate) functions: Option<Functions<'a>>,
}

/// The functions of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions<'a> {
    /// The loaded BTF.
    pub(crate) btf: BorrowedFd<'a>,
    /// `struct bpf_func_info`: the first instruction of a function, and its type.
    pub(crate) info: &'a [[u32; 2]],
}

/// The error of loading a program, with the end of the verifier log if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}{log}", if log.is_empty() { "" } else { ": " })]
pub(crate) struct LoadError {
    pub(crate) error: io::Error,
    pub(crate) log: String,
}

/// Creates a map; `inner` is a template of the inner maps for a map of maps.
pub(crate) fn create_map(name: &str, shape: MapShape, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        inner_map_fd: inner.map_or(0, raw),
        map_type: shape.map_type,
        key_size: shape.key_bytes,
        value_size: shape.value_bytes,
        max_entries: shape.max_entries,
        map_flags: shape.flags,
        map_name: object_name(name),
        ..MapCreate::default()
    };
    // SAFETY: the attributes hold no address.
    unsafe { bpf_fd(Command::MapCreate, &attributes) }
}

/// Writes one element of a map. Key and value must have the sizes that the map was created with.
pub(crate) fn update_element(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let attributes = MapElement {
        map_fd: raw(map),
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        ..MapElement::default()
    };
    // SAFETY: both addresses are of live slices, of the sizes that the caller promises.
    unsafe { bpf(Command::MapUpdateElement, &attributes) }.map(drop)
}

/// Writes elements of a map with keys and values of 4 bytes.
pub(crate) fn update_elements(map: BorrowedFd<'_>, elements: &[(u32, u32)]) -> io::Result<()> {
    let (keys, values): (Vec<u32>, Vec<u32>) = elements.iter().copied().unzip();
    let attributes = MapBatch {
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: u32::try_from(elements.len()).map_err(io::Error::other)?,
        map_fd: raw(map),
        ..MapBatch::default()
    };
    // SAFETY: both addresses are of live arrays of `count` elements.
    unsafe { bpf(Command::MapUpdateBatch, &attributes) }.map(drop)
}

/// Deletes one element of a map. The key must have the size that the map was created with.
pub(crate) fn delete_element(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let attributes = MapElement { map_fd: raw(map), key: key.as_ptr() as u64, ..MapElement::default() };
    // SAFETY: the address is of a live slice, of the size that the caller promises.
    unsafe { bpf(Command::MapDeleteElement, &attributes) }.map(drop)
}

/// Writes the key after `key` to `next`, or the first key for `None`. Returns false after the last key. Keys must have the
/// size that the map was created with.
pub(crate) fn next_key(map: BorrowedFd<'_>, key: Option<&[u8]>, next: &mut [u8]) -> io::Result<bool> {
    let attributes = MapElement {
        map_fd: raw(map),
        key: key.map_or(0, |key| key.as_ptr() as u64),
        value: next.as_mut_ptr() as u64,
        ..MapElement::default()
    };
    // SAFETY: both addresses are of live slices, of the sizes that the caller promises.
    match unsafe { bpf(Command::MapGetNextKey, &attributes) } {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The keys of a hash map with at most `max_entries`. The kernel begins anew where a program removes the key that is read last:
/// so many steps are taken at most, and a key that is removed or added meanwhile can be absent.
pub(crate) fn keys<const BYTES: usize>(
    map: BorrowedFd<'_>,
    max_entries: usize,
) -> io::Result<HashSet<[u8; BYTES]>> {
    let mut keys = HashSet::new();
    let (mut key, mut next) = (None, [0; BYTES]);
    for _ in 0..max_entries.saturating_mul(2) {
        if !next_key(map, key.as_ref().map(|key: &[u8; BYTES]| &key[..]), &mut next)? {
            break;
        }
        keys.insert(next);
        key = Some(next);
    }
    Ok(keys)
}

/// Loads BTF (`Documentation/bpf/btf.rst`).
pub(crate) fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let attributes = BtfLoad {
        btf: types.as_ptr() as u64,
        btf_size: u32::try_from(types.len()).unwrap_or(u32::MAX),
        ..BtfLoad::default()
    };
    // SAFETY: the address is of a live slice of the size given.
    unsafe { bpf_fd(Command::BtfLoad, &attributes) }
}

/// Reads one element of a map that is not per-CPU. Key and value must have the sizes that the map was
/// created with.
pub(crate) fn look_up_element(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let attributes = MapElement {
        map_fd: raw(map),
        key: key.as_ptr() as u64,
        value: value.as_mut_ptr() as u64,
        ..MapElement::default()
    };
    // SAFETY: both addresses are of live slices, of the sizes that the caller promises.
    unsafe { bpf(Command::MapLookupElement, &attributes) }.map(drop)
}

/// The sum over all CPUs of an element of a per-CPU array of 64-bit numbers.
///
/// The kernel writes one number for each possible CPU. Their number is in `/sys`, which a container may not mount, so the
/// buffer is large enough for any kernel.
pub(crate) fn sum_over_cpus(array: BorrowedFd<'_>, index: u32) -> io::Result<u64> {
    let [sum] = sums_over_cpus(array, index)?;
    Ok(sum)
}

/// As [`sum_over_cpus`], of an array whose elements are some 64-bit numbers: the sum of each.
pub(crate) fn sums_over_cpus<const NUMBERS: usize>(
    array: BorrowedFd<'_>,
    index: u32,
) -> io::Result<[u64; NUMBERS]> {
    // Constant from the boot on. To fill and to add up the whole buffer costs more than the system call.
    static POSSIBLE_CPUS: OnceLock<usize> = OnceLock::new();
    let mut values = Vec::<[u64; NUMBERS]>::with_capacity(MAX_CPUS);
    let known = POSSIBLE_CPUS.get();
    if known.is_none() {
        values.resize(MAX_CPUS, [NOT_WRITTEN; NUMBERS]);
    }
    let attributes = MapElement {
        map_fd: raw(array),
        key: (&raw const index) as u64,
        value: values.as_mut_ptr() as u64,
        ..MapElement::default()
    };
    // SAFETY: the key is a live number of the size of an array's keys, and no kernel has more CPUs than the buffer can hold.
    unsafe { bpf(Command::MapLookupElement, &attributes) }?;
    let cpus = *known.unwrap_or_else(|| POSSIBLE_CPUS.get_or_init(|| written_elements(&values)));
    // SAFETY: the kernel has written the numbers of all possible CPUs, and they are no more than the buffer can hold.
    unsafe { values.set_len(cpus) };
    Ok(sums(&values))
}

/// The length of a buffer up to the last element that was written since it was filled with [`NOT_WRITTEN`].
fn written_elements<const NUMBERS: usize>(values: &[[u64; NUMBERS]]) -> usize {
    values.iter().rposition(|numbers| *numbers != [NOT_WRITTEN; NUMBERS]).map_or(0, |last| last + 1)
}

fn sums<const NUMBERS: usize>(values: &[[u64; NUMBERS]]) -> [u64; NUMBERS] {
    let mut sums = [0_u64; NUMBERS];
    for numbers in values {
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(*number));
    }
    sums
}

/// Makes a map read-only for user space, so that the verifier treats its values as constants.
pub(crate) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MapElement { map_fd: raw(map), ..MapElement::default() };
    // SAFETY: the attributes hold no address.
    unsafe { bpf(Command::MapFreeze, &attributes) }.map(drop)
}

/// Loads a program.
///
/// # Errors
/// The error of the kernel, with the verifier log if the verifier refused the program.
pub(crate) fn load_program(
    name: &str,
    program_type: ProgramType,
    code: ProgramCode<'_>,
) -> Result<OwnedFd, LoadError> {
    let error = match load_program_without_log(name, program_type, code) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if error.raw_os_error() == Some(libc::EPERM) {
        return Err(LoadError { error, log: String::new() });
    }
    // The log slows the verifier down, so it is only requested after a failure. `EACCES` comes from a security module,
    // which leaves the log empty, or from the verifier for an invalid memory access.
    let mut log = vec![0_u8; LOG_BYTES];
    let mut attributes = program_attributes(name, program_type, code);
    attributes.log_level = 1;
    attributes.log_size = u32::try_from(log.len()).unwrap_or(u32::MAX);
    attributes.log_buffer = log.as_mut_ptr() as u64;
    // SAFETY: the addresses are of live slices, the counts are theirs, and the log buffer is writable and of the size
    // given.
    match unsafe { bpf_fd(Command::ProgramLoad, &attributes) } {
        Ok(program) => Ok(program),
        Err(_) => Err(LoadError { error, log: last_lines(&log) }),
    }
}

/// Loads a program. The error is the kernel's, where the reason of the verifier is of no interest: its log would be
/// larger than everything else that the profiler allocates.
pub(crate) fn load_program_without_log(
    name: &str,
    program_type: ProgramType,
    code: ProgramCode<'_>,
) -> io::Result<OwnedFd> {
    let attributes = program_attributes(name, program_type, code);
    // SAFETY: the addresses are of live slices, and the counts are theirs.
    unsafe { bpf_fd(Command::ProgramLoad, &attributes) }
}

/// The attributes of a program. They hold addresses of slices in `code`.
fn program_attributes(name: &str, program_type: ProgramType, code: ProgramCode<'_>) -> ProgramLoad {
    const INSTRUCTION_BYTES: usize = 8;
    /// `BPF_F_SLEEPABLE`.
    const SLEEPABLE: u32 = 1 << 4;
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let mut attributes = ProgramLoad {
        program_type: program_type.number(),
        instruction_count: count(code.instructions.len() / INSTRUCTION_BYTES),
        instructions: code.instructions.as_ptr() as u64,
        license: code.license.as_ptr() as u64,
        program_name: object_name(name),
        program_flags: if program_type.is_sleepable() { SLEEPABLE } else { 0 },
        ..ProgramLoad::default()
    };
    let attachment = match program_type {
        ProgramType::Iterator { btf_id, .. } => Some((ATTACH_TYPE_ITERATOR, btf_id)),
        ProgramType::Tracepoint { btf_id } => Some((ATTACH_TYPE_TRACEPOINT, btf_id)),
        ProgramType::Uprobe { is_multi: true } => Some((ATTACH_TYPE_UPROBE_MULTI, 0)),
        ProgramType::PerfEvent
        | ProgramType::RawTracepoint
        | ProgramType::Syscall
        | ProgramType::Uprobe { is_multi: false } => None,
    };
    if let Some((attach_type, btf_id)) = attachment {
        attributes.expected_attach_type = attach_type;
        attributes.attach_btf_id = btf_id;
    }
    if let Some(functions) = code.functions {
        attributes.btf_fd = raw(functions.btf);
        attributes.function_info_record_size = count(size_of::<[u32; 2]>());
        attributes.function_info = functions.info.as_ptr() as u64;
        attributes.function_info_count = count(functions.info.len());
    }
    attributes
}

/// Runs a program of type [`ProgramType::Syscall`], or a raw tracepoint program that does not use its arguments (from Linux 5.10
/// on), once, and returns its result.
pub(crate) fn run_program(program: BorrowedFd<'_>) -> io::Result<u32> {
    let attributes = ProgramRun { program_fd: raw(program), ..ProgramRun::default() };
    // SAFETY: the attributes hold no address.
    unsafe { bpf(Command::ProgramTestRun, &attributes) }?;
    Ok(attributes.result.get())
}

/// The last lines of a verifier log, which contain the error and its statistics.
fn last_lines(log: &[u8]) -> String {
    const LINES: usize = 12;
    let end = memchr::memchr(0, log).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("; ")
}

fn object_name(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    for (to, from) in bytes.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()) {
        *to = from;
    }
    bytes
}

pub(super) fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

/// A command that returns a new file descriptor.
///
/// # Safety
/// As [`bpf`].
pub(super) unsafe fn bpf_fd<T>(command: Command, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `T` is the part of `union bpf_attr` that belongs to the command, without padding, and every address in it
/// is valid for what the command does with it.
unsafe fn bpf<T>(command: Command, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of the attributes and assumes zeros for the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as i32, std::ptr::from_ref(attributes), size_of::<T>())
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_truncated_to_the_limit_of_the_kernel() {
        assert_eq!(&object_name("RECORDS")[..8], b"RECORDS\0");
        assert_eq!(&object_name("a_name_longer_than_that")[..], b"a_name_longer_t\0");
    }

    #[test]
    fn the_numbers_of_all_possible_cpus_are_added_up() {
        let mut values = [[NOT_WRITTEN; 2]; 5];
        // The counts of a CPU that was never online are 0.
        values[..3].copy_from_slice(&[[1, 10], [2, 20], [0, 0]]);
        let cpus = written_elements(&values);
        assert_eq!((cpus, sums(&values[..cpus])), (3, [3, 30]));
    }

    #[test]
    fn the_last_lines_of_the_log_are_kept() {
        let log = (0..100).map(|i| format!("line {i}\n")).collect::<String>() + "\0rest";
        let kept = last_lines(log.as_bytes());
        assert!(kept.starts_with("line 88"));
        assert!(kept.ends_with("line 99"));
    }
}
