//! The BPF object that is embedded: its bytes, its maps and its programs.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use aya_obj::generated::bpf_insn;
use profiler_common::names;

use super::{func_info, row_chunks::create_chunk};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sys::bpf::{self, MapShape, ProgramCode, ProgramType},
};

/// The object that `cargo xtask build-ebpf` writes.
#[cfg_attr(feature = "bpf-log", allow(dead_code, reason = "the object with log lines takes its place"))]
static OBJECT: &[u8] = aya::include_bytes_aligned!("profiler.bpf.o");

/// `BPF_F_RDONLY_PROG`.
const MAP_READ_ONLY_IN_PROGRAM: u32 = 1 << 7;

/// The bytes of the object to load.
#[cfg(not(feature = "bpf-log"))]
pub(super) fn object_bytes() -> Result<&'static [u8]> {
    Ok(OBJECT)
}

/// The bytes of the object with log lines.
#[cfg(feature = "bpf-log")]
pub(super) fn object_bytes() -> Result<Vec<u8>> {
    super::bpf_log::read_object()
}

pub(super) fn create_map(name: &str, definition: &aya_obj::Map) -> Result<OwnedFd> {
    let failed =
        |error| Error::from_io(Operation::CreateMap, format!("failed to create the BPF map `{name}`"), error);
    let constants = definition.section_kind() == aya_obj::EbpfSectionKind::Rodata;
    let shape = MapShape {
        map_type: definition.map_type(),
        key_bytes: definition.key_size(),
        value_bytes: definition.value_size(),
        max_entries: definition.max_entries(),
        flags: definition.map_flags() | if constants { MAP_READ_ONLY_IN_PROGRAM } else { 0 },
    };
    let inner = if name == names::MAP_UNWIND_ROWS { Some(create_chunk().map_err(failed)?) } else { None };
    let map = bpf::create_map(name.trim_start_matches('.'), shape, inner.as_ref().map(AsFd::as_fd))
        .map_err(failed)?;
    if constants {
        bpf::update_element(map.as_fd(), &0_u32.to_ne_bytes(), definition.data()).map_err(failed)?;
        bpf::freeze(map.as_fd()).map_err(failed)?;
    }
    Ok(map)
}

pub(super) fn relocate(
    object: &mut aya_obj::Object,
    definitions: &[(String, aya_obj::Map)],
    maps: &HashMap<String, OwnedFd>,
) -> Result<()> {
    let text_sections = object.functions.keys().map(|(section, _)| *section).collect();
    let placed = definitions
        .iter()
        .filter_map(|(name, definition)| Some((name.as_str(), maps.get(name)?.as_raw_fd(), definition)));
    object.relocate_maps(placed, &text_sections).map_err(broken)?;
    object.relocate_calls(&text_sections).map_err(broken)
}

/// Helpers that not every kernel has, `enum bpf_func_id` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Helper {
    /// `bpf_task_pt_regs`: 5.15.
    TaskPtRegs = 175,
    /// `bpf_loop`: 5.17.
    Loop = 181,
}

/// Whether a perf_event program can call a helper. The verifier rejects a call without initialized arguments with
/// `EACCES` if the helper exists, and with `EINVAL` if it does not.
pub(super) fn has_helper(helper: Helper) -> bool {
    const CALL: u8 = 0x85;
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let [imm0, imm1, imm2, imm3] = (helper as i32).to_ne_bytes();
    let instructions = [[CALL, 0, 0, 0, imm0, imm1, imm2, imm3], EXIT].concat();
    let code = ProgramCode { instructions: &instructions, license: c"GPL", functions: None };
    match bpf::load_program_without_log("probe", ProgramType::PerfEvent, code) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::EACCES),
    }
}

pub(super) fn load_program(
    object: &aya_obj::Object,
    name: &str,
    program_type: ProgramType,
) -> Result<OwnedFd> {
    let program = object.programs.get(name).ok_or_else(|| broken(format!("no program `{name}`")))?;
    let function = object
        .functions
        .get(&program.function_key())
        .ok_or_else(|| broken(format!("no code of `{name}`")))?;
    let instructions: Vec<[u8; 8]> = function.instructions.iter().map(instruction_bytes).collect();
    let func_info = func_info::func_info(&instructions);
    // A program of one function needs no BTF.
    let btf = if func_info.len() > 1 {
        let loaded = bpf::load_btf(&func_info::btf());
        Some(loaded.map_err(|error| {
            Error::from_io(Operation::LoadProgram, format!("failed to load the BTF of `{name}`"), error)
        })?)
    } else {
        None
    };
    let functions = btf.as_ref().map(|btf| bpf::Functions { btf: btf.as_fd(), info: &func_info });
    let code =
        ProgramCode { instructions: instructions.as_flattened(), license: &program.license, functions };
    bpf::load_program(name, program_type, code).map_err(|refused| {
        let kind = match refused.error.kind() {
            std::io::ErrorKind::PermissionDenied if refused.log.is_empty() => {
                ErrorKind::PermissionDenied(Operation::LoadProgram)
            }
            _ => ErrorKind::Unsupported,
        };
        Error::with_source(kind, format!("failed to load the BPF program `{name}`"), refused)
    })
}

/// `struct bpf_insn` as the kernel reads it.
fn instruction_bytes(instruction: &bpf_insn) -> [u8; 8] {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [off0, off1] = instruction.off.to_ne_bytes();
    let [imm0, imm1, imm2, imm3] = instruction.imm.to_ne_bytes();
    [instruction.code, registers, off0, off1, imm0, imm1, imm2, imm3]
}

pub(super) fn map<'a>(maps: &'a HashMap<String, OwnedFd>, name: &str) -> Result<BorrowedFd<'a>> {
    Ok(maps.get(name).ok_or_else(|| broken(format!("no map `{name}`")))?.as_fd())
}

pub(super) fn clone_fd(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(broken)
}

/// An error of the embedded object, which is a defect of this build.
pub(super) fn broken(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::with_source(ErrorKind::InvalidData, "the embedded BPF object is broken", cause)
}

#[cfg(test)]
mod tests {
    use profiler_common::Counter;

    use super::*;

    #[test]
    fn the_object_has_every_program_and_map_that_the_loader_looks_up() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        for program in [
            names::PROGRAM_SAMPLE_FP,
            names::PROGRAM_SAMPLE_LOOP,
            names::PROGRAM_SAMPLE_TAILCALL,
            names::PROGRAM_UNWIND_TAILCALL,
            names::PROGRAM_FORK,
            names::PROGRAM_EXEC,
            names::PROGRAM_EXIT,
            names::PROGRAM_FREE,
            names::PROGRAM_SAMPLE_EVENT,
            names::PROGRAM_SAMPLE_EVENT_FP,
            names::PROGRAM_SAMPLE_TRACEPOINT,
            names::PROGRAM_SAMPLE_TRACEPOINT_FP,
            names::PROGRAM_SAMPLE_PROBE,
            names::PROGRAM_SAMPLE_PROBE_FP,
        ] {
            assert!(object.programs.contains_key(program), "{program}");
        }
        for map in [
            names::MAP_RECORDS,
            names::MAP_SENT_STACKS,
            names::MAP_TARGETS,
            names::MAP_CGROUP,
            names::MAP_COUNTERS,
            names::MAP_TAIL_CALLS,
            names::MAP_PROCESSES,
            names::MAP_MAPPINGS,
            names::MAP_UNWIND_SEGMENTS,
            names::MAP_UNWIND_PAGES,
            names::MAP_UNWIND_ROWS,
            names::MAP_UNWIND_RULES,
            names::MAP_EVENT_COUNTS,
            names::MAP_EVENT_SCRATCH,
        ] {
            assert!(object.maps.contains_key(map), "{map}");
        }
        let counters = &object.maps[names::MAP_COUNTERS];
        assert_eq!(counters.max_entries(), Counter::COUNT);
    }
}
