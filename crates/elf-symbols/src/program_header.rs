//! Program headers: loaded segments (`PT_LOAD`), and the segments of the dynamic section (`PT_DYNAMIC`) and of
//! `.eh_frame_hdr` (`PT_GNU_EH_FRAME`).

use object::elf;
use profiler_addresses::{ElfAddress, FileOffset};
use profiler_binary_reader::Segment;

use crate::header::{LE, ProgramHeader};

/// The loaded segments.
pub(crate) fn loaded(programs: &[ProgramHeader]) -> Vec<Segment> {
    of_type(programs, elf::PT_LOAD).collect()
}

/// The segment of `.eh_frame_hdr`, which points to `.eh_frame`.
pub(crate) fn eh_frame_header(programs: &[ProgramHeader]) -> Option<Segment> {
    of_type(programs, elf::PT_GNU_EH_FRAME).next()
}

/// The segment of the dynamic section.
pub(crate) fn dynamic_section(programs: &[ProgramHeader]) -> Option<Segment> {
    of_type(programs, elf::PT_DYNAMIC).next()
}

fn of_type(programs: &[ProgramHeader], kind: elf::ProgramType) -> impl Iterator<Item = Segment> {
    let programs = programs.iter().filter(move |program| program.p_type.get(LE) == kind);
    programs.map(|program| Segment {
        offset: FileOffset(program.p_offset.get(LE)),
        address: ElfAddress(program.p_vaddr.get(LE)),
        file_bytes: program.p_filesz.get(LE),
        is_code: program.p_flags.get(LE).contains(elf::PF_X),
        is_writable: program.p_flags.get(LE).contains(elf::PF_W),
    })
}
